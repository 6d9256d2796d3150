"""Where a session has its program: opened when it is first needed or beforehand, ended in order, resumed.

Apart from the actor, whose matter are turns: here is no turn, only a program that is there or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import attrs

from buzz_author import events as native
from buzz_author.harness import Harness, HarnessError, SessionHost, SessionSpec
from buzz_host.sessions.program import Program

# For ending a program that had its time. Whoever waits for a second Ctrl-C waits for this.
FORCE_DEADLINE_S: Final = 0.5
# A harness may take a little more than it was given, for collecting what it ended.
CLOSE_GRACE_S: Final = 3.0

log = logging.getLogger(__name__)


class ProgramSlot:
    """Room for one program of `harness`; `say` gets whatever it says, with the program that says it."""

    def __init__(
        self,
        spec: SessionSpec,
        harness: Harness,
        access: SessionHost,
        say: Callable[[Program, native.HarnessEvent], None],
        keep_native_id: Callable[[str], Awaitable[None]],
    ) -> None:
        self.program: Program | None = None
        self._spec = spec
        self._harness = harness
        self._access = access
        self._say = say
        self._keep = keep_native_id
        self._native_id = spec.resume
        self._kept = spec.resume
        self._opening: asyncio.Task[None] | None = None
        self._pump: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start or resume the program beside everything else, unless it is there. What fails is raised by `open`."""
        if self.program is None and self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._opened(), name=f"opening {self._spec.session}")

    async def open(self) -> None:
        """Have the program there; raises `HarnessError` where it cannot be started. Cancelled, it starts none."""
        self.begin()
        if (opening := self._opening) is None:
            return
        try:
            await opening
        finally:
            if self._opening is opening:
                self._opening = None

    async def _opened(self) -> None:
        program = await Program.open(self._harness, attrs.evolve(self._spec, resume=self._native_id), self._access)
        self.program = program
        self._pump = asyncio.get_running_loop().create_task(self._forward(program))
        self._opening = None  # what failed stays, for `open` to raise

    async def _forward(self, program: Program) -> None:
        async for event in program.events():
            self._say(program, event)

    async def end(self, deadline_s: float) -> Program | None:
        """End the program; which one it was. Whoever asks takes its last words, and then empties the slot."""
        await self._stop_opening()
        program, pump = self.program, self._pump
        if program is None:
            return None
        try:
            async with asyncio.timeout(deadline_s + CLOSE_GRACE_S):
                await program.close(deadline_s)
        except HarnessError as error:
            log.warning("session %s: %s", self._spec.session, error)
        except TimeoutError:
            log.warning("session %s: the harness does not end its program: it is ended by force", self._spec.session)
            await self._access.end(deadline_s=FORCE_DEADLINE_S)
        if pump is not None:
            done, _ = await asyncio.wait({pump}, timeout=deadline_s)
            if not done:
                pump.cancel()
        return program

    async def _stop_opening(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError, HarnessError):
                await opening

    async def keep_native_id(self) -> None:
        """Remember by which name the program knows the conversation; asked once a turn has begun, since one without a
        turn cannot be resumed."""
        try:
            self._native_id = self.program.native_id if self.program is not None else self._native_id
        except HarnessError as error:  # the turn goes on; only resuming it later is lost
            log.warning("session %s: %s", self._spec.session, error)
        if self._native_id is not None and self._native_id != self._kept:
            await self._keep(self._native_id)
            self._kept = self._native_id
