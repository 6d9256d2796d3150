"""One conversation with the program: turns and steers go out as requests, what it says comes in as events.

goose does not stop a request whose answer has not begun, and tells no tool that its call was cancelled. Such a turn is
therefore cut off here: the program is ended, and the next turn starts it again with the same conversation. The stream
keeps its laws whatever happens: each turn ends once, each steer is settled once, `SessionEnded` comes last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Literal

from buzz_author.events import HarnessEvent, PermissionRequested, SessionEnded
from buzz_author.harness import FoundProgram, HarnessError, SessionHost, SessionSpec
from buzz_author.json_values import JsonObject, JsonValue
from buzz_author.jsonrpc import METHOD_NOT_FOUND, Notification, Request, RpcError
from buzz_author.turns import Turn
from harnesses.goose import faults, program
from harnesses.goose.flow import Flow
from harnesses.stdio.channel import LineChannel
from harnesses.stdio.environment import make_folders
from harnesses.stdio.faults import refused
from harnesses.stdio.rpc import RpcChannel

TITLE: Final = "goose"
CONNECT_DEADLINE_S: Final = 60.0
# A run that was told to stop ends within milliseconds, or not at all.
CANCEL_DEADLINE_S: Final = 2.0
CLEANUP_DEADLINE_S: Final = 5.0
RUN_DEADLINE_S: Final = 10.0
_LAST_WAIT_S: Final = 1.0
_CLIENT: Final = {
    "protocolVersion": 1,
    "clientCapabilities": {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
        "_meta": {"goose": {"customNotifications": True}},  # what it tells of compactions, and counts for each answer
    },
}
_EXTENSIONS: Final = "_goose/unstable/session/extensions"
_OWN_UPDATE: Final = "_goose/unstable/session/update"
_CANCELLED: Final = {"outcome": {"outcome": "cancelled"}}


class GooseSession:
    """A running goose; made by `start`."""

    def __init__(
        self,
        spec: SessionSpec,
        host: SessionHost,
        found: FoundProgram,
        environment: Mapping[str, str],
        idle_s: float,
        limit_bytes: int,
        log: logging.Logger,
    ) -> None:
        self._spec = spec
        self._host = host
        self._found = found
        self._environment = environment
        self._idle_s = idle_s
        self._limit_bytes = limit_bytes
        self._log = log
        self._events: asyncio.Queue[HarnessEvent] = asyncio.Queue()
        self._flow = Flow(self._events.put_nowait)
        self._asked: dict[str, Request] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None
        self._known_run = asyncio.Event()
        self._heard = time.monotonic()
        self._native_id: str | None = spec.resume
        self._session = spec.resume or ""
        self._loading = False
        self._over = False
        self._ending: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._rpc: RpcChannel | None = None

    @classmethod
    async def start(
        cls,
        spec: SessionSpec,
        host: SessionHost,
        found: FoundProgram,
        environment: Mapping[str, str],
        idle_s: float,
        limit_bytes: int,
        log: logging.Logger,
    ) -> GooseSession:
        """Start or resume; raises `HarnessError`, and leaves nothing behind then."""
        if not spec.cwd.is_dir():
            raise refused(f"{spec.cwd}: the working directory is no folder")
        try:
            make_folders(spec.config_dir)
        except OSError as error:
            raise HarnessError(
                "unknown", f"{error.filename or spec.config_dir}: cannot be written ({error.strerror})"
            ) from error
        session = cls(spec, host, found, environment, idle_s, limit_bytes, log)
        await session._connect()
        return session

    async def _connect(self) -> None:
        """Start the program, and open or load the conversation. Raises `HarnessError`."""
        channel = await LineChannel.start(
            TITLE,
            [*self._found.argv, "acp"],
            host=self._host,
            env=self._environment,
            cwd=self._spec.cwd,
            log=self._log,
            limit_bytes=self._limit_bytes,
        )
        rpc = RpcChannel(channel, self._take, lambda fault: self._gone(rpc, fault), self._log)
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await rpc.ask("initialize", _CLIENT)
                await self._open_conversation(rpc)
        except BaseException as error:
            await _ended(rpc, CLEANUP_DEADLINE_S)
            if isinstance(error, TimeoutError):
                raise HarnessError("timeout", f"{TITLE} did not start in time", retryable=True) from error
            if isinstance(error, RpcError):
                raise faults.of_answer(error) from error
            raise
        self._rpc = rpc

    async def _open_conversation(self, rpc: RpcChannel) -> None:
        gateway = self._host.gateway if self._spec.tools else None
        servers = program.servers(self._spec.tools, gateway)
        place: dict[str, Any] = {"cwd": str(self._spec.cwd), "mcpServers": servers}
        if self._session:
            self._loading = True  # what was said before is told again
            try:
                await rpc.ask("session/load", {"sessionId": self._session, **place})
            finally:
                self._loading = False
        else:
            opened = await rpc.ask("session/new", place)
            self._session = str(_member(opened, "sessionId"))
        session = {"sessionId": self._session}
        wanted = {server["name"] for server in servers}
        kept = program.kept_extensions(self._spec.policy)
        there = await self._extensions(rpc)
        for name in sorted(there - wanted - kept):
            await rpc.ask(f"{_EXTENSIONS}/remove", {**session, "extensionKey": name})
        if missing := sorted(wanted - there):
            raise HarnessError("connection", f"{TITLE} could not reach the tools of {', '.join(missing)}")
        prompt = {"key": "buzz", "text": self._spec.system_prompt, "mode": "set"}
        await rpc.ask("_goose/unstable/session/system-prompt/set", {**session, **prompt})
        # Said always: a conversation that is loaded keeps the mode that it had.
        await rpc.ask("session/set_mode", {**session, "modeId": program.mode(self._spec.policy)})

    async def _extensions(self, rpc: RpcChannel) -> set[str]:
        listed = await rpc.ask(f"{_EXTENSIONS}/list", {"sessionId": self._session})
        found = _member(listed, "extensions")
        return {str(_member(each, "extensionKey")) for each in found} if isinstance(found, list) else set()

    @property
    def native_id(self) -> str | None:
        """The id of the conversation; None before its first turn, without which it cannot be resumed."""
        return self._native_id

    async def send(self, turn: Turn) -> None:
        """Hand over a turn. Raises `HarnessError` when the program cannot take it; no event is told of it then."""
        self._refuse_when_over()
        if self._rpc is None:  # the last turn had to be cut off
            await self._connect()
        assert self._rpc is not None
        self._known_run.clear()
        self._flow.sent(turn.id)
        self._native_id = self._session
        self._heard = time.monotonic()
        self._running = asyncio.create_task(self._run(self._rpc, turn), name=f"a run of {TITLE}")

    async def _run(self, rpc: RpcChannel, turn: Turn) -> None:
        """One run, from its prompt to its end."""
        prompt = {"sessionId": self._session, "prompt": [{"type": "text", "text": turn.text}]}
        asking = asyncio.ensure_future(rpc.ask("session/prompt", prompt, deadline_s=None))
        try:
            while not asking.done():
                if self._asked or self._flow.is_calling():
                    self._heard = time.monotonic()  # a person or a tool is waited for, not the model
                left = self._heard + self._idle_s - time.monotonic()
                if left <= 0:
                    said = f"nothing was heard from the model for {self._idle_s:g} s"
                    await self._cut_off("failed", HarnessError("timeout", said, retryable=True))
                    return
                await asyncio.wait({asking}, timeout=max(left, 0.05))
            result = asking.result()
        except RpcError as error:
            self._flow.answered("failed", error=faults.of_answer(error))
        except HarnessError:
            return  # the program is gone: `_gone` tells
        else:
            cancelled = _member(result, "stopReason") == "cancelled"
            if cancelled and self._flow.is_calling({tool.name for tool in self._spec.tools}):
                # It has let go of the call, and does not say so to the tool; at its end the connection closes.
                self._rpc = None
                await _ended(rpc, 0.0)
            self._flow.answered("interrupted" if cancelled else "completed")
        finally:
            asking.cancel()
            self._asked.clear()
            self._known_run.set()

    async def steer(self, turn: Turn) -> None:
        """Hand a message to the running turn; it is given back where none runs, or where it ended before it was read.

        It is settled by an event. Raises `HarnessError` only when the session is over and tells no events any more.
        """
        self._refuse_when_over()
        self._flow.steered(turn.id, turn.steers)
        if self._flow.turn is not None and self._flow.run is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._known_run.wait(), RUN_DEADLINE_S)
        run, rpc = self._flow.run, self._rpc
        if run is None or rpc is None:
            self._flow.give_back(turn.id)
            return
        wanted = {"sessionId": self._session, "expectedRunId": run, "prompt": [{"type": "text", "text": turn.text}]}
        try:
            queued = await rpc.ask("_goose/unstable/session/steer", wanted)
        except (RpcError, HarnessError) as error:
            self._log.debug("a steer was not taken: %s", error)
            self._flow.give_back(turn.id)
        else:
            self._flow.queued(turn.id, str(_member(queued, "messageId")))

    async def interrupt(self) -> None:
        """Stop the running turn, which then ends as `interrupted`; without one, nothing happens."""
        running, rpc = self._running, self._rpc
        if self._over or self._flow.turn is None or running is None or rpc is None:
            return
        for request in list(self._asked):
            asked = self._asked.pop(request)
            self._later(rpc.answer(asked.id, _CANCELLED))
        try:
            await rpc.tell("session/cancel", {"sessionId": self._session})
        except HarnessError as error:  # it is gone: the stream tells
            self._log.debug("an interrupt met a program that is gone: %s", error)
            return
        await asyncio.wait({running}, timeout=CANCEL_DEADLINE_S)
        if not running.done():
            await self._cut_off("interrupted", None)

    async def _cut_off(self, status: Literal["failed", "interrupted"], error: HarnessError | None) -> None:
        """End the program in the middle of a turn; the conversation goes on with the next one."""
        rpc, self._rpc = self._rpc, None
        if rpc is None:
            return
        if status == "failed":
            with contextlib.suppress(HarnessError):
                await rpc.tell("session/cancel", {"sessionId": self._session})
        await _ended(rpc, 0.0)
        self._flow.answered(status, error=error)

    async def answer(
        self,
        request_id: str,
        decision: Literal["allow", "deny"],
        *,
        reason: str | None = None,
        reply: str | None = None,
    ) -> None:
        """Answer what the program asked. Raises `HarnessError` for a request that it does not wait for."""
        asked = self._asked.pop(request_id, None)
        if asked is None or self._rpc is None:
            raise refused(f"{TITLE} has asked nothing under the id {request_id!r}")
        await self._rpc.answer(asked.id, _selected(decision == "allow"))

    async def events(self) -> AsyncIterator[HarnessEvent]:
        """Everything that happens, in order, until `SessionEnded`. For one reader."""
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, SessionEnded):
                return

    async def close(self, *, deadline_s: float) -> None:
        """End of input, then the whole tree by force, within `deadline_s` seconds; a turn ends as `interrupted`."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(deadline_s), name=f"closing {TITLE}")
        await asyncio.shield(self._closing)

    async def _close(self, deadline_s: float) -> None:
        if not self._over and self._rpc is not None:
            await _ended(self._rpc, deadline_s)
        if self._ending is not None:
            await asyncio.wait({self._ending}, timeout=_LAST_WAIT_S)
        self._end(None)
        if self._running is not None:
            self._running.cancel()

    # The program's side.

    def _take(self, said: Request | Notification) -> None:
        self._heard = time.monotonic()
        if isinstance(said, Notification):
            update = said.params.get("update")
            if said.params.get("sessionId") != self._session or not isinstance(update, Mapping) or self._loading:
                return
            if said.method == _OWN_UPDATE:
                self._flow.told(update)
            elif said.method == "session/update":
                self._flow.updated(update)
                if self._flow.run is not None:
                    self._known_run.set()
            return
        if said.method != "session/request_permission" or self._rpc is None:
            self._refuse_request(said)
            return
        self._requested(self._rpc, said)

    def _requested(self, rpc: RpcChannel, said: Request) -> None:
        call = said.params.get("toolCall")
        shown = call if isinstance(call, Mapping) else {}
        name = self._flow.tools.get(str(shown.get("toolCallId")), str(shown.get("title")))
        turn = self._flow.turn
        if any(tool.name == name for tool in self._spec.tools):
            self._later(rpc.answer(said.id, _selected(allowed=True)))  # the host asks where the policy wants it
        elif turn is None:
            self._later(rpc.answer(said.id, _CANCELLED))
        else:
            self._asked[str(said.id)] = said
            arguments = shown.get("rawInput")
            given: JsonObject = arguments if isinstance(arguments, Mapping) else {}
            read_only = name.rpartition("__")[2] in program.READING
            self._events.put_nowait(PermissionRequested(turn, str(said.id), name, given, read_only))

    def _refuse_request(self, said: Request) -> None:
        if self._rpc is not None:
            self._later(self._rpc.refuse(said.id, METHOD_NOT_FOUND, f"Buzz does not answer {said.method}"))

    def _later(self, work: Any) -> None:
        async def done() -> None:
            with contextlib.suppress(HarnessError):  # it is gone: the stream tells
                await work

        task = asyncio.create_task(done())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _gone(self, rpc: RpcChannel, fault: HarnessError) -> None:
        if rpc is self._rpc and self._closing is None and self._ending is None:
            self._ending = asyncio.create_task(self._gone_by_itself(rpc, fault), name=f"end of {TITLE}")

    async def _gone_by_itself(self, rpc: RpcChannel, fault: HarnessError) -> None:
        self._flow.answered("failed", error=fault)
        await _ended(rpc, CLEANUP_DEADLINE_S)
        self._end(fault)

    def _end(self, error: HarnessError | None) -> None:
        """Close what is open and say that it is over; once."""
        if self._over:
            return
        self._over = True
        self._flow.answered("interrupted" if error is None else "failed", error=error)
        self._events.put_nowait(SessionEnded(error))

    def _refuse_when_over(self) -> None:
        if self._over or self._closing is not None or self._ending is not None:
            raise HarnessError("process-died", f"this session of {TITLE} has ended", retryable=True)


async def _ended(rpc: RpcChannel, deadline_s: float) -> None:
    """The program and its reader have ended."""
    await rpc.channel.close(deadline_s=deadline_s)
    await asyncio.wait({rpc.reading}, timeout=_LAST_WAIT_S)
    rpc.reading.cancel()


def _selected(allowed: bool) -> JsonObject:
    return {"outcome": {"outcome": "selected", "optionId": "allow_once" if allowed else "reject_once"}}


def _member(value: JsonValue, name: str) -> JsonValue:
    return value.get(name) if isinstance(value, Mapping) else None
