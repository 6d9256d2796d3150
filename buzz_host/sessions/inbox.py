"""The inbox of a session's actor, and what can be done while the actor is busy with its program.

A program may never answer: it hangs at its start, or somebody stopped it. The actor then waits inside a call, and this
looks into the inbox for it, so that a person who wants to stop waits for seconds and not for the call (TRN-04).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from buzz_author import events as native
from buzz_author.events import TurnStatus
from buzz_host.sessions.commands import Abandon, Close, Command, FromProgram, Interrupt, Job
from buzz_host.sessions.program import Program


@attrs.define
class Running:
    """What the job that runs still waits for."""

    job: Job
    turn: str
    open_turns: set[str] = attrs.field(factory=set)
    unsettled: dict[str, str] = attrs.field(factory=dict)
    """Steered messages by id, from the call on until the program has told how each went."""
    returned: deque[tuple[str, str]] = attrs.field(factory=deque)
    """Messages that become the next turns, with the ids of those turns."""
    calls: dict[str, native.ToolCalled] = attrs.field(factory=dict)
    stopping: set[str] = attrs.field(factory=set)
    """The turns that the program was asked to stop."""
    asking: asyncio.Task[None] | None = None
    """The program is being asked to stop; it may never answer."""
    cut_off: TurnStatus = "failed"
    """How the turns count that the program's end leaves open."""
    abandoned: bool = False

    @property
    def at_rest(self) -> bool:
        return not self.open_turns and not self.unsettled


class Inbox:
    """Commands in the order in which they were posted; one reader.

    `at_once` is shown each command that comes while the reader waits for the program, and says whether it took it: what
    a person is asked must reach them then, too, or the program would wait for ever for what waits for the program.
    """

    def __init__(self, at_once: Callable[[Command], bool] = lambda command: False) -> None:
        self._at_once = at_once
        self._commands: asyncio.Queue[Command] = asyncio.Queue()

    def post(self, command: Command) -> None:
        """Add a command."""
        self._commands.put_nowait(command)

    async def next(self) -> Command:
        """The next command."""
        return await self._commands.get()

    def take_all(self) -> list[Command]:
        """All that is there, out of the inbox."""
        return [self._commands.get_nowait() for _ in range(self._commands.qsize())]

    def take_events(self, program: Program) -> list[native.HarnessEvent]:
        """What `program` still said, and other programs, out of the inbox; everything else stays in it."""
        taken: list[native.HarnessEvent] = []
        for command in self.take_all():
            if not isinstance(command, FromProgram):
                self.post(command)
            elif command.program is program:
                taken.append(command.event)
        return taken

    async def unless_stopped(
        self, job: Job, work: Coroutine[Any, Any, None] | asyncio.Future[None], patience_s: float
    ) -> tuple[Interrupt | Abandon | Close, ...]:
        """Do `work`, a call into the program for `job`; empty when it came to its end, whatever it raised is raised.

        When somebody wants to stop meanwhile, the work has `patience_s` more seconds, and none once they leave after
        that. Then it is cancelled, and the commands that wanted it are given. All others stay where they were.
        """
        busy = asyncio.ensure_future(work)
        met: list[Command] = []
        stops: list[Interrupt | Abandon | Close] = []
        until: float | None = None
        try:
            while not busy.done() and (until is None or time.monotonic() < until):
                coming = asyncio.ensure_future(self._commands.get())
                left_s = None if until is None else until - time.monotonic()
                await asyncio.wait({busy, coming}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    continue
                command = coming.result()
                if self._at_once(command):
                    continue
                met.append(command)
                if isinstance(command, Interrupt | Close) or (isinstance(command, Abandon) and command.job is job):
                    stops.append(command)
                    if until is None:
                        until = time.monotonic() + patience_s
                    elif not isinstance(command, Interrupt):
                        until = time.monotonic()
        finally:
            stopped = not busy.done()
            busy.cancel()
            kept = [each for each in met if not stopped or each not in stops]
            for each in [*kept, *self.take_all()]:
                self.post(each)
        if not stopped:
            busy.result()
            return ()
        await asyncio.wait({busy})
        return tuple(stops)
