"""A harness without a program, for what no real program does on request: breaking its word, dying at a given moment.

The conformance of real programs is shown in tests/harnesses; here the host's own half is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Literal

import attrs

from buzz_author.events import HarnessEvent, SessionEnded, TurnEnded, TurnStarted
from buzz_author.harness import Capabilities, HarnessError, Probe, SessionHost, SessionSpec
from buzz_author.turns import Turn

Behaviour = Callable[["ScriptedSession", Turn], None]


def answers(session: ScriptedSession, turn: Turn) -> None:
    """Answer at once."""
    session.say(TurnStarted(turn.id), TurnEnded(turn.id, "completed", reply="done"))


def begins(session: ScriptedSession, turn: Turn) -> None:
    """Begin, and wait for what the test says next."""
    session.say(TurnStarted(turn.id))


class ScriptedSession:
    def __init__(self, harness: ScriptedHarness, spec: SessionSpec) -> None:
        self.harness = harness
        self.spec = spec
        self.native_id: str | None = spec.resume or f"native-{len(harness.sessions)}"
        self.sent: list[Turn] = []
        self.steered: list[Turn] = []
        self.answered: list[tuple[str, str]] = []
        self.replies: list[tuple[str | None, str | None]] = []
        """The reason and the reply of each answer."""
        self.interrupts = 0
        self.closed = False
        self._events: asyncio.Queue[HarnessEvent | None] = asyncio.Queue()

    def say(self, *events: HarnessEvent | None) -> None:
        for event in events:
            self._events.put_nowait(event)

    async def send(self, turn: Turn) -> None:
        self.sent.append(turn)
        self.harness.on_send(self, turn)

    async def steer(self, turn: Turn) -> None:
        self.steered.append(turn)
        self.harness.on_steer(self, turn)

    async def interrupt(self) -> None:
        self.interrupts += 1
        self.harness.on_interrupt(self, (self.steered or self.sent)[-1])

    async def answer(
        self,
        request_id: str,
        decision: Literal["allow", "deny"],
        *,
        reason: str | None = None,
        reply: str | None = None,
    ) -> None:
        if request_id in self.harness.withdrawn:
            raise HarnessError("invalid-request", "nobody waits for this")
        self.answered.append((request_id, decision))
        self.replies.append((reason, reply))

    async def events(self) -> AsyncIterator[HarnessEvent]:
        while (event := await self._events.get()) is not None:
            yield event
            if isinstance(event, SessionEnded):
                return

    async def close(self, *, deadline_s: float) -> None:
        self.closed = True
        self.say(SessionEnded())


def ignores(session: ScriptedSession, turn: Turn) -> None:
    """Say nothing."""


def ends_interrupted(session: ScriptedSession, turn: Turn) -> None:
    """End the first turn as interrupted."""
    session.say(TurnEnded(session.sent[-1].id, "interrupted"))


@attrs.define
class ScriptedHarness:
    on_send: Behaviour = answers
    on_steer: Behaviour = ignores
    on_interrupt: Behaviour = ends_interrupted
    refuses: HarnessError | None = None
    capabilities: Capabilities = attrs.field(factory=lambda: Capabilities(steer="folds", resume=True))
    id: str = "scripted"
    title: str = "Scripted"
    sessions: list[ScriptedSession] = attrs.field(factory=list)
    opened: asyncio.Event = attrs.field(factory=asyncio.Event)
    hosts: list[SessionHost] = attrs.field(factory=list)
    withdrawn: set[str] = attrs.field(factory=set)
    """Requests that the program does not wait for any more."""

    async def probe(self) -> Probe:
        return Probe(version="1")

    def encode(self, text: str, spec: SessionSpec) -> str:
        return text

    async def open(self, spec: SessionSpec, host: SessionHost) -> ScriptedSession:
        if self.refuses is not None:
            raise self.refuses
        session = ScriptedSession(self, spec)
        self.sessions.append(session)
        self.hosts.append(host)
        self.opened.set()
        return session
