"""The OpenAI dialects by themselves: where the newest user text stands, what is refused and with which words, and
that both forms of an answer agree. No body is a fault of the server."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_host.rehearsal import chat, newest_user_text, responses
from buzz_host.rehearsal.engine import Engine
from buzz_host.rehearsal.neutral import Answer, Called, NotUnderstood, Piece, Said

pytestmark = pytest.mark.req("HAR-05")

PATHS = {"/v1/responses": responses, "/v1/chat/completions": chat}
CALL = {"type": "function_call", "call_id": "call_1", "name": "t", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
ASKS = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "function": {"name": "t"}}]}
ANSWERS = {"role": "tool", "tool_call_id": "call_1", "content": "done"}
SKILL = "<skill>\n<name>light</name>\nrehearse: say wrong\n</skill>"
SURROUNDINGS = "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>"


def said(*texts: str, role: str = "user", kind: str = "input_text") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


OLD = {"role": "user", "content": "old"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}
ATTACHED = {"type": "text", "text": "Attached image(s) from tool result:"}


@pytest.mark.parametrize(
    ("items", "newest"),
    [
        ("as a string", "as a string"),
        ([OLD], "old"),
        ([OLD, said("first", "last")], "last"),
        ([said("# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\ny\n</INSTRUCTIONS>", SURROUNDINGS), OLD], "old"),
        ([OLD, said("use $light"), said(SKILL)], "use $light"),
        ([OLD, said("newest\n" + SKILL)], "newest\n" + SKILL),
        ([OLD, said(SKILL + "\nnewest")], SKILL + "\nnewest"),
        ([OLD, said("<turn_aborted>\nby the user\n</turn_aborted>"), said("newest")], "newest"),
        ([OLD, said("x", role="developer"), said("y", role="assistant", kind="output_text")], "old"),
        ([OLD, CALL, OUTPUT], "old"),
        ([OLD, CALL, OUTPUT, said("arrived")], "arrived"),
        ([OLD, {"type": "reasoning", "summary": []}, {"role": "user", "content": [{"type": "input_image"}]}], "old"),
        ([said("x", role="assistant", kind="output_text")], ""),
        ([{"role": "user", "content": ""}], ""),
    ],
)
def test_the_newest_text_of_a_responses_request_is_a_persons(items: Any, newest: str) -> None:
    body = {"model": "m", "input": items}
    assert newest_user_text(body, path="/v1/responses") == newest
    assert responses.understand(body).newest.text == newest


@pytest.mark.parametrize(
    ("messages", "newest"),
    [
        ([OLD], "old"),
        ([{"role": "system", "content": "s"}, OLD, {"role": "assistant", "content": "yes"}], "old"),
        ([said("a", "b", kind="text")], "b"),
        ([OLD, ASKS, ANSWERS], "old"),
        ([OLD, ASKS, ANSWERS, {"role": "user", "content": [IMAGE]}], "old"),
        ([OLD, ASKS, ANSWERS, {"role": "user", "content": [ATTACHED, IMAGE]}], "old"),
        ([OLD, {"role": "user", "content": [ATTACHED]}], ATTACHED["text"]),
        ([OLD, {"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE]}], "see"),
        ([{"role": "user", "content": "hello\n<turn-context>\nx\n</turn-context>"}],
         "hello\n<turn-context>\nx\n</turn-context>"),
        ([{"role": "assistant", "content": "x"}], ""),
    ],
)  # fmt: skip
def test_the_newest_text_of_a_chat_request_is_a_persons(messages: Any, newest: str) -> None:
    body = {"model": "m", "messages": messages}
    assert newest_user_text(body, path="/v1/chat/completions") == newest
    assert chat.understand(body).newest.text == newest


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body", [None, [], "x", {}, {"messages": 1, "input": 1}, {"messages": [1, {"role": "user"}], "input": [{}, None]}]
)
def test_a_body_that_is_no_request_has_no_newest_text(path: str, body: object) -> None:
    assert newest_user_text(body, path=path) == ""


SHARED = [
    ([], "the body must be a JSON object"),
    ({}, "model: expected a string"),
    ({"model": ""}, "model: expected a string"),
    ({"model": "m", "stream": 1}, "stream: expected true or false"),
]
NOTHING_STORED = "previous_response_id: nothing is stored here; send the whole conversation as input"
OF_RESPONSES = [
    ({"previous_response_id": "resp_1"}, NOTHING_STORED),
    ({"conversation": "conv_1"}, "conversation: nothing is stored here; send the whole conversation as input"),
    ({}, "input: expected a string, or a list with at least one item"),
    ({"input": []}, "input: expected a string, or a list with at least one item"),
    ({"input": ["x"]}, "input.0: expected an object"),
    ({"input": [{"type": 1}]}, "input.0.type: expected a string"),
    ({"input": [{}]}, "input.0.role: expected one of user, assistant, system, developer"),
    ({"input": [OLD, {"role": "user"}]}, "input.1.content: expected a string or a list of parts"),
    ({"input": [{"role": "user", "content": [{}]}]}, "input.0.content.0: expected an object with a type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input.0.content.0.text: expected a string"),
    ({"input": [{"type": "function_call"}]}, "input.0.call_id: expected a string"),
    ({"input": [{"type": "custom_tool_call_output", "call_id": 1}]}, "input.0.call_id: expected a string"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0: nothing is stored here; send the item itself"),
    ({"input": [OLD, CALL]}, "input.1: the tool call 'call_1' has no output"),
    ({"input": [OLD, OUTPUT]}, "input.1: no tool call before it has the call_id 'call_1'"),
    ({"input": [OLD, OUTPUT, CALL]}, "input.1: no tool call before it has the call_id 'call_1'"),
]  # fmt: skip
OF_CHAT = [
    ({}, "messages: expected a list with at least one message"),
    ({"messages": []}, "messages: expected a list with at least one message"),
    ({"messages": ["x"]}, "messages.0: expected an object"),
    ({"messages": [{}]}, "messages.0.role: expected one of system, developer, user, assistant, tool, function"),
    ({"messages": [{"role": "user"}]}, "messages.0.content: expected a string or a list of parts"),
    ({"messages": [{"role": "user", "content": [1]}]}, "messages.0.content.0: expected an object with a type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text: expected a string"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.tool_call_id: expected a string"),
    ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "messages.0.tool_calls: expected a list of objects"),
    ({"messages": [OLD, ASKS]}, "messages.1: its tool calls are not all answered: 'call_1'"),
    ({"messages": [OLD, ASKS, OLD]}, "messages.2: the tool calls before it are not all answered: 'call_1'"),
    ({"messages": [OLD, ANSWERS]}, "messages.1: the message before it has no tool call 'call_1'"),
    ({"messages": [OLD, ASKS, ANSWERS, OLD, ANSWERS]}, "messages.4: the message before it has no tool call 'call_1'"),
    ({"messages": [OLD], "stream_options": {}}, "stream_options: only a stream has options"),
    ({"messages": [OLD], "stream": True, "stream_options": 1}, "stream_options: expected an object"),
]


@pytest.mark.parametrize(
    ("dialect", "body", "told"),
    [
        *((dialect, *each) for dialect in PATHS.values() for each in SHARED),
        *((responses, {"model": "m", **body}, told) for body, told in OF_RESPONSES),
        *((chat, {"model": "m", **body}, told) for body, told in OF_CHAT),
    ],
)
def test_a_request_that_the_protocol_does_not_allow_is_told_with_its_path(
    dialect: ModuleType, body: object, told: str
) -> None:
    with pytest.raises(NotUnderstood) as caught:
        dialect.understand(body)
    assert str(caught.value) == told


_words = st.sampled_from(
    ["user", "assistant", "tool", "developer", "message", "function_call", "function_call_output", "custom_tool_call",
     "namespace", "custom", "function", "input_text", "text", "image_url", "call_1", "rehearse: echo", "",
     "é\u2028", "a\nb"]
)  # fmt: skip
_keys = st.sampled_from(
    ["type", "role", "content", "text", "call_id", "tool_call_id", "tool_calls", "id", "function", "name", "namespace",
     "tools", "output", "arguments", "custom"]
)  # fmt: skip
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=5),
    max_leaves=12,
)
_right_ids = st.sampled_from(["call_1", "call_2"])
_right_content = _words | st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "input_text", "image_url"]), "text": _words}), max_size=2
)
_right_calls = st.lists(
    st.fixed_dictionaries({"id": _right_ids, "function": st.fixed_dictionaries({"name": _words})}), max_size=2
)
_right_said = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "developer"]), "content": _right_content}
)
_right_messages = st.one_of(
    _right_said,
    st.fixed_dictionaries({"role": st.just("assistant"), "content": st.none(), "tool_calls": _right_calls}),
    st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": _right_ids, "content": _right_content}),
)
_right_items = st.one_of(
    _right_said,
    st.fixed_dictionaries({"type": st.sampled_from(responses.CALL_TYPES), "call_id": _right_ids, "name": _words}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(responses.OUTPUT_TYPES), "call_id": _right_ids, "output": _right_content}
    ),
    st.fixed_dictionaries({"type": st.just("reasoning")}),
)


@st.composite
def _bodies(draw: st.DrawFn) -> object:
    """A request that is nearly right: at most two of its values are replaced by others."""
    messages = draw(st.lists(_right_messages, min_size=1, max_size=5))
    items = draw(st.lists(_right_items, min_size=1, max_size=5))
    stream = draw(st.booleans())
    body: dict[str, Any] = {"model": "m", "stream": stream, "messages": messages, "input": items}
    if stream:
        body["stream_options"] = {"include_usage": draw(st.booleans())}
    for _ in range(draw(st.integers(0, 2))):
        target = draw(st.sampled_from([body, *messages, *items]))
        more = ["tools", "prompt_cache_key", "user", "instructions"] if target is body else []
        target[draw(st.sampled_from([*target, *more]))] = draw(_json)
    return body


@pytest.mark.parametrize("path", PATHS)
@given(_bodies() | _json)
def test_no_body_is_a_fault_of_the_server(path: str, body: Any) -> None:
    """Whatever is sent is answered, or refused in one line; and its newest text can be read either way."""
    dialect = PATHS[path]
    newest = newest_user_text(body, path=path)
    try:
        asked = dialect.understand(body)
        plan = Engine().plan(asked)
    except NotUnderstood as error:
        refused = str(error)
    else:
        refused = None
    if refused is not None:
        assert refused.splitlines() == [refused]
        return
    assert asked.newest.text == newest
    assert plan.answer is not None
    json.dumps(dialect.whole(plan.answer))
    assert b"".join(piece.octets for piece in dialect.pieces(plan.answer)).isascii()


_arguments = st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.text(), st.lists, max_leaves=5))
_called = st.builds(Called, st.just("id"), st.text(min_size=1), _arguments)
_freeform = st.builds(Called, st.just("id"), st.text(min_size=1), _arguments, st.just(""), st.text())
_namespaced = st.builds(Called, st.just("id"), st.text(min_size=1), _arguments, st.text(min_size=1))


def _events(pieces: list[Piece]) -> list[Any]:
    frames = b"".join(piece.octets for piece in pieces).decode("ascii").removesuffix("\n\n").split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in (frame.split("\n")[-1] for frame in frames)
            if line != "data: [DONE]"]  # fmt: skip


@given(st.lists(st.builds(Said, st.text(min_size=1)) | _called | _freeform | _namespaced, min_size=1))
def test_a_responses_stream_and_the_whole_answer_are_the_same(parts: list[Said | Called]) -> None:
    answer = Answer("id", "model", tuple(parts), 12, 34)
    whole = json.loads(json.dumps(responses.whole(answer)))
    written = {"message": lambda item: item["content"][0]["text"], "function_call": lambda item: item["arguments"],
               "custom_tool_call": lambda item: item["input"]}  # fmt: skip
    items: list[Any] = []
    deltas: list[str] = []
    events = _events(list(responses.pieces(answer)))
    for event in events:
        if event["type"] == "response.output_item.added":
            deltas.append("")
        elif event["type"].endswith(".delta"):
            assert event["output_index"] == len(deltas) - 1
            deltas[-1] += event["delta"]
        elif event["type"] == "response.output_item.done":
            items.append(event["item"])
    assert [event["type"] for event in (events[0], events[-1])] == ["response.created", "response.completed"]
    assert events[-1]["response"] == whole
    assert items == whole["output"]
    assert deltas == [written[item["type"]](item) for item in items]


@given(st.lists(st.builds(Said, st.text(min_size=1)) | _called, min_size=1), st.booleans())
def test_a_chat_stream_and_the_whole_answer_are_the_same(parts: list[Said | Called], counted: bool) -> None:
    answer = Answer("id", "model", tuple(parts), 12, 34, counted)
    whole = json.loads(json.dumps(chat.whole(answer)))
    text, calls, reason, usage = "", {}, None, None
    for event in _events(list(chat.pieces(answer))):
        assert ("usage" in event) is counted
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            text += choice["delta"].get("content", "")
            reason = choice["finish_reason"] or reason
            for call in choice["delta"].get("tool_calls", ()):
                arguments = call["function"].pop("arguments")
                known = calls.setdefault(call.pop("index"), {**call, "function": {**call["function"], "arguments": ""}})
                known["function"]["arguments"] += arguments
    (choice,) = whole["choices"]
    assert (text or None, reason) == (choice["message"]["content"], choice["finish_reason"])
    assert list(calls.values()) == choice["message"].get("tool_calls", [])
    assert usage == (whole["usage"] if counted else None)


@pytest.mark.parametrize("dialect", PATHS.values())
def test_a_long_text_is_streamed_in_few_deltas(dialect: ModuleType) -> None:
    pieces = list(dialect.pieces(Answer("id", "model", (Said("é\u2028😀" * 100_000),), 1, 1)))
    assert sum(piece.is_delta for piece in pieces) == 64
