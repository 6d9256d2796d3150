"""The Anthropic dialect by itself: where the newest user text stands, and that both forms of an answer agree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_host.rehearsal import anthropic, newest_user_text
from buzz_host.rehearsal.neutral import Answer, Called, NotUnderstood, Said
from tests.host.rehearsal.asking import assembled

pytestmark = pytest.mark.req("HAR-05")

FRAMED = '<buzz-event type="message">\nnewest\n</buzz-event>'


def text(written: str) -> dict[str, Any]:
    return {"type": "text", "text": written}


def use(call_id: str, name: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": name, "input": {}}]}


def result(call_id: str, **more: object) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "done", **more}


def said(*blocks: dict[str, Any] | str) -> dict[str, Any]:
    return {"role": "user", "content": [text(block) if isinstance(block, str) else block for block in blocks]}


OLD = {"role": "user", "content": "old"}
INTERRUPTED = "[Request interrupted by user for tool use]\n"


@pytest.mark.parametrize(
    ("messages", "newest"),
    [
        ([OLD], "old"),
        ([said("<system-reminder>\nx\n</system-reminder>", "hello")], "hello"),
        ([OLD, {"role": "assistant", "content": "yes"}, said("failed\n", "newest")], "newest"),
        ([OLD, use("1", "t"), said(result("1"))], "old"),
        ([OLD, use("1", "t"), said(result("1"), INTERRUPTED, "newest")], "newest"),
        ([OLD, use("1", "t"), said(result("1"), "newest")], "newest"),
        ([OLD, use("1", "t"), said(result("1"), "<system-reminder>\nx\n</system-reminder>")], "old"),
        ([OLD, use("1", "Skill"), said(result("1"), "the body of the skill")], "old"),
        ([OLD, use("1", "Skill"), said(result("1"), "the body of the skill", "newest")], "newest"),
        ([OLD, use("1", "Skill"), said(result("1", is_error=True), "newest")], "newest"),
        ([OLD, use("1", "Skill"), said(result("1"), FRAMED)], FRAMED),
        ([OLD, said({"type": "image", "source": {}})], "old"),
        ([{"role": "assistant", "content": "hello"}], ""),
        ([OLD, {"role": "user", "content": ""}], ""),
    ],
)
def test_the_newest_user_text_is_the_persons_not_a_tools(messages: list[dict[str, Any]], newest: str) -> None:
    body = {"model": "m", "messages": messages}
    assert newest_user_text(body) == newest
    assert anthropic.understand(body).newest.text == newest


@pytest.mark.parametrize("body", [None, [], "x", {}, {"messages": 1}, {"messages": [1, {"role": "user"}]}])
def test_a_body_that_is_no_request_has_no_newest_text(body: object) -> None:
    assert newest_user_text(body) == ""


def test_a_path_of_no_known_protocol_has_no_newest_text() -> None:
    body = {"model": "m", "messages": [OLD]}
    assert newest_user_text(body, path="/v1/messages/count_tokens?beta=true") == "old"
    assert newest_user_text(body, path="/v1/messagesx") == ""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ([], "the body must be a JSON object"),
        ({}, "model: expected a string"),
        ({"model": "m", "stream": 1}, "stream: expected true or false"),
        ({"model": "m"}, "messages: expected a list with at least one message"),
        ({"model": "m", "messages": []}, "messages: expected a list with at least one message"),
        ({"model": "m", "messages": ["x"]}, "messages.0: expected an object"),
        ({"model": "m", "messages": [{"role": "tool"}]}, "messages.0.role: expected user or assistant"),
        (
            {"model": "m", "messages": [OLD, {"role": "user"}]},
            "messages.1.content: expected a string or a list of blocks",
        ),
        ({"model": "m", "messages": [said({})]}, "messages.0.content.0: expected an object with a type"),
        ({"model": "m", "messages": [said({"type": "text"})]}, "messages.0.content.0.text: expected a string"),
    ],
)
def test_a_request_that_the_protocol_does_not_allow_is_told_with_its_path(body: object, told: str) -> None:
    with pytest.raises(NotUnderstood, match="^" + told.replace(".", r"\.") + "$"):
        anthropic.understand(body)


def test_tool_results_are_told_apart_from_what_the_program_adds() -> None:
    reminder = "<system-reminder>\nThe user sent a new message\n</system-reminder>"
    content = [text("HOST-OK"), {"type": "image"}, text(reminder)]
    earlier = [OLD, use("0", "before"), said(result("0"))]
    asked = anthropic.understand(
        {
            "model": "m",
            "messages": [*earlier, said("now"), use("1", "mcp__a__b"), said({**result("1"), "content": content})],
            "metadata": {"user_id": "someone"},
        }
    )
    assert asked.returns == (("1", "mcp__a__b", "HOST-OK\n[image]", False, (reminder,)),)
    assert asked.session == "someone"


_json = st.recursive(st.none() | st.booleans() | st.text() | st.integers(), st.lists, max_leaves=5)
_parts = st.lists(
    st.builds(Said, st.text(min_size=1))
    | st.builds(Called, st.just("id"), st.text(min_size=1), st.dictionaries(st.text(), _json)),
    min_size=1,
)


@given(_parts)
def test_the_streamed_answer_and_the_whole_one_are_the_same(parts: list[Said | Called]) -> None:
    answer = Answer("id", "model", tuple(parts), 12, 34)
    stream = b"".join(piece.octets for piece in anthropic.pieces(answer))
    assert assembled(stream) == json.loads(json.dumps(anthropic.whole(answer)))


def test_a_long_text_is_streamed_in_few_deltas() -> None:
    long = "é\u2028😀" * 100_000
    pieces = list(anthropic.pieces(Answer("id", "model", (Said(long),), 1, 1)))
    assert sum(piece.is_delta for piece in pieces) <= 64
    assert assembled(b"".join(piece.octets for piece in pieces))["content"] == [text(long)]
