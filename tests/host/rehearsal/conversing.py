"""What the `openai` package makes of a rehearsal: both protocols, whole answers and streams, as one kind of value.

The package is what programs in Python use, and its reading of a stream is as strict as theirs: an event that it
does not know, or an object that lacks a field, fails a test here.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import httpx2
import openai

REPLY_DEADLINE_S = 20.0
REQUESTS_PER_TURN_MAX = 20
MODEL = "model-of-the-test"


@attrs.frozen
class Call:
    """A tool call as the package read it."""

    id: str
    name: str
    arguments: str


@attrs.frozen
class Heard:
    """One answer: its texts, its calls, the tokens that it told, and the items that go into the next request."""

    texts: tuple[str, ...]
    calls: tuple[Call, ...]
    usage: tuple[int, int, int, int] | None
    items: tuple[Any, ...]


Asking = Callable[[openai.OpenAI, Sequence[Any], bool], Heard]


@contextmanager
def client(url: str, *, named: bool = True) -> Iterator[openai.OpenAI]:
    """The package's client, which asks once: what is asked again is the test's to see. `named` makes what it asks one
    conversation apart from others, as programs do that name theirs."""
    headers = {"session-id": secrets.token_hex(8)} if named else {}
    with openai.OpenAI(
        base_url=f"{url}/v1",
        api_key="sk-of-the-test",
        max_retries=0,
        timeout=REPLY_DEADLINE_S,
        default_headers=headers,
    ) as opened:
        yield opened


def ask_responses(api: openai.OpenAI, items: Sequence[Any], stream: bool, **more: Any) -> Heard:
    """One answer over OpenAI Responses."""
    if stream:
        deltas: dict[str, str] = {}
        with api.responses.create(model=MODEL, input=list(items), stream=True, **more) as events:
            final = None
            for number, event in enumerate(events):
                assert event.sequence_number == number
                if event.type.endswith(".delta"):
                    deltas[event.item_id] = deltas.get(event.item_id, "") + event.delta
                if event.type == "response.completed":
                    final = event.response
        assert final is not None
        assert deltas == {item.id: _written(item) for item in final.output if _written(item)}
    else:
        final = api.responses.create(model=MODEL, input=list(items), **more)
    assert final.status == "completed"
    usage = final.usage
    assert usage is not None
    return Heard(
        tuple(part.text for item in final.output if item.type == "message" for part in item.content),
        tuple(Call(item.call_id, item.name, item.arguments) for item in final.output if item.type == "function_call"),
        (usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens, usage.total_tokens),
        tuple(item.model_dump(exclude_none=True) for item in final.output),
    )


def _written(item: Any) -> str:
    if item.type == "message":
        return "".join(part.text for part in item.content)
    return str(item.input if item.type == "custom_tool_call" else item.arguments)


def ask_chat(api: openai.OpenAI, messages: Sequence[Any], stream: bool, *, counted: bool = True, **more: Any) -> Heard:
    """One answer over Chat Completions."""
    if not stream:
        completion = api.chat.completions.create(model=MODEL, messages=list(messages), **more)
        (choice,) = completion.choices
        message, reason, usage = choice.message, choice.finish_reason, completion.usage
        text = message.content
        calls = tuple(Call(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ())
    else:
        text, usage, reason, parts = None, None, None, {}
        if counted:
            more["stream_options"] = {"include_usage": True}
        with api.chat.completions.create(model=MODEL, messages=list(messages), stream=True, **more) as chunks:
            for chunk in chunks:
                usage = chunk.usage or usage
                if not counted:
                    assert chunk.choices, "a stream without usage has no chunk that holds nothing else"
                for choice in chunk.choices:
                    reason = choice.finish_reason or reason
                    if choice.delta.content:
                        text = (text or "") + choice.delta.content
                    for call in choice.delta.tool_calls or ():
                        known = parts.setdefault(call.index, [call.id, call.function.name, ""])
                        known[2] += call.function.arguments or ""
        calls = tuple(Call(*known) for known in parts.values())
    assert reason == ("tool_calls" if calls else "stop")
    message = {"role": "assistant", "content": text}
    if calls:
        functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": function}
            for call, function in zip(calls, functions, strict=True)
        ]
    told = None
    if usage is not None:
        details = usage.prompt_tokens_details
        assert details is not None
        told = (usage.prompt_tokens, details.cached_tokens or 0, usage.completion_tokens, usage.total_tokens)
    return Heard(() if text is None else (text,), calls, told, (message,))


def returned(ask: Asking, call: Call, text: str) -> dict[str, Any]:
    """What a tool gave back, as this protocol sends it."""
    if ask is ask_chat:
        return {"role": "tool", "tool_call_id": call.id, "content": text}
    return {"type": "function_call_output", "call_id": call.id, "output": text}


def played(url: str, ask: Asking, text: str, *, stream: bool) -> list[str]:
    """Plays a turn as a program would, tool calls and retries included; a line for each thing that came back.

    Chat Completions has one text an answer, so texts of one answer are one line there.
    """
    lines: list[str] = []
    items: list[Any] = [{"role": "user", "content": text}]
    results = 0
    with client(url) as api:
        for _ in range(REQUESTS_PER_TURN_MAX):
            try:
                heard = ask(api, items, stream)
            except openai.APIStatusError as error:
                told = error.response.json()["error"]["message"]
                scripted = "the script asked for status" in told
                lines.append(f"status: {error.status_code}" + ("" if scripted else f" {told}"))
                if scripted:
                    continue
                return lines
            except (openai.APIConnectionError, httpx2.TransportError):
                lines.append("dropped")
                continue
            lines += [f"text: {said}" for said in heard.texts]
            lines += [f"call: {call.name} {json.dumps(json.loads(call.arguments))}" for call in heard.calls]
            if not heard.calls:
                return lines
            items += heard.items
            for call in heard.calls:
                results += 1
                items.append(returned(ask, call, f"result {results}"))
    raise AssertionError(f"the turn did not end: {lines}")
