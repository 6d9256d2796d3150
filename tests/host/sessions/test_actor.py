"""The actor of a session: one turn at a time, every turn ended once, no steered message lost, all of it on disk."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import attrs
import pytest

from buzz_author.events import (
    Compacted,
    SessionEnded,
    SteerSettled,
    TextDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from buzz_author.harness import Capabilities, HarnessError, Policy, SessionHost, SessionSpec
from buzz_author.sections import Source, section
from buzz_author.turns import Snapshot, Turn
from buzz_host.agents.handle import TurnAgent
from buzz_host.ledger import queries
from buzz_host.ledger.verify import verify
from buzz_host.processes import Children, ProgramHost
from buzz_host.sessions import events
from buzz_host.sessions.access import SessionAccess
from buzz_host.sessions.actor import INTERRUPT_DEADLINE_S, SessionActor
from buzz_host.sessions.commands import ComposedTurn, SessionClosed
from buzz_host.sessions.recording import LedgerRecorder
from buzz_host.sessions.roster import KnownSession, find, remember
from buzz_host.sessions.session import Session
from buzz_host.settings import Home
from buzz_host.store import Store
from buzz_host.turns.compose import compose
from tests.host.sessions.scripted import ScriptedHarness, ScriptedSession, begins

pytestmark = pytest.mark.anyio
DEADLINE_S = 20.0


@attrs.define
class Stage:
    """A session on a scripted harness, with a real store below it."""

    session: Session
    harness: ScriptedHarness
    store: Store
    actor: SessionActor
    snapshots: int = 0

    @property
    def program(self) -> ScriptedSession:
        return self.harness.sessions[-1]

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with self.store.read() as connection:
            return connection.execute(query).fetchall()

    def statuses(self) -> list[str]:
        return [str(row[0]) for row in self.rows("SELECT status FROM turns ORDER BY seq")]


@asynccontextmanager
async def staged(
    home: Path,
    harness: ScriptedHarness,
    *,
    resume: str | None = None,
    policy: Policy = "plugin-tools-only",
    answers: bool = True,
    deadline_s: float = DEADLINE_S,
    program: bool = False,
) -> AsyncIterator[Stage]:
    place = Home.resolve(home)
    with Store.open(place) as store:
        identifier = str(uuid4())
        handle = TurnAgent("main", "core", harness.id, None, home.parent, lambda: ())
        spec = SessionSpec(
            session=identifier,
            agent=handle,
            cwd=home.parent,
            config_dir=place.data / harness.id,
            system_prompt="You are a test.",
            resume=resume,
        )

        async def composed(*, turn_id: str, message: str, steers: str | None) -> ComposedTurn:
            stage.snapshots += 1
            said = section(
                "plugin-instructions",
                f"Set number {stage.snapshots}.",
                attributes=(("plugin", "counting"),),
                source=Source("counting", "number"),
            )
            snapshot = Snapshot(stage.snapshots, handle, datetime.now(UTC), instructions=(said,))
            kind = "message" if steers is None else "steer"
            turn = compose(
                turn_id=turn_id, kind=kind, session=identifier, snapshot=snapshot, message=message, steers=steers
            )
            return ComposedTurn(turn, datetime.now(UTC), (), lambda: None)

        def now() -> datetime:
            return datetime.now(UTC)

        access = SessionAccess(ProgramHost(Children(home / "run"), identifier), policy)
        actor = SessionActor(
            spec,
            harness=harness,
            access=access,
            compose=composed,
            record=LedgerRecorder(store, identifier, True, now),
            now=now,
            answers=answers,
            permission_deadline_s=deadline_s,
        )
        access.asker = actor.ask
        session = Session(identifier, "main", harness.id, actor, None)
        stage = Stage(session, harness, store, actor)
        await store.write(
            lambda tx: remember(tx, KnownSession(identifier, "main", harness.id, home.parent, None, now()))
        )
        actor.start(program=program)
        try:
            async with asyncio.timeout(DEADLINE_S):
                yield stage
        finally:
            await actor.close()
        with store.read() as connection:
            assert list(verify(connection)) == []


async def collected(stage: Stage, message: str = "Hello") -> list[events.Event]:
    async with stage.session.turn(message) as stream:
        return [event async for event in stream]


async def until(stream: AsyncIterator[events.Event], kind: type[events.Event]) -> events.Event:
    async for event in stream:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"the stream ended without {kind.__name__}")


def kinds(told: list[events.Event]) -> list[str]:
    return [event.event for event in told]


@pytest.mark.req("API-02", "AUD-01")
async def test_a_turn_is_recorded_before_it_is_sent_and_ended_before_it_is_told(home: Path) -> None:
    seen: list[list[tuple[object, ...]]] = []

    def looks(session: ScriptedSession, turn: Turn) -> None:
        seen.append(stage.rows("SELECT kind, turn FROM entries"))
        session.say(TurnStarted(turn.id), TextDelta(turn.id, "do"), TurnEnded(turn.id, "completed", reply="done"))

    async with staged(home, ScriptedHarness(on_send=looks)) as stage:
        told = await collected(stage)
        assert kinds(told) == ["turn_started", "text_delta", "turn_completed"]
        assert seen == [[("turn_sent", told[0].turn)]]
        assert stage.statuses() == ["completed"]
        assert isinstance(told[0], events.TurnStarted)
        assert told[0].text == stage.program.sent[0].text


@pytest.mark.req("TRN-03")
async def test_a_harness_that_carries_no_sections_is_sent_and_told_and_recorded_as_the_bare_message(home: Path) -> None:
    async with staged(home, ScriptedHarness(capabilities=Capabilities(carries_sections=False))) as stage:
        stage.actor._record = attrs.evolve(stage.actor._record, carries_sections=False)
        told = await collected(stage, "Hello")
        assert isinstance(told[0], events.TurnStarted)
        assert told[0].text == "Hello"
        with stage.store.read() as connection:
            (row,) = queries.turns(connection)
            view = queries.turn(connection, row.turn)
        assert view.text == "Hello"
        assert not view.carries_sections
        assert datetime.fromisoformat(row.at) == told[0].at


@pytest.mark.req("HAR-01")
async def test_turns_that_are_asked_for_at_once_run_one_after_the_other(home: Path) -> None:
    async with staged(home, ScriptedHarness()) as stage:
        told = await asyncio.gather(*(collected(stage, f"message {number}") for number in range(5)))
        assert [kinds(each) for each in told] == [["turn_started", "turn_completed"]] * 5
        assert [turn.message for turn in stage.program.sent] == [f"message {number}" for number in range(5)]
        assert len({turn.id for turn in stage.program.sent}) == 5


@pytest.mark.req("TRN-04", "TRN-06")
async def test_a_folded_steer_has_a_snapshot_of_its_own(home: Path) -> None:
    async with staged(home, ScriptedHarness(on_send=begins)) as stage:
        async with stage.session.turn("Begin") as stream:
            await until(stream, events.TurnStarted)
            steer = await stage.session.steer("And this")
            (folded,) = stage.program.steered
            assert (folded.id, folded.kind, folded.steers) == (steer, "steer", stage.program.sent[0].id)
            assert folded.text.startswith("<new-message-arrived-while-you-were-working>\nAnd this\n")
            assert "Set number 2." in folded.text
            assert "Set number 1." in stage.program.sent[0].text
            stage.program.say(SteerSettled(folded.steers, steer, "folded"))
            settled = await until(stream, events.SteerSettled)
            assert isinstance(settled, events.SteerSettled)
            assert settled.outcome == "folded"
            stage.program.say(TurnEnded(folded.steers, "completed"))
            assert kinds([event async for event in stream]) == ["turn_completed"]
        assert stage.statuses() == ["completed", "folded"]


@pytest.mark.req("TRN-04")
async def test_a_session_with_an_unsettled_steer_is_not_idle(home: Path) -> None:
    async with staged(home, ScriptedHarness(on_send=begins)) as stage:
        async with stage.session.turn("Begin") as stream:
            started = await until(stream, events.TurnStarted)
            steer = await stage.session.steer("Late")
            assert started.turn is not None
            stage.program.say(TurnEnded(started.turn, "completed"))
            await until(stream, events.TurnCompleted)
            assert not stream.ended
            stage.program.say(
                SteerSettled(steer, steer, "own-turn"), TurnStarted(steer), TurnEnded(steer, "completed", reply="late")
            )
            assert kinds([event async for event in stream]) == ["steer_settled", "turn_completed"]
        assert stage.statuses() == ["completed", "completed"]


@pytest.mark.req("TRN-04", "HAR-01")
async def test_a_steer_that_comes_back_unread_is_the_next_turn_under_a_new_id(home: Path) -> None:
    harness = ScriptedHarness(on_send=begins)
    async with staged(home, harness) as stage:
        async with stage.session.turn("Begin") as stream:
            started = await until(stream, events.TurnStarted)
            steer = await stage.session.steer("Do not lose me")
            assert started.turn is not None
            stage.program.say(SteerSettled(started.turn, steer, "returned"), TurnEnded(started.turn, "completed"))
            await until(stream, events.TurnCompleted)
            again = await until(stream, events.TurnStarted)
            assert again.turn not in (steer, started.turn)
            stage.program.say(TurnEnded(str(again.turn), "completed"))
            await until(stream, events.TurnCompleted)
        assert [turn.message for turn in stage.program.sent] == ["Begin", "Do not lose me"]
        assert stage.statuses() == ["completed", "returned", "completed"]


@pytest.mark.req("HAR-01", "OPS-03")
async def test_a_program_that_dies_ends_its_turn_once_and_gives_back_its_steers(home: Path) -> None:
    died = HarnessError("process-died", "exit -9")
    async with staged(home, ScriptedHarness(on_send=begins)) as stage:
        async with stage.session.turn("Begin") as stream:
            await until(stream, events.TurnStarted)
            await stage.session.steer("Do not lose me")
            # It breaks its word: neither the turn nor the steer is closed by the harness.
            stage.program.say(SessionEnded(died))
            failed = await until(stream, events.TurnCompleted)
            assert isinstance(failed, events.TurnCompleted)
            assert failed.error is died
            await until(stream, events.SessionEnded)
            again = await until(stream, events.TurnStarted)
            assert len(stage.harness.sessions) == 2
            assert stage.program.spec.resume == "native-0"
            assert [turn.message for turn in stage.program.sent] == ["Do not lose me"]
            stage.program.say(TurnEnded(str(again.turn), "completed"))
        assert stage.statuses() == ["failed", "returned", "completed"]


@pytest.mark.req("HAR-01")
async def test_a_stream_that_breaks_off_counts_as_the_death_of_the_program(home: Path) -> None:
    async with staged(home, ScriptedHarness(on_send=begins)) as stage:
        async with stage.session.turn("Begin") as stream:
            await until(stream, events.TurnStarted)
            stage.program.say(None)
            failed = await until(stream, events.TurnCompleted)
            assert isinstance(failed, events.TurnCompleted)
            assert failed.error is not None
            assert failed.error.kind == "process-died"
        assert stage.statuses() == ["failed"]


@pytest.mark.req("HAR-01")
async def test_a_harness_that_cannot_steer_gets_the_message_as_the_next_turn(home: Path) -> None:
    async with staged(home, ScriptedHarness(on_send=begins, capabilities=Capabilities(steer="none"))) as stage:
        async with stage.session.turn("Begin") as stream:
            started = await until(stream, events.TurnStarted)
            steer = await stage.session.steer("Next")
            stage.harness.on_send = lambda session, turn: session.say(TurnEnded(turn.id, "completed"))
            stage.program.say(TurnEnded(str(started.turn), "completed"))
            rest = [event async for event in stream]
        assert kinds(rest) == ["turn_completed", "turn_started", "turn_completed"]
        assert rest[1].turn == steer


@pytest.mark.req("HAR-01")
async def test_a_steer_between_turns_becomes_the_next_one(home: Path) -> None:
    async with staged(home, ScriptedHarness()) as stage:
        await collected(stage)
        steer = await stage.session.steer("While idle")
        await collected(stage, "After")
        assert [turn.message for turn in stage.program.sent] == ["Hello", "While idle", "After"]
        assert stage.program.sent[1].id == steer
        assert stage.program.sent[1].kind == "message"


@pytest.mark.req("HAR-01")
async def test_interrupt_reaches_the_program_and_the_next_turn_works(home: Path) -> None:
    async with staged(home, ScriptedHarness(on_send=begins)) as stage:
        await stage.session.interrupt()
        async with stage.session.turn("Begin") as stream:
            await until(stream, events.TurnStarted)
            await stage.session.interrupt()
            ended = await until(stream, events.TurnCompleted)
            assert isinstance(ended, events.TurnCompleted)
            assert ended.status == "interrupted"
        stage.harness.on_send = lambda session, turn: session.say(TurnEnded(turn.id, "completed"))
        await collected(stage)
        assert stage.statuses() == ["interrupted", "completed"]


async def never() -> None:
    await asyncio.Event().wait()


class HungSession(ScriptedSession):
    """Its program was stopped by somebody: it answers nothing, and takes nothing once its input is full."""

    reads = True

    async def send(self, turn: Turn) -> None:
        await super().send(turn)
        if not self.reads:
            await never()

    async def interrupt(self) -> None:
        await super().interrupt()
        await never()


class DeafSession(HungSession):
    reads = False


class FullSession(HungSession):
    """It took the turn, and reads nothing after it."""

    async def steer(self, turn: Turn) -> None:
        await super().steer(turn)
        await never()


class HungHarness(ScriptedHarness):
    """Opens sessions of the kind that it is given; None: opening one never ends."""

    def __init__(self, kind: type[ScriptedSession] | None) -> None:
        super().__init__(on_send=begins)
        self.kind = kind

    async def open(self, spec: SessionSpec, host: SessionHost) -> ScriptedSession:
        if self.kind is None:
            await never()
        assert self.kind is not None
        session = self.kind(self, spec)
        self.sessions.append(session)
        return session


@pytest.mark.req("TRN-04", "OPS-03")
@pytest.mark.parametrize(
    ("kind", "most_s"), [(HungSession, INTERRUPT_DEADLINE_S + 2), (DeafSession, INTERRUPT_DEADLINE_S + 2), (None, 2)]
)
async def test_a_program_that_hangs_is_ended_when_it_was_interrupted_and_the_next_turn_works(
    home: Path, kind: type[ScriptedSession] | None, most_s: float
) -> None:
    harness = HungHarness(kind)
    async with staged(home, harness) as stage:
        async with stage.session.turn("Begin") as stream:
            if kind is not None:
                await until(stream, events.TurnStarted)
            begun = time.monotonic()
            await stage.session.interrupt()
            ended = await until(stream, events.TurnCompleted)
            assert isinstance(ended, events.TurnCompleted)
            assert (ended.status, ended.error) == ("interrupted", None)
            assert time.monotonic() - begun < most_s
        harness.kind = ScriptedSession
        harness.on_send = lambda session, turn: session.say(TurnEnded(turn.id, "completed"))
        await collected(stage)
        assert stage.statuses() == ["interrupted", "completed"]
        assert [turn.message for turn in stage.program.sent][-1:] != ["Begin"]


@pytest.mark.req("TRN-04", "OPS-03")
@pytest.mark.parametrize("kind", [HungSession, DeafSession, None])
async def test_whoever_interrupts_and_then_leaves_waits_for_no_program(
    home: Path, kind: type[ScriptedSession] | None
) -> None:
    async with staged(home, HungHarness(kind)) as stage:
        async with stage.session.turn("Begin") as stream:
            if kind is not None:
                await until(stream, events.TurnStarted)
            interrupting = asyncio.create_task(stage.session.interrupt())
            await asyncio.sleep(0)
            begun = time.monotonic()
        assert time.monotonic() - begun < 2
        await interrupting
        told = [event async for event in stream]
        assert [event.status for event in told if isinstance(event, events.TurnCompleted)] == ["interrupted"]
        assert stage.statuses() == ["interrupted"]


@pytest.mark.req("TRN-04", "OPS-03")
async def test_a_steer_that_is_not_taken_holds_nobody_who_leaves(home: Path) -> None:
    async with staged(home, HungHarness(FullSession)) as stage:
        async with stage.session.turn("Begin") as stream:
            await until(stream, events.TurnStarted)
            steer = await stage.session.steer("And this")
            await until(stream, events.TurnStarted)
            interrupting = asyncio.create_task(stage.session.interrupt())
            await asyncio.sleep(0)
            begun = time.monotonic()
        assert time.monotonic() - begun < 2
        await interrupting
        told = [event async for event in stream]
        assert [event.status for event in told if isinstance(event, events.TurnCompleted)] == ["interrupted"]
        assert [(event.steer, event.outcome) for event in told if isinstance(event, events.SteerSettled)] == [
            (steer, "returned")
        ]


@pytest.mark.req("API-02")
async def test_leaving_the_stream_early_interrupts_the_turn(home: Path) -> None:
    async with staged(home, ScriptedHarness(on_send=begins)) as stage:
        async with stage.session.turn("Begin") as stream:
            await until(stream, events.TurnStarted)
        assert stage.program.interrupts == 1
        assert stage.statuses() == ["interrupted"]


@pytest.mark.req("API-02")
async def test_leaving_the_stream_of_a_turn_that_waits_takes_it_back(home: Path) -> None:
    async with staged(home, ScriptedHarness(on_send=begins)) as stage:
        async with stage.session.turn("Begin") as first:
            await until(first, events.TurnStarted)
            async with stage.session.turn("Never mind"):
                pass
            await stage.session.interrupt()
        assert [turn.message for turn in stage.program.sent] == ["Begin"]


@pytest.mark.req("HAR-01", "AUD-01")
async def test_a_program_that_cannot_start_is_a_failed_turn_on_record(home: Path) -> None:
    harness = ScriptedHarness(refuses=HarnessError("process-died", "exit 1: no such option"))
    async with staged(home, harness) as stage:
        told = await collected(stage)
        assert kinds(told) == ["turn_started", "turn_completed"]
        assert isinstance(told[1], events.TurnCompleted)
        assert told[1].status == "failed"
        harness.refuses = None
        assert kinds(await collected(stage)) == ["turn_started", "turn_completed"]
        assert stage.statuses() == ["failed", "completed"]


@pytest.mark.req("OPS-03")
async def test_closing_in_the_middle_of_a_turn_records_its_end(home: Path) -> None:
    async with staged(home, ScriptedHarness(on_send=begins)) as stage:
        async with stage.session.turn("Begin") as stream:
            await until(stream, events.TurnStarted)
            await stage.actor.close()
            assert kinds([event async for event in stream])[:1] == ["turn_completed"]
        assert stage.program.closed
        assert stage.statuses() == ["failed"]
        with pytest.raises(SessionClosed):
            await stage.session.steer("Too late")


@pytest.mark.req("AUD-01", "TRN-07")
async def test_tools_and_compactions_are_on_record(home: Path) -> None:
    def works(session: ScriptedSession, turn: Turn) -> None:
        session.say(ToolCalled(turn.id, "call-1", "Skill", {"skill": "x"}), ToolReturned(turn.id, "call-1", False, "y"))
        session.say(Compacted(None), TurnEnded(turn.id, "completed"))

    async with staged(home, ScriptedHarness(on_send=works)) as stage:
        assert kinds(await collected(stage)) == [
            "turn_started",
            "tool_call",
            "tool_result",
            "compacted",
            "turn_completed",
        ]
        assert stage.rows("SELECT kind FROM entries ORDER BY seq") == [
            ("turn_sent",),
            ("tool",),
            ("compacted",),
            ("turn_ended",),
        ]


@pytest.mark.req("AUD-03", "OPS-03")
async def test_a_turn_that_cannot_be_recorded_is_not_sent(home: Path) -> None:
    async with staged(home, ScriptedHarness()) as stage:
        await collected(stage)
        refuse = "CREATE TRIGGER full BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'no room'); END"
        changed(home, refuse)
        with pytest.raises(Exception, match="no room"):
            await collected(stage)
        assert len(stage.harness.sessions[0].sent) == 1
        changed(home, "DROP TRIGGER full")
        assert kinds(await collected(stage)) == ["turn_started", "turn_completed"]
        assert stage.statuses() == ["completed", "completed"]


def changed(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(Home.resolve(home).database)) as other, other:
        other.execute(statement)


@pytest.mark.req("HAR-01")
async def test_the_native_id_is_kept_once_a_turn_has_begun(home: Path) -> None:
    async with staged(home, ScriptedHarness(on_send=begins)) as stage:
        async with stage.session.turn("Begin") as stream:
            await until(stream, events.TurnStarted)
            stage.program.say(TurnEnded(stage.program.sent[0].id, "completed"))
            assert [event.event async for event in stream] == ["turn_completed"]
        with stage.store.read() as connection:
            assert find(connection, stage.session.id).native_id == "native-0"
            assert find(connection, stage.session.id[:8]).id == stage.session.id


@pytest.mark.req("API-02")
@pytest.mark.parametrize("message", ["", "  \n\t"])
async def test_an_empty_message_is_refused(home: Path, message: str) -> None:
    async with staged(home, ScriptedHarness()) as stage:
        with pytest.raises(Exception, match="the message is empty"):
            await collected(stage, message)


@pytest.mark.req("HAR-02", "PLG-02", "AUD-01")
@pytest.mark.parametrize("call", ["open", "send", "events"])
async def test_a_mistake_in_a_harness_is_a_failed_turn_that_names_it(home: Path, call: str) -> None:
    class Broken(ScriptedSession):
        pass

    def mistaken(*_: object, **__: object) -> None:
        raise KeyError("oops")

    class BrokenHarness(ScriptedHarness):
        async def open(self, spec: SessionSpec, host: SessionHost) -> ScriptedSession:
            if call == "open":
                mistaken()
            session = Broken(self, spec)
            self.sessions.append(session)
            return session

    if call != "open":
        setattr(Broken, call, mistaken)
    async with staged(home, BrokenHarness()) as stage:
        told = await collected(stage)
        ended = [event for event in told if isinstance(event, events.TurnCompleted)]
        assert [event.status for event in ended] == ["failed"]
        assert ended[0].error is not None
        assert ended[0].error.kind == "unknown"
        assert f"the harness 'scripted' failed in {call}: KeyError: 'oops' (test_actor.py:" in ended[0].error.native
        assert stage.statuses() == ["failed"]


@pytest.mark.req("HAR-02", "TRN-04")
async def test_a_mistake_in_steering_loses_no_message(home: Path) -> None:
    def mistaken(session: ScriptedSession, turn: Turn) -> None:
        raise TypeError("no")

    async with staged(home, ScriptedHarness(on_send=begins, on_steer=mistaken)) as stage:
        async with stage.session.turn("Begin") as stream:
            started = await until(stream, events.TurnStarted)
            await stage.session.steer("Do not lose me")
            stage.program.say(TurnEnded(str(started.turn), "completed"))
            again = [event async for event in until_started(stream, stage)]
        assert [turn.message for turn in stage.program.sent] == ["Begin", "Do not lose me"]
        assert kinds(again)[-1] == "turn_completed"


async def until_started(stream: AsyncIterator[events.Event], stage: Stage) -> AsyncIterator[events.Event]:
    """The rest of the stream; the message that came back is answered when it is sent."""
    stage.harness.on_send = lambda session, turn: session.say(TurnEnded(turn.id, "completed"))
    async for event in stream:
        yield event
