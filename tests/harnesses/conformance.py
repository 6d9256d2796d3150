"""What every harness is put through: a stage with a real program, a recorded model, and the laws of the event stream.

A harness takes part by a `Kind` in `KINDS`; the suite itself names no program.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import attrs
import pytest

from buzz_author.events import HarnessEvent, Retrying, SessionEnded, SteerSettled, TextDelta, TurnEnded, TurnStarted
from buzz_author.harness import Harness, HarnessSession, SessionSpec
from buzz_author.sections import Source, section
from buzz_author.turns import Snapshot, Turn
from buzz_host.agents.handle import TurnAgent
from buzz_host.processes import Children, ProgramHost
from buzz_host.processes import launcher as keeper
from buzz_host.rehearsal import RecordedRequest, Rehearsal
from buzz_host.sessions.access import SessionAccess
from buzz_host.turns.compose import compose

DEADLINE_S = 30.0
SYSTEM_PROMPT = "You are an agent of a test, and this line is how it is known."
E = TypeVar("E", bound=HarnessEvent)


@attrs.frozen
class Kind:
    """A harness in the suite. `make` takes what a test wants to fix (`new_id`), `lower_line_bound` makes it refuse
    lines of a length that a test can produce."""

    id: str
    make: Callable[..., Harness]
    native_model: str
    lower_line_bound: Callable[[pytest.MonkeyPatch, int], None]


def _claude(**fixed: object) -> Harness:
    from harnesses.claude import ClaudeHarness

    return ClaudeHarness(**fixed)  # type: ignore[arg-type]


def _lower_bound_of_claude(patched: pytest.MonkeyPatch, octets: int) -> None:
    patched.setattr("harnesses.claude.session.LINE_MAX_BYTES", octets)


CLAUDE = Kind("claude", _claude, "claude-sonnet-4-5", _lower_bound_of_claude)
KINDS = [pytest.param(CLAUDE, id="claude", marks=pytest.mark.claude)]


class Talk:
    """One session of a harness: hands over turns, keeps every event, and judges the stream at its end."""

    def __init__(self, session: HarnessSession, spec: SessionSpec) -> None:
        self.session = session
        self.spec = spec
        self.events: list[HarnessEvent] = []
        self.sent: list[str] = []
        self.steered: list[str] = []
        self._more = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.session.events():
            async with self._more:
                self.events.append(event)
                self._more.notify_all()

    def composed(self, message: str, steers: str | None = None) -> Turn:
        """A turn as the host makes it, ending with a plugin's instructions."""
        said = section(
            "plugin-instructions",
            "Be brief.",
            attributes=(("plugin", "style"),),
            source=Source("style", "brief"),
        )
        snapshot = Snapshot(1, self.spec.agent, datetime.now(UTC), instructions=(said,))
        kind = "message" if steers is None else "steer"
        return compose(
            turn_id=str(uuid4()),
            kind=kind,
            session=self.spec.session,
            snapshot=snapshot,
            message=message,
            steers=steers,
        )

    async def send(self, turn: Turn | str) -> str:
        turn = self.composed(turn) if isinstance(turn, str) else turn
        self.sent.append(turn.id)
        await self.session.send(turn)
        return turn.id

    async def steer(self, message: str, into: str) -> str:
        turn = self.composed(message, steers=into)
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
        return await self.until(TurnEnded, turn=await self.send(turn))

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def close(self, deadline_s: float = 10.0) -> None:
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


def spec_for(kind: Kind, folder: Path, model_url: str) -> SessionSpec:
    """A session of a fresh id in `folder`."""
    work = folder / "work"
    return SessionSpec(
        session=str(uuid4()),
        agent=TurnAgent("main", "core", kind.id, None, work, lambda: ()),
        cwd=work,
        config_dir=folder / "data" / kind.id,
        system_prompt=SYSTEM_PROMPT,
        model_url=model_url,
    )


class Stage:
    """A kind of harness, its children, and the model that records what it is sent."""

    def __init__(self, kind: Kind, rehearsal: Rehearsal, folder: Path) -> None:
        self.kind = kind
        self.rehearsal = rehearsal
        self.folder = folder
        self.children = Children(folder / "run")
        self._before = len(rehearsal.requests())
        self._talks: list[Talk] = []
        self.config_dir = spec_for(kind, folder, rehearsal.url).config_dir
        (folder / "work").mkdir()

    async def open(self, *, fixed: dict[str, object] | None = None, **fields: object) -> Talk:
        """Start a session; raises `HarnessError` as the harness does."""
        spec = attrs.evolve(spec_for(self.kind, self.folder, self.rehearsal.url), **fields)  # type: ignore[arg-type]
        access = SessionAccess(ProgramHost(self.children, spec.session), "plugin-tools-only")
        talk = Talk(await self.kind.make(**(fixed or {})).open(spec, access), spec)
        self._talks.append(talk)
        return talk

    def requests(self) -> list[RecordedRequest]:
        """What the model was asked for on this stage."""
        return self.rehearsal.requests()[self._before :]

    def programs(self, talk: Talk) -> list[int]:
        """The programs of a session, without their keepers."""
        return [
            pid
            for pid, marked in keeper.environments(keeper.table()).items()
            if marked.get("BUZZ_SESSION") == talk.spec.session and "BUZZ_KEEPER" not in marked
        ]

    async def close(self) -> None:
        for talk in self._talks:
            await talk.close()
        assert await self.children.close() == ()
        marked = keeper.environments(keeper.table()).values()
        assert not [each for each in marked if each.get("BUZZ_HOST") == self.children.marker]
        assert not list(self.config_dir.glob("buzz/*")), "files of ours were left behind"


@asynccontextmanager
async def staged(kind: Kind, rehearsal: Rehearsal, folder: Path) -> AsyncIterator[Stage]:
    stage = Stage(kind, rehearsal, folder)
    try:
        yield stage
    finally:
        await stage.close()


def end_of_newest_user_message(request: RecordedRequest) -> str:
    """The last text of the newest message with the role `user`, exactly as recorded."""
    assert isinstance(request.body, dict)
    newest = [message for message in request.body["messages"] if message["role"] == "user"][-1]
    content = newest["content"]
    if isinstance(content, str):
        return content
    assert content[-1]["type"] == "text"
    return str(content[-1]["text"])
