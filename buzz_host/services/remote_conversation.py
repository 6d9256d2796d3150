"""Conversations with a running host: one connection, several requests at once, each with its own answers.

The socket of `Remote` is taken over for as long as they last: here a loop reads it, since a person types, interrupts
and answers while a turn is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

from buzz_author.errors import BuzzError
from buzz_author.framing import LineFramer, decode_line, encode_line
from buzz_host.services.connect import HostGone
from buzz_host.services.session_calls import (
    AnswerRequest,
    CloseSession,
    InterruptSession,
    OpenedSession,
    OpenSession,
    SessionCall,
    SteerSession,
    TakeTurn,
)
from buzz_host.services.wire import PROTOCOL_VERSION, structured, unstructured
from buzz_host.sessions.turn_text import Event

CHUNK_BYTES: Final = 256 * 1024
# An interrupted turn may take 15 s to come to rest, and its program 10 s to end.
LEAVE_DEADLINE_S: Final = 30.0


class Connection:
    """What is asked over one socket, and answered. It opens conversations while a block of `read` lasts."""

    def __init__(
        self,
        connection: socket.socket,
        framer: LineFramer,
        asked: int,
        *,
        gone: str,
        raised: Callable[[Any], Exception],
    ) -> None:
        self._socket = connection
        self._framer = framer
        self._asked = asked
        self._gone = gone
        self._raised = raised
        self._streams: dict[int, RemoteStream] = {}
        self._sending = asyncio.Lock()
        self._over: Exception | None = None

    @asynccontextmanager
    async def read(self) -> AsyncIterator[None]:
        """Read what the host says, as long as the block lasts."""
        reader = asyncio.get_running_loop().create_task(self._read())
        try:
            yield
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    @asynccontextmanager
    async def open(self, opening: OpenSession) -> AsyncIterator[RemoteConversation]:
        """As `Opener.open`."""
        said: OpenedSession = structured(await self.ask(opening), OpenedSession, "value")
        try:
            yield RemoteConversation(self, said)
        finally:
            with contextlib.suppress(BuzzError, TimeoutError):  # the host ends: the session is over all the same
                async with asyncio.timeout(LEAVE_DEADLINE_S):
                    await self.ask(CloseSession(session=said.session))

    async def ask(self, call: SessionCall) -> Any:
        """The value that answers `call`. Raises `BuzzError`."""
        stream = await self.request(call)
        async for _ in stream:
            pass
        return stream.value

    async def request(self, call: SessionCall) -> RemoteStream:
        """What answers `call`, as it comes."""
        self._asked += 1
        stream = self._streams[self._asked] = RemoteStream()
        line = {"v": PROTOCOL_VERSION, "id": self._asked, "call": call.name, "arguments": unstructured(call)}
        if self._over is not None:
            stream.fail(self._over)
            return stream
        async with self._sending:
            with contextlib.suppress(OSError):  # why is seen where it is read
                await asyncio.get_running_loop().sock_sendall(self._socket, encode_line(line))
        return stream

    async def _read(self) -> None:
        """Give each line to the request that it belongs to, until the host hangs up."""
        loop = asyncio.get_running_loop()
        over: Exception = HostGone(self._gone)
        try:
            while octets := await loop.sock_recv(self._socket, CHUNK_BYTES):
                for line in self._framer.feed(octets):
                    said = decode_line(line).value
                    if isinstance(said, Mapping):
                        self._take(said)
        except OSError:
            pass
        except BuzzError as error:
            over = error
        finally:
            self._over = over
            for stream in self._streams.values():
                stream.fail(over)

    def _take(self, said: Mapping[str, Any]) -> None:
        asked = said.get("id")
        if not isinstance(asked, int) or (stream := self._streams.get(asked)) is None:
            return
        if "event" in said:
            stream.put(structured(said["event"], Event, "event"))
            return
        del self._streams[asked]
        if "error" in said:
            stream.fail(self._raised(said["error"]))
        else:
            stream.end(said.get("value"))


class RemoteConversation:
    """An open session of the host at the other end."""

    def __init__(self, connection: Connection, opened: OpenedSession) -> None:
        self.id = opened.session
        self.agent = opened.agent
        self.harness = opened.harness
        self._connection = connection

    @asynccontextmanager
    async def turn(self, message: str) -> AsyncIterator[RemoteStream]:
        """As `Conversation.turn`."""
        stream = await self._connection.request(TakeTurn(session=self.id, message=message))
        try:
            yield stream
        finally:
            if not stream.ended.is_set():
                with contextlib.suppress(BuzzError, TimeoutError):
                    async with asyncio.timeout(LEAVE_DEADLINE_S):
                        await self.interrupt()
                        await stream.ended.wait()

    async def steer(self, message: str) -> str:
        """As `Conversation.steer`."""
        answer = await self._connection.ask(SteerSession(session=self.id, message=message))
        steered: str = structured(answer, str, "value")
        return steered

    async def interrupt(self) -> None:
        """As `Conversation.interrupt`."""
        await self._connection.ask(InterruptSession(session=self.id))

    async def answer(
        self,
        request: str,
        decision: Literal["allow", "deny"],
        *,
        reason: str | None = None,
        reply: str | None = None,
    ) -> None:
        """As `Conversation.answer`."""
        await self._connection.ask(
            AnswerRequest(session=self.id, request=request, decision=decision, reason=reason, reply=reply)
        )


class RemoteStream(AsyncIterator[Event]):
    """The events of one request, until its answer."""

    def __init__(self) -> None:
        self.value: Any = None
        self.ended = asyncio.Event()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._error: Exception | None = None

    def put(self, event: Event) -> None:
        """Add an event."""
        self._events.put_nowait(event)

    def end(self, value: Any) -> None:
        """The answer is there."""
        self.value = value
        self.ended.set()
        self._events.put_nowait(None)

    def fail(self, error: Exception) -> None:
        """There is an error in the answer's place."""
        if not self.ended.is_set():
            self._error = error
            self.end(None)

    async def __anext__(self) -> Event:
        if self.ended.is_set() and self._events.empty():
            raise StopAsyncIteration
        event = await self._events.get()
        if event is not None:
            return event
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration
