"""One conversation with the program: turns and steers go out as requests, what it says comes in as events.

The stream keeps its laws whatever happens to the program: each turn ends once, each steer is settled once, and
`SessionEnded` comes last, when nothing of the program is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Literal

from buzz_author.events import HarnessEvent, PermissionRequested, QuestionAsked, SessionEnded
from buzz_author.harness import FoundProgram, HarnessError, SessionHost, SessionSpec
from buzz_author.json_values import JsonObject, JsonValue
from buzz_author.jsonrpc import METHOD_NOT_FOUND, Notification, Request, RpcError
from buzz_author.turns import Turn
from harnesses.codex import program
from harnesses.codex.flow import Flow
from harnesses.stdio import faults
from harnesses.stdio.channel import LineChannel
from harnesses.stdio.environment import make_folders
from harnesses.stdio.rpc import RpcChannel

TITLE: Final = "Codex"
CONNECT_DEADLINE_S: Final = 60.0
INTERRUPT_DEADLINE_S: Final = 10.0
INTERRUPT_PAUSE_S: Final = 0.05
CLEANUP_DEADLINE_S: Final = 5.0
_LAST_WAIT_S: Final = 1.0
CLIENT: Final = {"name": "buzz", "title": "Buzz", "version": "1"}
# What the program asks before it goes on, each with our name of the tool.
_APPROVALS: Final[Mapping[str, str]] = {
    "item/commandExecution/requestApproval": "shell",
    "item/fileChange/requestApproval": "apply_patch",
    "item/permissions/requestApproval": "permissions",
}
_QUESTION: Final = "item/tool/requestUserInput"


class CodexSession:
    """A running Codex; made by `start`."""

    def __init__(self, spec: SessionSpec, host: SessionHost, idle_s: float, log: logging.Logger) -> None:
        self._spec = spec
        self._host = host
        self._idle_s = idle_s
        self._log = log
        self._events: asyncio.Queue[HarnessEvent] = asyncio.Queue()
        self._flow = Flow(self._emit, log)
        self._asked: dict[str, Request] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._heard = time.monotonic()
        self._watching: asyncio.Task[None] | None = None
        self._over = False
        self._ending: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._native_id: str | None = spec.resume
        self._thread = spec.resume or ""
        self._rpc: RpcChannel

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
    ) -> CodexSession:
        """Start or resume; raises `HarnessError`, and leaves nothing behind then."""
        if not spec.cwd.is_dir():
            raise faults.refused(f"{spec.cwd}: the working directory is no folder")
        try:
            make_folders(spec.config_dir)
            program.write_config(spec.config_dir)
        except OSError as error:
            raise HarnessError(
                "unknown", f"{error.filename or spec.config_dir}: cannot be written ({error.strerror})"
            ) from error
        session = cls(spec, host, idle_s, log)
        channel = await LineChannel.start(
            TITLE,
            [*found.argv, "app-server"],
            host=host,
            env=environment,
            cwd=spec.cwd,
            log=log,
            limit_bytes=limit_bytes,
        )
        session._rpc = RpcChannel(channel, session._take, session._gone, log)
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await session._connect(environment)
        except BaseException as error:
            session._closing = asyncio.current_task()  # what follows is no end of the program's own
            await session._clean_up(CLEANUP_DEADLINE_S)
            if isinstance(error, TimeoutError):
                raise HarnessError("timeout", f"{TITLE} did not start in time", retryable=True) from error
            if isinstance(error, RpcError):
                raise faults.refused(error.message) from error
            raise
        return session

    async def _connect(self, environment: Mapping[str, str]) -> None:
        await self._rpc.ask("initialize", {"clientInfo": CLIENT, "capabilities": {"experimentalApi": True}})
        await self._rpc.tell("initialized")
        gateway = self._host.gateway if self._spec.tools else None
        settings = program.thread_settings(self._spec, gateway, environment, self._idle_s)
        if self._spec.resume is not None:
            await self._rpc.ask("thread/resume", {"threadId": self._spec.resume, "excludeTurns": True, **settings})
            return
        opened = await self._rpc.ask("thread/start", settings)
        thread = opened.get("thread") if isinstance(opened, Mapping) else None
        self._thread = str(thread.get("id")) if isinstance(thread, Mapping) else ""

    @property
    def native_id(self) -> str | None:
        """The id of the conversation; None until the program has written it down, so that it could be resumed."""
        if self._native_id is None and any(self._spec.config_dir.glob(f"sessions/**/*{self._thread}*")):
            self._native_id = self._thread
        return self._native_id

    async def send(self, turn: Turn) -> None:
        """Hand over a turn. Raises `HarnessError` when the program cannot take it; no event is told of it then."""
        self._refuse_when_over()
        self._flow.sent(turn.id)
        self._heard = time.monotonic()
        try:
            taken = await self._ask("turn/start", {"clientUserMessageId": turn.id, **self._message(turn)})
        except HarnessError:
            if self._flow.not_taken(turn.id):
                raise
            return
        started = taken.get("turn") if isinstance(taken, Mapping) else None
        if isinstance(started, Mapping):
            self._flow.accepted(turn.id, str(started.get("id")))
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name=f"watching {TITLE}")

    async def steer(self, turn: Turn) -> None:
        """Hand a message to the running turn; it is given back where none runs, or where it ended before it was read.

        It is settled by an event. Raises `HarnessError` only when the session is over and tells no events any more.
        """
        self._refuse_when_over()
        self._flow.steered(turn.id, turn.steers)
        running = self._flow.running
        if running is None:
            self._flow.give_back(turn.id)
            return
        wanted = {"expectedTurnId": running, "clientUserMessageId": turn.id, **self._message(turn)}
        try:
            await self._ask("turn/steer", wanted)
        except HarnessError as error:
            self._log.debug("a steer was not taken: %s", error)
            self._flow.give_back(turn.id)

    async def interrupt(self) -> None:
        """Stop the running turn, which then ends as `interrupted`; without one, nothing happens."""
        running = self._flow.running
        wanted = {"threadId": self._thread, "turnId": running}
        until = time.monotonic() + INTERRUPT_DEADLINE_S
        while not self._over and running is not None and self._flow.running == running and time.monotonic() < until:
            try:
                await self._rpc.ask("turn/interrupt", wanted, deadline_s=INTERRUPT_DEADLINE_S)
                return
            except RpcError as error:  # it has ended, or has not quite begun: the program names a turn before it runs
                self._log.debug("an interrupt met no turn: %s", error)
                await asyncio.sleep(INTERRUPT_PAUSE_S)
            except HarnessError as error:
                if error.kind == "timeout":
                    raise
                self._log.debug("an interrupt met a program that is gone: %s", error)
                return

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
        if asked is None:
            raise faults.refused(f"{TITLE} has asked nothing under the id {request_id!r}")
        allowed = decision == "allow"
        match asked.method:
            case "item/permissions/requestApproval":
                granted = asked.params.get("permissions") if allowed else {}
                await self._rpc.answer(asked.id, {"permissions": granted, "scope": "turn"})
            case method if method == _QUESTION:
                await self._rpc.answer(asked.id, {"answers": _answers(asked.params, reply if allowed else None)})
            case _:
                await self._rpc.answer(asked.id, {"decision": "accept" if allowed else "decline"})

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
        if not self._over:
            await self._clean_up(deadline_s)
        if self._ending is not None:
            await asyncio.wait({self._ending}, timeout=_LAST_WAIT_S)
        self._end(None)

    # The program's side.

    def _emit(self, event: HarnessEvent) -> None:
        self._events.put_nowait(event)

    def _take(self, said: Request | Notification) -> None:
        self._heard = time.monotonic()
        if isinstance(said, Notification):
            if said.params.get("threadId") in (None, self._thread):
                if said.method == "serverRequest/resolved":
                    self._asked.pop(str(said.params.get("requestId")), None)
                self._flow.notified(said.method, said.params)
            return
        event = self._question(said)
        if event is None:
            self._in_background(self._rpc.refuse(said.id, METHOD_NOT_FOUND, f"Buzz does not answer {said.method}"))
        else:
            self._asked[str(said.id)] = said
            self._emit(event)

    def _question(self, said: Request) -> HarnessEvent | None:
        turn = self._flow.turn
        if turn is None:
            return None
        if said.method in _APPROVALS:
            shown = {
                key: said.params[key]
                for key in ("command", "cwd", "reason", "grantRoot", "permissions")
                if said.params.get(key) is not None
            }
            return PermissionRequested(turn, str(said.id), _APPROVALS[said.method], shown)
        if said.method == _QUESTION:
            asked = said.params.get("questions")
            questions = tuple(each for each in asked if isinstance(each, Mapping)) if isinstance(asked, list) else ()
            return QuestionAsked(turn, str(said.id), questions)
        return None

    def _in_background(self, work: Any) -> None:
        async def done() -> None:
            with contextlib.suppress(HarnessError):  # it is gone: the stream tells
                await work

        task = asyncio.create_task(done())
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def _gone(self, fault: HarnessError) -> None:
        if self._closing is None and self._ending is None:
            self._ending = asyncio.create_task(self._ended(fault), name=f"end of {TITLE}")

    async def _ended(self, fault: HarnessError) -> None:
        self._flow.ended("failed", fault)
        await self._clean_up(CLEANUP_DEADLINE_S)
        self._end(fault)

    def _end(self, error: HarnessError | None) -> None:
        """Close what is open and say that it is over; once."""
        if self._over:
            return
        self._over = True
        self._flow.ended("interrupted" if error is None else "failed", error)
        self._emit(SessionEnded(error))

    async def _watch(self) -> None:
        """Stop a turn in which nothing is heard for too long: a model that never answers is told by nobody else."""
        while self._flow.running is not None and not self._over:
            left = self._heard + self._idle_s - time.monotonic()
            if left > 0 or self._asked:
                await asyncio.sleep(max(left, 0.05))
                continue
            said = f"nothing was heard from the model for {self._idle_s:g} s"
            self._flow.timed_out(HarnessError("timeout", said, retryable=True))
            self._heard = time.monotonic()
            with contextlib.suppress(HarnessError):
                await self.interrupt()

    async def _clean_up(self, deadline_s: float) -> None:
        await self._rpc.channel.close(deadline_s=deadline_s)
        await asyncio.wait({self._rpc.reading}, timeout=_LAST_WAIT_S)
        self._rpc.reading.cancel()
        if self._watching is not None:
            self._watching.cancel()

    async def _ask(self, method: str, params: Mapping[str, object]) -> JsonValue:
        try:
            return await self._rpc.ask(method, {"threadId": self._thread, **params})
        except RpcError as error:
            raise faults.refused(error.message) from error

    def _message(self, turn: Turn) -> JsonObject:
        return {"input": [{"type": "text", "text": turn.text, "text_elements": []}]}

    def _refuse_when_over(self) -> None:
        if self._over or self._closing is not None or self._ending is not None:
            raise HarnessError("process-died", f"this session of {TITLE} has ended", retryable=True)


def _answers(params: JsonObject, reply: str | None) -> dict[str, object]:
    """The same reply to each question that was asked; none of them is answered without one."""
    asked = params.get("questions")
    questions = [each for each in asked if isinstance(each, Mapping)] if isinstance(asked, list) else []
    return {str(each.get("id")): {"answers": [reply] if reply is not None else []} for each in questions}
