"""One session of a harness under test: hands over turns, keeps every event, and judges the stream at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar
from uuid import uuid4

import attrs

from buzz_author.events import HarnessEvent, Retrying, SessionEnded, SteerSettled, TextDelta, TurnEnded, TurnStarted
from buzz_author.harness import HarnessSession, SessionSpec
from buzz_author.sections import Section, Source, section
from buzz_author.turns import Snapshot, Turn

DEADLINE_S: Final = 30.0
E = TypeVar("E", bound=HarnessEvent)
T = TypeVar("T")


def instruction(plugin: str = "style", text: str = "Be brief.") -> Section:
    """The section of a plugin that speaks."""
    return section("plugin-instructions", text, attributes=(("plugin", plugin),), source=Source(plugin, "one"))


class Talk:
    """A session under test. `encode` is the harness's."""

    def __init__(
        self, session: HarnessSession, spec: SessionSpec, encode: Callable[[str], str] = lambda text: text
    ) -> None:
        self.session = session
        self.spec = spec
        self.events: list[HarnessEvent] = []
        self.sent: list[str] = []
        self.steered: list[str] = []
        self._encode = encode
        self._more = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.session.events():
            async with self._more:
                self.events.append(event)
                self._more.notify_all()

    def composed(self, message: str, steers: str | None = None, said: Sequence[Section] | None = None) -> Turn:
        """A turn as the host makes it, ending with what plugins say."""
        from buzz_host.turns.compose import compose

        spoken = (instruction(),) if said is None else tuple(said)
        snapshot = Snapshot(1, self.spec.agent, datetime.now(UTC), instructions=spoken)
        return compose(
            turn_id=str(uuid4()),
            kind="message" if steers is None else "steer",
            session=self.spec.session,
            snapshot=snapshot,
            message=message,
            steers=steers,
            encode=self._encode,
        )

    def raw(self, text: str) -> Turn:
        """A turn of exactly this text, without sections."""
        return attrs.evolve(self.composed("x"), message=text, text=self._encode(text))

    async def send(self, turn: Turn | str) -> str:
        """Start a turn; its id."""
        turn = self.composed(turn) if isinstance(turn, str) else turn
        self.sent.append(turn.id)
        await self.session.send(turn)
        return turn.id

    async def steer(self, message: Turn | str, into: str) -> str:
        """Hand over a message for the turn `into`; its id."""
        turn = self.composed(message, steers=into) if isinstance(message, str) else message
        self.steered.append(turn.id)
        await self.session.steer(turn)
        return turn.id

    async def until(self, kind: type[E], **fields: object) -> E:
        """The first event of this kind with these fields, from the beginning on."""

        def found() -> E | None:
            for event in self.events:
                if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items()):
                    return event
            return None

        try:
            async with asyncio.timeout(DEADLINE_S), self._more:
                while (event := found()) is None:
                    await self._more.wait()
                return event
        except TimeoutError:
            raise AssertionError(f"no {kind.__name__} with {fields} in {self.events}") from None

    async def until_text(self, turn: str, text: str) -> None:
        """Wait until this text was told of the turn's reply."""
        async with asyncio.timeout(DEADLINE_S), self._more:
            while text not in "".join(event.text for event in self.of(TextDelta) if event.turn == turn):
                await self._more.wait()

    async def ask(self, turn: Turn | str) -> TurnEnded:
        """A whole turn: how it ended."""
        return await self.until(TurnEnded, turn=await self.send(turn))

    async def until_ended(self, turn: str) -> TurnEnded:
        """How this turn ended, once it has."""
        return await self.until(TurnEnded, turn=turn)

    def of(self, kind: type[T], turn: str | None = None) -> list[T]:
        """The events of this kind so far; those of one turn, if it is named."""
        found: list[T] = [event for event in self.events if isinstance(event, kind)]
        return found if turn is None else [event for event in found if getattr(event, "turn", None) == turn]

    async def close(self, deadline_s: float = 10.0) -> None:
        """End the session, and judge its stream."""
        await self.session.close(deadline_s=deadline_s)
        await self.ended()

    async def ended(self) -> None:
        """Wait for the end of the stream, and judge it."""
        await asyncio.wait_for(self._reading, DEADLINE_S)
        check_laws(self.events, self.sent, self.steered)


def check_laws(events: Sequence[HarnessEvent], sent: Sequence[str], steered: Sequence[str]) -> None:
    """One `TurnEnded` for each `TurnStarted`, one `SteerSettled` for each steer, `SessionEnded` last (HAR-03)."""
    assert [type(event) for event in events].count(SessionEnded) == 1
    assert isinstance(events[-1], SessionEnded)
    started = [event.turn for event in events if isinstance(event, TurnStarted)]
    ended = [event.turn for event in events if isinstance(event, TurnEnded)]
    assert len(set(started)) == len(started)
    assert sorted(started) == sorted(ended)
    settled = [event.steer for event in events if isinstance(event, SteerSettled)]
    assert sorted(settled) == sorted(steered)
    own = [event.steer for event in events if isinstance(event, SteerSettled) and event.outcome == "own-turn"]
    assert sorted(started) == sorted([*sent, *own])
    open_turns: set[str] = set()
    said: dict[str, str] = {}
    # A stream that broke off has told a piece that is in no reply.
    retried = {event.turn for event in events if isinstance(event, Retrying)}
    for event in events:
        match event:
            case TurnStarted():
                open_turns.add(event.turn)
            case TurnEnded():
                open_turns.remove(event.turn)
                if event.status == "completed" and event.turn not in retried:
                    assert said.get(event.turn, "") == event.reply
            case TextDelta():
                assert event.turn in open_turns
                said[event.turn] = said.get(event.turn, "") + event.text
