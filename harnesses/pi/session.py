"""One conversation with the program: turns and steers go out as commands, what it says comes in as events.

The stream keeps its laws whatever happens to the program: each turn ends once, each steer is settled once, and
`SessionEnded` comes last, when nothing of the program is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from buzz_author.events import HarnessEvent, SessionEnded
from buzz_author.harness import FoundProgram, HarnessError, SessionHost, SessionSpec
from buzz_author.json_values import JsonObject
from buzz_author.turns import Turn
from harnesses.pi import program
from harnesses.pi.dialogs import Dialogs
from harnesses.pi.faults import refusal
from harnesses.pi.flow import Flow
from harnesses.pi.rpc import PiChannel
from harnesses.pi.settling import Settling
from harnesses.stdio import faults
from harnesses.stdio.channel import LineChannel
from harnesses.stdio.environment import make_folders

TITLE: Final = "Pi"
# What our extension says when it is there.
READY: Final = "buzz:ready"
CONNECT_DEADLINE_S: Final = 60.0
INTERRUPT_DEADLINE_S: Final = 10.0
CLEANUP_DEADLINE_S: Final = 5.0
_LAST_WAIT_S: Final = 1.0
_WATCH_S: Final = 0.05


class PiSession:
    """A running Pi; made by `start`."""

    def __init__(
        self, spec: SessionSpec, host: SessionHost, setup: Path, *, before_1: bool, idle_s: float, log: logging.Logger
    ) -> None:
        self._spec = spec
        self._host = host
        self._setup = setup
        self._before_1 = before_1
        self._idle_s = idle_s
        self._log = log
        self._events: asyncio.Queue[HarnessEvent] = asyncio.Queue()
        self._flow = Flow(self._events.put_nowait, log)
        self._dialogs = Dialogs(lambda: self._flow.turn, self._events.put_nowait)
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._handing = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._heard = time.monotonic()
        self._watching: asyncio.Task[None] | None = None
        self._over = False
        self._ending: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[Any] | None = None
        self._native_id = ""
        self._file: Path | None = None
        self._rpc: PiChannel
        self._settling: Settling

    @classmethod
    async def start(
        cls,
        spec: SessionSpec,
        host: SessionHost,
        found: FoundProgram,
        *,
        environ: Mapping[str, str],
        settings: JsonObject,
        idle_s: float,
        limit_bytes: int,
        log: logging.Logger,
    ) -> PiSession:
        """Start or resume; raises `HarnessError`, and leaves nothing behind then."""
        if not spec.cwd.is_dir():
            raise faults.refused(f"{spec.cwd}: the working directory is no folder")
        resumed = program.conversation(spec.config_dir, spec.resume) if spec.resume is not None else None
        if spec.resume is not None and resumed is None:
            raise faults.refused(f"{TITLE} has no conversation {spec.resume!r} in {spec.config_dir}")
        said = program.setup(spec, host.gateway if spec.tools else None, environ, settings)
        setup = spec.config_dir / "buzz" / f"{spec.session}.json"
        try:
            make_folders(spec.config_dir)
            program.write_settings(spec.config_dir)
            program.write_setup(setup, said)
        except OSError as error:
            setup.unlink(missing_ok=True)
            raise HarnessError(
                "unknown", f"{error.filename or spec.config_dir}: cannot be written ({error.strerror})"
            ) from error
        before_1 = program.is_before_1(found)
        session = cls(spec, host, setup, before_1=before_1, idle_s=idle_s, log=log)
        try:
            channel = await LineChannel.start(
                TITLE,
                program.words(found, spec, resumed, settings),
                host=host,
                env=program.environment(spec, environ, setup),
                cwd=spec.cwd,
                log=log,
                limit_bytes=limit_bytes,
            )
        except BaseException:
            setup.unlink(missing_ok=True)
            raise
        session._rpc = PiChannel(channel, session._take, session._gone, log)
        session._settling = Settling(session._rpc, session._flow, session._handing, before_1=before_1, log=log)
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await session._connect()
        except BaseException as error:
            session._closing = asyncio.current_task()  # what follows is no end of the program's own
            await session._clean_up(CLEANUP_DEADLINE_S)
            if isinstance(error, TimeoutError):
                raise HarnessError("timeout", f"{TITLE} did not start in time", retryable=True) from error
            if isinstance(error, HarnessError) and error.kind == "process-died" and channel.last_words:
                raise refusal(channel.last_words) from error  # it said why it does not start
            raise
        return session

    async def _connect(self) -> None:
        state = await self._rpc.ask("get_state", deadline_s=None)
        if isinstance(state, dict):
            self._native_id = str(state.get("sessionId") or "")
            named = state.get("sessionFile")
            self._file = Path(named) if isinstance(named, str) else None
            self._settling.file = self._file
        await self._ready  # our extension is there: without it nothing of a policy would hold

    @property
    def native_id(self) -> str | None:
        """The id of the conversation; None until the program has written it down, so that it could be resumed."""
        return self._native_id if self._native_id and self._file is not None and self._file.is_file() else None

    async def send(self, turn: Turn) -> None:
        """Hand over a turn. Raises `HarnessError` when the program cannot take it; no event is told of it then."""
        self._refuse_when_over()
        async with self._handing:
            self._flow.sent(turn.id)
            self._settling.begun()
            self._watch_on()
            try:
                # The program may compact its history first, so the answer may take as long as a model does.
                taken = await self._rpc.ask("prompt", message=turn.text, deadline_s=None)
                if isinstance(taken, dict) and taken.get("disposition") == "handled":
                    raise faults.refused(f"{TITLE} took the message for a command of its own")
            except HarnessError:
                if self._flow.not_taken(turn.id):
                    raise
                return
            self._flow.accepted(turn.id)

    async def steer(self, turn: Turn) -> None:
        """Hand a message to the running turn; it is given back where none runs, or where that ended before it was read.

        It is settled by an event. Raises `HarnessError` only when the session is over and tells no events any more.
        """
        self._refuse_when_over()
        self._flow.steered(turn.id, turn.steers, turn.text)
        async with self._handing:
            if self._flow.turn is None or self._settling.settles:
                self._flow.give_back(turn.id)
                return
            self._flow.handed(turn.id)
            try:
                await self._rpc.ask("steer", message=turn.text)
            except HarnessError as error:
                self._log.debug("a steer was not taken: %s", error)
                self._flow.give_back(turn.id)

    async def interrupt(self) -> None:
        """Stop the running turn, which then ends as `interrupted`; without one, nothing happens.

        A steer that waits is given back.
        """
        if self._over or self._flow.turn is None:
            return
        self._flow.interrupting()
        try:
            async with asyncio.timeout(INTERRUPT_DEADLINE_S):
                if not self._before_1:
                    await self._rpc.ask("clear_queue")
                # Before what it asked is withdrawn, or it would go on with that; it answers once both have reached it.
                stopping = asyncio.ensure_future(self._rpc.ask("abort"))
                await asyncio.sleep(0)
                await self._dialogs.withdraw(self._rpc)
                await stopping
        except TimeoutError as error:
            raise HarnessError("timeout", f"{TITLE} does not stop") from error
        except HarnessError as error:  # it died: the stream tells
            self._log.debug("an interrupt met a program that is gone: %s", error)

    async def answer(
        self,
        request_id: str,
        decision: Literal["allow", "deny"],
        *,
        reason: str | None = None,
        reply: str | None = None,
    ) -> None:
        """Answer a request of the program's. Raises `HarnessError` for one that waits for none, or not any more."""
        await self._dialogs.answer(self._rpc, request_id, decision, reason)
        self._heard = time.monotonic()

    async def events(self) -> AsyncIterator[HarnessEvent]:
        """Everything that happens, in order, until `SessionEnded`. For one reader."""
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, SessionEnded):
                return

    async def close(self, *, deadline_s: float) -> None:
        """End of input, then SIGTERM, then SIGKILL to the whole tree, all within `deadline_s` seconds.

        A turn that runs ends as `interrupted`. Calling it again waits for the first call.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(deadline_s), name=f"closing {TITLE}")
        await asyncio.shield(self._closing)

    async def _close(self, deadline_s: float) -> None:
        if self._ending is not None:
            await asyncio.wait({self._ending})
        elif not self._over:
            await self._clean_up(deadline_s)
        self._end(None)

    # The program's side.

    def _take(self, said: JsonObject) -> None:
        self._heard = time.monotonic()
        if said.get("type") == "extension_ui_request":
            if said.get("statusKey") == READY:
                if not self._ready.done():
                    self._ready.set_result(None)
            elif self._dialogs.asked(said):
                self._in_background(self._dialogs.refuse(self._rpc, said))
            return
        if said.get("type") == "extension_error":
            self._log.warning("our extension of %s failed: %s", TITLE, said.get("error"))
            return
        self._flow.received(said)
        if (work := self._settling.heard(said)) is not None:
            self._in_background(work)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        async def done() -> None:
            with contextlib.suppress(HarnessError):  # it is gone: the stream tells
                await work

        task = asyncio.create_task(done())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _gone(self, fault: HarnessError) -> None:
        if not self._ready.done():
            self._ready.set_exception(fault)
            self._ready.exception()  # whoever waited may be gone
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
        self._events.put_nowait(SessionEnded(error))

    def _watch_on(self) -> None:
        self._heard = time.monotonic()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name=f"watching {TITLE}")

    async def _watch(self) -> None:
        """Stop a turn in which nothing is heard for too long: a model that never answers is told by nobody else."""
        while self._flow.turn is not None and not self._over:
            if self._flow.calling or self._dialogs.wait:
                self._heard = time.monotonic()
            left = self._heard + self._idle_s - time.monotonic()
            if left > 0:
                await asyncio.sleep(min(max(left, _WATCH_S), 1.0))
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
        for task in (self._watching, *self._background):
            if task is not None:
                task.cancel()
        self._setup.unlink(missing_ok=True)

    def _refuse_when_over(self) -> None:
        if self._over or self._closing is not None or self._ending is not None:
            raise HarnessError("process-died", f"this session of {TITLE} has ended", retryable=True)
