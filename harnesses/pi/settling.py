"""When a turn is over. Pi may go on by itself after a run: to ask again, to shorten its history, with what is queued.

The 1.x line tells when it has settled. The line before tells no more than the end of a run; there the program is asked
for its state, and what it does next is told before the answer. What it has not read by then is taken out of its queue
before the turn is told to be over: left there, it would go to the model with the next turn, a second time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from buzz_author.json_values import JsonObject, JsonValue
from harnesses.pi.flow import Flow
from harnesses.pi.rpc import PiChannel

POLL_S: Final = 0.02
# After a compaction, the line before 1.0 goes on with what is queued a tenth of a second later.
_GOES_ON_S: Final = 0.5


class Settling:
    """Watches one session for the end of its turn. `handing` is held while something is given to the program."""

    def __init__(
        self, rpc: PiChannel, flow: Flow, handing: asyncio.Lock, *, before_1: bool, log: logging.Logger
    ) -> None:
        self._rpc = rpc
        self._flow = flow
        self._handing = handing
        self._before_1 = before_1
        self._log = log
        self.file: Path | None = None
        """The file of the conversation."""
        self.settles = False
        """Whether the turn is about to end: nothing more is given to it."""
        self._steps = 0

    def begun(self) -> None:
        """A turn is about to be handed over."""
        self.settles = False

    def heard(self, said: JsonObject) -> Coroutine[Any, Any, None] | None:
        """One event of the program; the work to do for it, if any."""
        kind = said.get("type")
        if kind == "agent_settled":
            return self._settle()
        if not self._before_1:
            return None
        match kind:
            case "agent_start" | "auto_retry_start" | "compaction_start":
                self._steps += 1
            case "agent_end":
                self._steps += 1
                return self._ask(self._steps, 0.0)
            case "auto_retry_end" if said.get("success") is not True:
                self._steps += 1
                return self._ask(self._steps, 0.0)
            case "compaction_end":
                self._steps += 1
                goes_on = said.get("willRetry") is True or self._flow.has_handed_steers
                return self._ask(self._steps, _GOES_ON_S if goes_on else 0.0)
        return None

    async def _ask(self, step: int, later_s: float) -> None:
        """Ask the program whether it still does something, unless it says so by itself: each step counts one up."""
        await asyncio.sleep(later_s)
        while step == self._steps:
            state = await self._rpc.ask("get_state")
            if step == self._steps and _is_idle(state):
                await self._settle()
                return
            await asyncio.sleep(POLL_S)

    async def _settle(self) -> None:
        if self._flow.turn is None or self.settles:
            return
        self.settles = True
        async with self._handing:  # a steer on its way is answered first
            if self._flow.has_handed_steers:
                await self._clear()
            self._flow.settled()

    async def _clear(self) -> None:
        """Empty the program's queue."""
        if not self._before_1:
            await self._rpc.ask("clear_queue")
        elif self.file is not None:
            # It has no command for that: opened anew, the conversation has an empty queue.
            await self._rpc.ask("switch_session", sessionPath=str(self.file))


def _is_idle(state: JsonValue) -> bool:
    return isinstance(state, dict) and state.get("isStreaming") is not True and state.get("isCompacting") is not True
