"""One client of a running host: its requests, its answers, the sessions that it opened.

Requests are answered side by side, each reply in one piece. A client that does not read holds up its own answers and
nobody else's. One that is gone takes its sessions along: a turn that runs is interrupted, and recorded so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import attrs

from buzz_author.errors import BuzzError, PluginFault, describe
from buzz_author.framing import LineFramer, NotJson, decode_line, encode_line
from buzz_author.json_values import JsonValue
from buzz_host import VERSION
from buzz_host.serve.threads import on_a_thread
from buzz_host.services.calls import CALLS, Call, HomeCall, HostCall, TellingCall
from buzz_host.services.host import Host, NoWayToModel
from buzz_host.services.peers import same_person
from buzz_host.services.session_calls import (
    SESSION_CALLS,
    AnswerRequest,
    CloseSession,
    InterruptSession,
    OpenedSession,
    OpenSession,
    SessionCall,
    SteerSession,
    TakeTurn,
)
from buzz_host.services.wire import PROTOCOL_VERSION, Mismatch, found, structured, unknown_key, unstructured
from buzz_host.sessions.commands import SessionClosed
from buzz_host.sessions.session import Session
from buzz_host.settings.files import surroundings

CHUNK_BYTES: Final = 64 * 1024
# Further requests of a client wait, unread, while so many of it are being answered.
REQUESTS_AT_ONCE: Final = 32
# How long the last answers may take on their way to a client when its connection is closed.
FAREWELL_S: Final = 0.5
REQUEST_KEYS: Final = ("v", "id", "call", "arguments")

RequestId = str | int
log = logging.getLogger(__name__)


@attrs.frozen
class Request:
    """One line of a client."""

    id: RequestId
    call: Call[Any] | SessionCall


class BadRequest(BuzzError):
    """A line that is no request; `id` is what its answer goes by, None where it said none."""

    def __init__(self, message: str, id: RequestId | None) -> None:
        super().__init__(message)
        self.id = id


class Client:
    """The conversation with one client. Make it, run `talk`; `stop` ends it in order, from another task."""

    def __init__(self, host: Host, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._reader = reader
        self._writer = writer
        self._answering: dict[RequestId, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._sessions: dict[str, tuple[Session, AsyncExitStack]] = {}
        self._stopping = False
        self._conversation: asyncio.Task[None] | None = None

    async def talk(self) -> None:
        """Answer the client until it is gone. Never raises for anything that a client can do."""
        self._conversation = asyncio.get_running_loop().create_task(self._converse())
        try:
            # In a task of its own: to stop it does not disturb what follows it.
            await asyncio.wait({self._conversation})
        finally:
            self._conversation.cancel()
            await self._leave()

    async def stop(self, deadline_s: float) -> None:
        """Take no further request, interrupt the turns that run, and let everything come to its end.

        What is not at its end within `deadline_s` is cancelled, and programs are ended; `talk` then returns.
        """
        self._stopping = True
        for session, _ in list(self._sessions.values()):
            with contextlib.suppress(SessionClosed):
                await session.interrupt()
        if self._answering:
            await asyncio.wait(self._answering.values(), timeout=deadline_s)
        await self._end_sessions()
        if self._conversation is not None:
            self._conversation.cancel()

    async def _converse(self) -> None:
        """Take requests until the client is gone, or may not go on."""
        with contextlib.suppress(OSError):
            try:
                same_person(self._writer.get_extra_info("socket"))
                await self._say({"v": PROTOCOL_VERSION, "buzz": VERSION, "pid": os.getpid()})
                framer = LineFramer()
                while octets := await self._reader.read(CHUNK_BYTES):
                    for line in framer.feed(octets):
                        await self._take(line)
            except BuzzError as refused:  # somebody else's process, or a line without an end
                await self._say({"id": None, "error": {"kind": "refused", "message": str(refused)}})

    async def _take(self, line: bytes) -> None:
        await self._slots.acquire()
        try:
            request = read_request(line)
            if request.id in self._answering:
                raise BadRequest("id: expected one that is not being answered, found it again", request.id)
            if self._stopping:
                raise BadRequest("the host is stopping: it takes no further request", request.id)
        except BadRequest as bad:
            self._slots.release()
            await self._say({"id": bad.id, "error": {"kind": "request", "message": str(bad)}})
            return
        self._answering[request.id] = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        try:
            await self._say(await self._answered(request))
        except OSError:  # it is gone
            pass
        finally:
            del self._answering[request.id]
            self._slots.release()

    async def _answered(self, request: Request) -> Mapping[str, object]:
        """The last line for one request: its value, or why there is none."""
        try:
            value = unstructured(await self._value(request))
        except OSError as error:
            line = surroundings(error)  # a full disk, say; None: it is the client that is gone
            if line is None:
                raise
            return {"id": request.id, "error": {"kind": "refused", "message": line}}
        except BuzzError as error:
            return {"id": request.id, "error": {"kind": "refused", "message": str(error)}}
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            return {"id": request.id, "error": {"kind": "refused", "message": "the host was stopped meanwhile"}}
        except Exception as error:
            log.exception("the call %s failed", request.call.name)
            fault = PluginFault.from_exception("", request.call.name, error)
            return {
                "id": request.id,
                "error": {"kind": "bug", "message": describe(error), "traceback": fault.traceback},
            }
        return {"id": request.id, "value": value}

    async def _value(self, request: Request) -> object:
        match request.call:
            case HostCall() as call:
                return await call.answer(self._host)
            case HomeCall() as call:
                home, at_home = self._host.home, call
                return await on_a_thread(lambda: at_home.answer(home))
            case TellingCall() as call:
                return await self._follow(request.id, call)
            case SessionCall() as call:
                return await self._in_session(request.id, call)
        raise AssertionError(f"a call that nothing answers: {request.call!r}")

    async def _follow(self, id: RequestId, call: TellingCall[object, object]) -> object:
        loop = asyncio.get_running_loop()

        def tell(met: object) -> None:
            # Waits for a client that reads slowly: what it was not told yet is kept nowhere else.
            asyncio.run_coroutine_threadsafe(self._say({"id": id, "event": unstructured(met)}), loop).result()

        return await on_a_thread(lambda: call.answer(self._host.home, tell))

    # Sessions.

    async def _in_session(self, id: RequestId, call: SessionCall) -> object:
        match call:
            case OpenSession():
                return await self._open(call)
            case TakeTurn():
                async with self._session(call.session).turn(call.message) as events:
                    async for event in events:
                        await self._say({"id": id, "event": unstructured(event)})
            case SteerSession():
                return await self._session(call.session).steer(call.message)
            case AnswerRequest():
                await self._session(call.session).answer(
                    call.request, call.decision, reason=call.reason, reply=call.reply
                )
            case InterruptSession():
                await self._session(call.session).interrupt()
            case CloseSession():
                await self._close(call.session)
        return None

    async def _open(self, call: OpenSession) -> OpenedSession:
        stack = AsyncExitStack()
        try:
            session = await stack.enter_async_context(call.opened(self._host))
        except NoWayToModel as error:
            whose = f"what counts is the environment of the running host, process {os.getpid()}"
            raise NoWayToModel(f"{error} ({whose})") from None
        self._sessions[session.id] = (session, stack)
        return OpenedSession(session.id, session.agent, session.harness)

    def _session(self, id: str) -> Session:
        if id not in self._sessions:
            raise SessionClosed(f"session {id} is not open on this connection: open it with session.open")
        return self._sessions[id][0]

    async def _close(self, id: str) -> None:
        _, stack = self._sessions.pop(id, (None, None))
        if stack is not None:
            await stack.aclose()

    async def _end_sessions(self) -> None:
        for id in list(self._sessions):
            try:
                await self._close(id)
            except Exception:
                log.exception("session %s could not be closed in order", id)

    # The end.

    async def _leave(self) -> None:
        """Everything that the client began is ended: it is gone, or the host stops."""
        left = list(self._answering.values())
        for task in left:
            task.cancel()
        # A turn that is cancelled is interrupted, and recorded, before its task is done.
        await asyncio.gather(*left, return_exceptions=True)
        await self._end_sessions()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.drain(), FAREWELL_S)
        if self._writer.transport.get_write_buffer_size():
            self._writer.transport.abort()  # it does not read: what it did not take is lost
        else:
            self._writer.close()

    async def _say(self, line: Mapping[str, object]) -> None:
        if self._writer.transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._writer.write(encode_line(line))
        await self._writer.drain()


def read_request(line: bytes) -> Request:
    """The request that a line is. Raises `BadRequest`: `path: expected, found`."""
    id: RequestId | None = None
    try:
        value = decode_line(line).value
        fields = _object(value, "request")
        named = fields.get("id")
        if isinstance(named, bool) or not isinstance(named, str | int):
            raise Mismatch(f"id: expected a text or a whole number, found {found(named)}")
        id = named
        for key in fields:
            if key not in REQUEST_KEYS:
                raise unknown_key("request", key, REQUEST_KEYS)
        if fields.get("v") != PROTOCOL_VERSION or isinstance(fields.get("v"), bool):
            raise Mismatch(f"v: expected {PROTOCOL_VERSION}, found {found(fields.get('v'))}")
        name = fields.get("call")
        kind = _kind(name)
        return Request(id, structured(_object(fields.get("arguments", {}), "arguments"), kind, "arguments"))
    except (Mismatch, NotJson) as error:
        raise BadRequest(str(error), id) from None


def _kind(name: JsonValue) -> type[Call[Any]] | type[SessionCall]:
    known: dict[str, Any] = {**CALLS, **SESSION_CALLS}
    if not isinstance(name, str) or name not in known:
        raise Mismatch(f"call: expected one of {', '.join(sorted(known))}, found {found(name)}")
    kind: type[Call[Any]] | type[SessionCall] = known[name]
    return kind


def _object(value: JsonValue, path: str) -> Mapping[str, JsonValue]:
    if not isinstance(value, Mapping):
        raise Mismatch(f"{path}: expected an object, found {found(value)}")
    return value
