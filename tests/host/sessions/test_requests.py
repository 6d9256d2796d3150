"""What a session asks a person: one event for it, one for how it was settled, and never without an answer (PRM-01)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from buzz_author.errors import BuzzError
from buzz_author.events import (
    HarnessEvent,
    PermissionRequested,
    QuestionAsked,
    SessionEnded,
    SteerSettled,
    ToolCalled,
    TurnEnded,
    TurnStarted,
)
from buzz_author.harness import HarnessError, Policy
from buzz_author.tools import GateDecision, ToolRequest
from buzz_author.turns import Turn
from buzz_host.sessions import events
from buzz_host.sessions.requests import NotAsked
from tests.host.sessions.scripted import ScriptedHarness, ScriptedSession, begins
from tests.host.sessions.test_actor import DEADLINE_S, Stage, collected, kinds, staged, until

pytestmark = pytest.mark.anyio
REQUEST = ("request-1", "Bash", {"command": "ls"})


def asks(*more: HarnessEvent) -> Callable[[ScriptedSession, Turn], None]:
    """A program that asks for leave to use its own tool, and says `more` behind it."""

    def on_send(session: ScriptedSession, turn: Turn) -> None:
        session.say(TurnStarted(turn.id), PermissionRequested(turn.id, *REQUEST), *more)

    return on_send


def settled(told: list[events.Event]) -> list[tuple[str, str, str]]:
    """Each settled request with its decision and who made it."""
    return [(each.request, each.decision, each.by) for each in told if isinstance(each, events.PermissionSettled)]


def ends(stage: Stage) -> None:
    stage.program.say(TurnEnded(stage.program.sent[-1].id, "completed"))


async def rest(stream: AsyncIterator[events.Event]) -> list[events.Event]:
    return [each async for each in stream]


@pytest.mark.req("PRM-01")
@pytest.mark.parametrize(
    ("policy", "decision"), [("plugin-tools-only", "deny"), ("read-only", "deny"), ("all", "allow")]
)
async def test_what_the_policy_decides_is_answered_at_once(home: Path, policy: Policy, decision: str) -> None:
    def on_send(session: ScriptedSession, turn: Turn) -> None:
        session.say(PermissionRequested(turn.id, *REQUEST), TurnEnded(turn.id, "completed"))

    async with staged(home, ScriptedHarness(on_send=on_send), policy=policy) as stage:
        told = await collected(stage)
        assert kinds(told) == ["turn_started", "permission_requested", "permission_settled", "turn_completed"]
        assert settled(told) == [("request-1", decision, "policy")]
        assert stage.program.answered == [("request-1", decision)]


@pytest.mark.req("PRM-01")
@pytest.mark.parametrize("decision", ["allow", "deny"])
async def test_a_person_answers(home: Path, decision: events.Decision) -> None:
    harness = ScriptedHarness(on_send=asks())
    async with staged(home, harness, policy="ask") as stage, stage.session.turn("Hello") as stream:
        asked = await until(stream, events.PermissionRequested)
        assert isinstance(asked, events.PermissionRequested)
        assert (asked.tool, asked.plugin, asked.arguments) == ("Bash", None, {"command": "ls"})
        await stage.session.answer(asked.request, decision, reason="because")
        assert stage.program.answered == [("request-1", decision)]
        assert stage.program.replies == [("because", None)]
        ends(stage)
        assert settled(await rest(stream)) == [("request-1", decision, "person")]


@pytest.mark.req("PRM-01")
async def test_a_late_answer_and_one_to_nothing_are_refused_in_one_line(home: Path) -> None:
    harness = ScriptedHarness(on_send=asks())
    async with staged(home, harness, policy="ask") as stage, stage.session.turn("Hello") as stream:
        await until(stream, events.PermissionRequested)
        await stage.session.answer("request-1", "deny")
        with pytest.raises(NotAsked, match=r"settled already \(person\): the answer came too late"):
            await stage.session.answer("request-1", "allow")
        with pytest.raises(NotAsked, match="nothing is asked under the id 'request-9'"):
            await stage.session.answer("request-9", "allow")
        assert stage.program.answered == [("request-1", "deny")]
        ends(stage)


@pytest.mark.req("PRM-01")
async def test_a_request_that_the_program_withdrew_is_settled_so(home: Path) -> None:
    harness = ScriptedHarness(on_send=asks(), withdrawn={"request-1"})
    async with staged(home, harness, policy="ask") as stage, stage.session.turn("Hello") as stream:
        await until(stream, events.PermissionRequested)
        with pytest.raises(NotAsked, match="the program did not wait for the request 'request-1' any more"):
            await stage.session.answer("request-1", "allow")
        ends(stage)
        assert settled(await rest(stream)) == [("request-1", "deny", "withdrawn")]


@pytest.mark.req("PRM-01")
async def test_without_an_answer_it_is_denied_after_the_deadline(home: Path) -> None:
    harness = ScriptedHarness(on_send=asks())
    async with staged(home, harness, policy="ask", deadline_s=0.05) as stage, stage.session.turn("Hello") as stream:
        answer = await until(stream, events.PermissionSettled)
        assert isinstance(answer, events.PermissionSettled)
        assert (answer.decision, answer.by) == ("deny", "deadline")
        assert answer.reason == "nobody answered within 0.05 s"
        ends(stage)
        await rest(stream)
        assert stage.program.answered == [("request-1", "deny")]


@pytest.mark.req("PRM-01")
async def test_where_nobody_can_answer_it_is_denied_at_once(home: Path) -> None:
    def on_send(session: ScriptedSession, turn: Turn) -> None:
        session.say(QuestionAsked(turn.id, "question-1", ({"question": "Which?"},)))
        session.say(PermissionRequested(turn.id, *REQUEST), TurnEnded(turn.id, "completed"))

    async with staged(home, ScriptedHarness(on_send=on_send), policy="ask", answers=False) as stage:
        told = await collected(stage)
        assert settled(told) == [("question-1", "deny", "nobody"), ("request-1", "deny", "nobody")]
        assert stage.program.answered == [("question-1", "deny"), ("request-1", "deny")]


@pytest.mark.req("PRM-01")
async def test_a_question_gets_a_persons_reply(home: Path) -> None:
    def on_send(session: ScriptedSession, turn: Turn) -> None:
        session.say(TurnStarted(turn.id), QuestionAsked(turn.id, "question-1", ({"question": "Which?"},)))

    async with staged(home, ScriptedHarness(on_send=on_send)) as stage, stage.session.turn("Hello") as stream:
        asked = await until(stream, events.QuestionAsked)
        assert isinstance(asked, events.QuestionAsked)
        with pytest.raises(BuzzError, match="is a question: give a reply, or deny it"):
            await stage.session.answer(asked.request, "allow")
        await stage.session.answer(asked.request, "allow", reply="The blue one.")
        assert stage.program.replies == [("a person allowed it", "The blue one.")]
        ends(stage)
        assert settled(await rest(stream)) == [("question-1", "allow", "person")]


@pytest.mark.req("PRM-01")
async def test_several_are_open_at_once_and_answered_in_any_order(home: Path) -> None:
    def on_send(session: ScriptedSession, turn: Turn) -> None:
        session.say(TurnStarted(turn.id))
        session.say(*(PermissionRequested(turn.id, f"request-{n}", "Bash", {"n": n}) for n in range(3)))

    harness = ScriptedHarness(on_send=on_send)
    async with staged(home, harness, policy="ask") as stage, stage.session.turn("Hello") as stream:
        for _ in range(3):
            await until(stream, events.PermissionRequested)
        for n, decision in ((2, "deny"), (0, "allow"), (1, "allow")):
            await stage.session.answer(f"request-{n}", "allow" if decision == "allow" else "deny")
        ends(stage)
        await rest(stream)
        assert stage.program.answered == [("request-2", "deny"), ("request-0", "allow"), ("request-1", "allow")]


@pytest.mark.req("PRM-01", "TRN-04")
async def test_a_message_is_steered_and_the_turn_interrupted_while_a_request_is_open(home: Path) -> None:
    def folds(session: ScriptedSession, turn: Turn) -> None:
        session.say(SteerSettled(turn.steers or "", turn.id, "folded"))

    def stops(session: ScriptedSession, turn: Turn) -> None:
        session.say(TurnEnded(session.sent[-1].id, "interrupted"))

    harness = ScriptedHarness(on_send=asks(), on_steer=folds, on_interrupt=stops)
    async with staged(home, harness, policy="ask") as stage, stage.session.turn("Hello") as stream:
        await until(stream, events.PermissionRequested)
        await stage.session.steer("And this")
        await until(stream, events.SteerSettled)
        await stage.session.interrupt()
        told = await rest(stream)
        assert settled(told) == [("request-1", "deny", "interrupt")]
        assert kinds(told)[-1] == "turn_completed"
        assert stage.statuses() == ["interrupted", "folded"]


@pytest.mark.req("PRM-01", "HAR-03")
async def test_a_program_that_dies_takes_its_requests_along(home: Path) -> None:
    dead = SessionEnded(HarnessError("process-died", "gone"))
    async with staged(home, ScriptedHarness(on_send=asks(dead)), policy="ask") as stage:
        told = await collected(stage)
        assert settled(told) == [("request-1", "deny", "withdrawn")]
        assert kinds(told)[-2:] == ["turn_completed", "session_ended"]
        assert stage.program.answered == []


@pytest.mark.req("PRM-01")
async def test_a_turn_that_ends_takes_its_requests_along(home: Path) -> None:
    def on_send(session: ScriptedSession, turn: Turn) -> None:
        session.say(TurnStarted(turn.id), PermissionRequested(turn.id, *REQUEST), TurnEnded(turn.id, "completed"))

    async with staged(home, ScriptedHarness(on_send=on_send), policy="ask") as stage:
        told = await collected(stage)
        assert settled(told) == [("request-1", "deny", "withdrawn")]
        # The next turn may ask under the same id, and is known by another.
        assert [each.request for each in await collected(stage) if isinstance(each, events.PermissionRequested)] == [
            "request-1-2"
        ]


@pytest.mark.req("PRM-01")
async def test_closing_settles_what_is_open(home: Path) -> None:
    harness = ScriptedHarness(on_send=asks())
    async with staged(home, harness, policy="ask") as stage, stage.session.turn("Hello") as stream:
        await until(stream, events.PermissionRequested)
        await stage.actor.close(1.0)
        assert settled(await rest(stream)) == [("request-1", "deny", "withdrawn")]
        with pytest.raises(NotAsked):
            await stage.session.answer("request-1", "allow")


async def calls(stage: Stage, call: str = "call-1") -> GateDecision:
    """What the host says to the call of a tool, asked as a harness asks it."""
    return await stage.harness.hosts[-1].gate(ToolRequest(call, "mcp__notes__remember", {"text": "x"}, read_only=False))


@pytest.mark.req("PRM-01", "AGP-05")
async def test_a_call_that_waits_in_the_host_is_the_same_event(home: Path) -> None:
    harness = ScriptedHarness(on_send=begins)
    async with staged(home, harness, policy="ask") as stage, stage.session.turn("Hello") as stream:
        await until(stream, events.TurnStarted)
        stage.program.say(ToolCalled(stage.program.sent[-1].id, "call-1", "mcp__notes__remember", {"text": "x"}))
        waiting = asyncio.ensure_future(calls(stage))
        await until(stream, events.ToolCall)
        asked = await until(stream, events.PermissionRequested)
        assert isinstance(asked, events.PermissionRequested)
        assert (asked.tool, asked.arguments, asked.read_only) == ("mcp__notes__remember", {"text": "x"}, False)
        await stage.session.answer(asked.request, "allow")
        assert (await waiting).verdict == "allow"
        ends(stage)
        assert settled(await rest(stream)) == [("call-1", "allow", "person")]


@pytest.mark.req("PRM-01")
async def test_a_call_is_asked_for_while_the_program_takes_nothing_else(home: Path) -> None:
    """A harness may hand over a turn, and answer only once its tool has: the person is asked all the same."""
    harness = ScriptedHarness(on_send=begins)
    async with staged(home, harness, policy="ask", program=True) as stage:

        async def busy(turn: Turn) -> None:
            assert (await calls(stage)).verdict == "allow"
            stage.program.say(TurnStarted(turn.id), TurnEnded(turn.id, "completed", reply="done"))

        await asyncio.wait_for(harness.opened.wait(), DEADLINE_S)
        stage.program.send = busy  # type: ignore[method-assign]
        async with stage.session.turn("Hello") as stream:
            asked = await until(stream, events.PermissionRequested)
            assert isinstance(asked, events.PermissionRequested)
            await stage.session.answer(asked.request, "allow")
            assert kinds(await rest(stream)) == ["permission_settled", "turn_completed"]


@pytest.mark.req("PRM-01")
async def test_a_call_that_is_cancelled_is_not_asked_for_any_more(home: Path) -> None:
    harness = ScriptedHarness(on_send=begins)
    async with staged(home, harness, policy="ask") as stage, stage.session.turn("Hello") as stream:
        await until(stream, events.TurnStarted)
        waiting = asyncio.ensure_future(calls(stage))
        await until(stream, events.PermissionRequested)
        waiting.cancel()
        answer = await until(stream, events.PermissionSettled)
        assert isinstance(answer, events.PermissionSettled)
        assert (answer.decision, answer.by) == ("deny", "withdrawn")
        ends(stage)
        await rest(stream)


@pytest.mark.req("PRM-01")
async def test_a_call_outside_of_a_turn_is_denied(home: Path) -> None:
    async with staged(home, ScriptedHarness(), policy="ask") as stage:
        await collected(stage)
        decision = await calls(stage)
        assert (decision.verdict, decision.reason) == ("deny", "no turn is running")
        await stage.actor.close(1.0)
        assert (await calls(stage)).verdict == "deny"


@pytest.mark.req("HAR-03")
async def test_a_program_can_be_there_before_the_first_turn(home: Path) -> None:
    harness = ScriptedHarness()
    async with staged(home, harness, program=True) as stage:
        await asyncio.wait_for(harness.opened.wait(), DEADLINE_S)
        assert stage.program.sent == []
        assert kinds(await collected(stage)) == ["turn_started", "turn_completed"]
        assert len(harness.sessions) == 1, "the turn went to the program that was there"


@pytest.mark.req("HAR-03")
async def test_a_program_that_died_before_the_first_turn_is_started_again(home: Path) -> None:
    harness = ScriptedHarness()
    async with staged(home, harness, program=True) as stage:
        await asyncio.wait_for(harness.opened.wait(), DEADLINE_S)
        stage.program.say(SessionEnded(HarnessError("process-died", "gone")))
        async with asyncio.timeout(DEADLINE_S):
            while stage.actor._slot.program is not None:  # noqa: ASYNC110 - nobody is told of it
                await asyncio.sleep(0)
        assert kinds(await collected(stage)) == ["turn_started", "turn_completed"]
        assert stage.statuses() == ["completed"]
        assert len(harness.sessions) == 2


@pytest.mark.req("HAR-03")
async def test_a_program_that_could_not_be_started_beforehand_fails_the_first_turn_and_is_tried_again(
    home: Path,
) -> None:
    harness = ScriptedHarness(refuses=HarnessError("authentication", "no key"))
    async with staged(home, harness, program=True) as stage:
        told = await collected(stage)
        assert isinstance(told[-1], events.TurnCompleted)
        assert told[-1].error == harness.refuses
        harness.refuses = None
        assert [each.status for each in await collected(stage) if isinstance(each, events.TurnCompleted)] == [
            "completed"
        ]
