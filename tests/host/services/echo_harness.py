"""A harness of somebody else's, as a plugin in one file: it answers each turn with how many bytes it got."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

from buzz_author.events import HarnessEvent, SessionEnded, SteerSettled, TextDelta, TurnEnded, TurnStarted
from buzz_author.harness import Capabilities, Probe, SessionHost, SessionSpec
from buzz_author.plugins import PluginContext
from buzz_author.turns import Turn

inject = ("agents",)


class EchoSession:
    native_id: str | None = "echo-1"

    def __init__(self) -> None:
        self._events: asyncio.Queue[HarnessEvent] = asyncio.Queue()
        self._running: str | None = None

    async def send(self, turn: Turn) -> None:
        self._running = turn.id
        self._events.put_nowait(TurnStarted(turn.id))
        if turn.message.startswith("wait"):
            return
        self._finish(turn)

    def _finish(self, turn: Turn) -> None:
        reply = f"{len(turn.text.encode())} bytes"
        running, self._running = self._running or turn.id, None
        self._events.put_nowait(TextDelta(running, reply))
        self._events.put_nowait(TurnEnded(running, "completed", reply=reply))

    async def steer(self, turn: Turn) -> None:
        self._events.put_nowait(SteerSettled(self._running or turn.id, turn.id, "folded"))
        self._finish(turn)

    async def interrupt(self) -> None:
        if self._running:
            self._events.put_nowait(TurnEnded(self._running, "interrupted"))
            self._running = None

    async def answer(
        self,
        request_id: str,
        decision: Literal["allow", "deny"],
        *,
        reason: str | None = None,
        reply: str | None = None,
    ) -> None:
        pass

    async def events(self) -> AsyncIterator[HarnessEvent]:
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, SessionEnded):
                return

    async def close(self, *, deadline_s: float) -> None:
        await self.interrupt()
        self._events.put_nowait(SessionEnded())


class EchoHarness:
    id = "echo"
    title = "Echo"
    capabilities = Capabilities(steer="folds", resume=True)

    async def probe(self) -> Probe:
        return Probe(version="1")

    def encode(self, text: str, spec: SessionSpec) -> str:
        return text

    async def open(self, spec: SessionSpec, host: SessionHost) -> EchoSession:
        return EchoSession()


def apply(ctx: PluginContext) -> None:
    ctx.agents.registerHarness(EchoHarness())
