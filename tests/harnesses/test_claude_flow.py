"""Whatever order the program's messages come in, each turn ends once and each steer is settled once."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from buzz_author.events import (
    Compacted,
    HarnessEvent,
    Retrying,
    SessionEnded,
    SteerSettled,
    TextDelta,
    TurnEnded,
    TurnStarted,
)
from buzz_author.harness import HarnessError
from buzz_author.testing.talk import check_laws

if importlib.util.find_spec("claude_agent_sdk") is None:  # the marker of the tests below cannot act on imports
    pytest.skip("claude-agent-sdk is not here: pip install 'buzz-agents[claude]'", allow_module_level=True)

from claude_agent_sdk import AssistantMessage, ResultMessage, StreamEvent, SystemMessage, TextBlock

from harnesses.claude.flow import Flow

LOG = logging.getLogger(__name__)
DIED = HarnessError("process-died", "signal 9")


def status(*listed: str) -> SystemMessage:
    return SystemMessage("status", {"status": "requesting", "user_message_uuids": list(listed)})


def delta(text: str, *, fresh: bool = False) -> list[StreamEvent]:
    start = {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}
    piece = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
    return [StreamEvent("u", "s", each) for each in ([start, piece] if fresh else [piece])]


def answer(text: str) -> AssistantMessage:
    return AssistantMessage([TextBlock(text)], "model")


def result(*listed: str, **fields: Any) -> ResultMessage:
    made: dict[str, Any] = {
        "subtype": "success",
        "duration_ms": 1,
        "duration_api_ms": 1,
        "is_error": False,
        "num_turns": 1,
        "session_id": "s",
        "user_message_uuids": list(listed) or None,
    }
    return ResultMessage(**{**made, **fields})


def flow() -> tuple[Flow, list[HarnessEvent]]:
    told: list[HarnessEvent] = []
    return Flow(told.append, LOG), told


@pytest.mark.claude
@pytest.mark.req("HAR-03")
def test_a_text_that_was_streamed_is_told_once_and_one_that_was_not_is_told_whole() -> None:
    made, told = flow()
    made.sent("t")
    for message in (
        status("t"),
        *delta("Good ", fresh=True),
        *delta("day"),
        answer("Good day"),
        answer("World"),
        result("t"),
    ):
        made.received(message)
    assert [event.text for event in told if isinstance(event, TextDelta)] == ["Good ", "day", "\n\n", "World"]
    assert told[-1] == TurnEnded("t", "completed", "Good day\n\nWorld")


@pytest.mark.claude
@pytest.mark.req("HAR-03")
def test_a_broken_stream_is_not_part_of_the_reply_but_an_interrupted_one_is() -> None:
    made, told = flow()
    made.sent("t")
    retry = SystemMessage("api_retry", {"attempt": 1, "error_status": None, "error": "unknown"})
    for message in (status("t"), *delta("Brok", fresh=True), retry, answer("Whole."), result("t")):
        made.received(message)
    assert told[-1] == TurnEnded("t", "completed", "Whole.")
    assert [event.text for event in told if isinstance(event, TextDelta)] == ["Brok", "Whole."]
    assert [event.error.kind for event in told if isinstance(event, Retrying)] == ["connection"]
    made.sent("u")
    for message in (status("u"), *delta("Half", fresh=True), result("u", terminal_reason="aborted_streaming")):
        made.received(message)
    assert told[-1] == TurnEnded("u", "interrupted", "Half")


@pytest.mark.claude
@pytest.mark.req("HAR-03")
def test_a_compaction_between_turns_and_a_result_of_nobody_are_told_as_such() -> None:
    made, told = flow()
    made.received(SystemMessage("compact_boundary", {}))
    made.received(result())
    made.received(answer("to nobody"))
    assert told == [Compacted(None)]


@pytest.mark.claude
@pytest.mark.req("HAR-03", "TRN-04")
def test_a_list_that_leaves_the_turn_out_still_ends_it() -> None:
    made, told = flow()
    made.sent("t")
    made.received(result(is_error=True, subtype="error_during_execution", terminal_reason="aborted_tools"))
    assert told == [TurnStarted("t"), TurnEnded("t", "interrupted")]


@pytest.mark.claude
@pytest.mark.req("HAR-03", "TRN-04")
def test_a_steer_that_runs_before_a_turn_that_was_just_sent_keeps_its_own_reply() -> None:
    made, told = flow()
    made.steered("s", "gone")
    made.handed("s")
    made.sent("t")
    for message in (status("s"), *delta("of s", fresh=True), answer("of s"), result("s")):
        made.received(message)
    for message in (status("t"), answer("of t"), result("t")):
        made.received(message)
    assert told == [
        SteerSettled("s", "s", "own-turn"),
        TurnStarted("s"),
        TextDelta("s", "of s"),
        TurnEnded("s", "completed", "of s"),
        TurnStarted("t"),
        TextDelta("t", "of t"),
        TurnEnded("t", "completed", "of t"),
    ]


@pytest.mark.claude
@pytest.mark.req("HAR-03")
def test_turns_that_a_program_takes_as_one_each_end() -> None:
    made, told = flow()
    made.sent("t")
    made.sent("u")
    for message in (status("t", "u"), answer("Both."), result("t", "u")):
        made.received(message)
    assert [event for event in told if isinstance(event, TurnEnded)] == [
        TurnEnded("t", "completed", "Both."),
        TurnEnded("u", "completed"),
    ]


class AnyOrder(RuleBasedStateMachine):
    """A program with a queue: it takes any number of messages up as a turn, folds any number in, and may die."""

    @initialize()
    def start(self) -> None:
        self.flow, self.told = flow()
        self.queue: list[str] = []
        self.running: list[str] = []
        self.sent: list[str] = []
        self.steered: list[str] = []

    @property
    def idle(self) -> bool:
        return not self.queue and not self.running

    @precondition(lambda self: self.idle)
    @rule()
    def send(self) -> None:
        turn = str(uuid4())
        self.flow.sent(turn)
        self.sent.append(turn)
        self.queue.append(turn)

    @precondition(lambda self: self.sent)
    @rule(named=st.booleans())
    def steer(self, named: bool) -> None:
        steer = str(uuid4())
        self.flow.steered(steer, self.sent[-1] if named else None)
        self.flow.handed(steer)
        self.steered.append(steer)
        self.queue.append(steer)

    @precondition(lambda self: self.sent)
    @rule()
    def steer_in_vain(self) -> None:
        steer = str(uuid4())
        self.flow.steered(steer, None)
        assert self.flow.not_taken(steer)
        assert not self.flow.not_taken(steer)

    @precondition(lambda self: self.queue and not self.running)
    @rule(count=st.integers(1, 3), told=st.booleans())
    def take_up(self, count: int, told: bool) -> None:
        self.running, self.queue = self.queue[:count], self.queue[count:]
        if told:
            self.flow.received(status(*self.running))

    @precondition(lambda self: self.queue and self.running)
    @rule(count=st.integers(1, 3), told=st.booleans())
    def fold(self, count: int, told: bool) -> None:
        self.running += self.queue[:count]
        self.queue = self.queue[count:]
        if told:
            self.flow.received(status(*self.running))

    @precondition(lambda self: self.running)
    @rule(text=st.sampled_from(["a", "bc", ""]), streamed=st.booleans())
    def say(self, text: str, streamed: bool) -> None:
        self.flow.received(status(*self.running))
        if streamed:
            for event in delta(text, fresh=True):
                self.flow.received(event)
        self.flow.received(answer(text))

    @precondition(lambda self: self.running)
    @rule(how=st.sampled_from(["completed", "interrupted", "failed"]))
    def finish(self, how: str) -> None:
        fields: dict[str, Any] = {}
        if how == "interrupted":
            fields = {"is_error": True, "terminal_reason": "aborted_streaming"}
        elif how == "failed":
            fields = {"is_error": True, "api_error_status": 500, "result": "API Error: 500"}
        self.flow.received(result(*self.running, **fields))
        ended = [event for event in self.told if isinstance(event, TurnEnded)]
        assert ended[-1].status == how
        self.running = []
        if not self.queue:
            self.judge()

    @rule()
    def die(self) -> None:
        self.flow.ended("failed", DIED)
        returned = [
            event.steer for event in self.told if isinstance(event, SteerSettled) and event.outcome == "returned"
        ]
        assert set(returned) <= set(self.steered)
        self.queue, self.running = [], []
        self.judge()

    def judge(self) -> None:
        check_laws([*self.told, SessionEnded()], self.sent, self.steered)

    def teardown(self) -> None:
        if hasattr(self, "flow"):
            self.flow.ended("interrupted", None)
            self.judge()


TestAnyOrder = pytest.mark.claude(pytest.mark.req("HAR-03", "TRN-04")(AnyOrder.TestCase))
