"""OpenAI Responses: `POST /v1/responses`, streamed and not.

What it reads and writes follows the protocol's public reference and what Codex, Pi and the `openai` package really
send. Nothing is stored: a request that leans on an earlier answer (`previous_response_id`) is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from buzz_host.rehearsal import openai_errors
from buzz_host.rehearsal.neutral import (
    Answer,
    Asked,
    Called,
    NewestText,
    NotUnderstood,
    Piece,
    Said,
    ToolReturn,
    estimated_tokens,
)
from buzz_host.rehearsal.wire import compact, cuts, mark_of

ANSWER_PATHS = frozenset({"/v1/responses", "/responses"})
CALL_PREFIX = "call_"
TEXT_TYPES = ("input_text", "output_text", "text")
CALL_TYPES = ("function_call", "custom_tool_call")
OUTPUT_TYPES = ("function_call_output", "custom_tool_call_output")

failure = openai_errors.failure


def understand(body: object) -> Asked:
    """The request as asked; raises `NotUnderstood` where the protocol's server would answer 400."""
    if not isinstance(body, dict):
        raise NotUnderstood("the body must be a JSON object")
    model, stream = body.get("model"), body.get("stream", False)
    if not isinstance(model, str) or not model:
        raise NotUnderstood("model: expected a string")
    if stream is not None and not isinstance(stream, bool):
        raise NotUnderstood("stream: expected true or false")
    if body.get("previous_response_id") is not None:
        raise NotUnderstood("previous_response_id: nothing is stored here; send the whole conversation as input")
    items = _items(body.get("input"))
    newest = newest_user_text(body) or NewestText("", "")
    return Asked(
        model=model,
        stream=bool(stream),
        session=_session(body, items),
        newest=newest,
        returns=_returns(items, newest.place),
        input_tokens=estimated_tokens(sum(len(compact(body.get(key))) for key in ("instructions", "input", "tools"))),
        namespaced=_namespaced(body.get("tools")),
    )


def newest_user_text(body: object) -> NewestText | None:
    """The last text of the newest message with the role `user`."""
    given: object = body.get("input") if isinstance(body, dict) else None
    if isinstance(given, str):
        return NewestText(given, "0.0")
    for index, item in reversed(list(enumerate(given if isinstance(given, list) else []))):
        if not isinstance(item, dict) or item.get("role") != "user":
            continue
        content: object = item.get("content")
        if isinstance(content, str):
            return NewestText(content, f"{index}.0")
        parts = content if isinstance(content, list) else []
        for number, part in reversed(list(enumerate(parts))):
            if isinstance(part, dict) and part.get("type") in TEXT_TYPES and isinstance(part.get("text"), str):
                return NewestText(part["text"], f"{index}.{number}")
    return None


def other(method: str, path: str, body: object) -> object | None:
    """This protocol has no side request that a harness makes."""
    return None


def whole(answer: Answer) -> object:
    """The answer as one response object."""
    return _response(answer, "completed", [_item(answer, part, n, filled=True) for n, part in enumerate(answer.parts)])


def pieces(answer: Answer) -> Iterator[Piece]:
    """The answer as server-sent events, at most 64 deltas an item."""
    numbers = itertools.count()

    def event(kind: str, fields: Mapping[str, object], *, is_delta: bool = False) -> Piece:
        value = {"type": kind, "sequence_number": next(numbers), **fields}
        return Piece(f"event: {kind}\ndata: {compact(value)}\n\n".encode(), is_delta)

    yield event("response.created", {"response": _response(answer, "in_progress", [])})
    for index, part in enumerate(answer.parts):
        place: dict[str, object] = {"output_index": index}
        yield event("response.output_item.added", {**place, "item": _item(answer, part, index, filled=False)})
        place["item_id"] = _item_id(answer, index)
        if isinstance(part, Said):
            place["content_index"] = 0
            yield event("response.content_part.added", {**place, "part": _text("")})
            for cut in cuts(part.text):
                fields = {**place, "delta": cut, "logprobs": []}
                yield event("response.output_text.delta", fields, is_delta=True)
            yield event("response.output_text.done", {**place, "text": part.text, "logprobs": []})
            yield event("response.content_part.done", {**place, "part": _text(part.text)})
        else:
            arguments = compact(part.arguments)
            for cut in cuts(arguments):
                yield event("response.function_call_arguments.delta", {**place, "delta": cut}, is_delta=True)
            fields = {**place, "name": part.name, "arguments": arguments}
            yield event("response.function_call_arguments.done", fields)
        done = {"output_index": index, "item": _item(answer, part, index, filled=True)}
        yield event("response.output_item.done", done)
    yield event("response.completed", {"response": whole(answer)})


def _items(given: object) -> list[dict[str, object]]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise NotUnderstood("input: expected a string, or a list with at least one item")
    for index, item in enumerate(given):
        where = f"input.{index}"
        if not isinstance(item, dict):
            raise NotUnderstood(f"{where}: expected an object")
        kind = item.get("type", "message")
        if not isinstance(kind, str):
            raise NotUnderstood(f"{where}.type: expected a string")
        if kind == "message":
            _check_message(item, where)
        elif kind in (*CALL_TYPES, *OUTPUT_TYPES) and not isinstance(item.get("call_id"), str):
            raise NotUnderstood(f"{where}.call_id: expected a string")
    return given


def _check_message(item: Mapping[str, object], where: str) -> None:
    if item.get("role") not in ("user", "assistant", "system", "developer"):
        raise NotUnderstood(f"{where}.role: expected user, assistant, system or developer")
    content = item.get("content")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise NotUnderstood(f"{where}.content: expected a string or a list of parts")
    for number, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise NotUnderstood(f"{where}.content.{number}: expected an object with a type")
        if part["type"] in TEXT_TYPES and not isinstance(part.get("text"), str):
            raise NotUnderstood(f"{where}.content.{number}.text: expected a string")


def _returns(items: list[dict[str, object]], place: str) -> tuple[ToolReturn, ...]:
    """What tools gave back behind the newest user text."""
    start = int(place.partition(".")[0]) if place else 0
    names: dict[str, str] = {}
    returns = []
    for item in items[start:]:
        call_id = str(item.get("call_id", ""))
        if item.get("type") in CALL_TYPES:
            namespace, name = item.get("namespace"), str(item.get("name", ""))
            names[call_id] = f"{namespace}__{name}" if isinstance(namespace, str) and namespace else name
        elif item.get("type") in OUTPUT_TYPES:
            returns.append(ToolReturn(call_id, names.get(call_id, ""), _flat(item.get("output")), is_error=False))
    return tuple(returns)


def _flat(output: object) -> str:
    if isinstance(output, str):
        return output
    parts = [part for part in output if isinstance(part, dict)] if isinstance(output, list) else []
    return "\n".join(part["text"] if isinstance(part.get("text"), str) else f"[{part.get('type')}]" for part in parts)


def _namespaced(tools: object) -> dict[str, tuple[str, str]]:
    found = {}
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict) or tool.get("type") != "namespace":
            continue
        namespace, inner = tool.get("name"), tool.get("tools")
        for each in inner if isinstance(inner, list) else ():
            if isinstance(each, dict):
                found[f"{namespace}__{each.get('name')}"] = (str(namespace), str(each.get("name")))
    return found


def _session(body: Mapping[str, object], items: list[dict[str, object]]) -> str:
    named = body.get("prompt_cache_key")
    return named if isinstance(named, str) and named else mark_of([body.get("instructions"), items[:1]])


def _response(answer: Answer, status: str, output: list[object]) -> dict[str, object]:
    usage = {
        "input_tokens": answer.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
    return {
        "id": f"resp_{answer.answer_id}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage if status == "completed" else None,
    }


def _item(answer: Answer, part: object, index: int, *, filled: bool) -> object:
    head = {"id": _item_id(answer, index), "status": "completed" if filled else "in_progress"}
    if isinstance(part, Said):
        return {**head, "type": "message", "role": "assistant", "content": [_text(part.text)] if filled else []}
    assert isinstance(part, Called)
    return {
        **head,
        "type": "function_call",
        "call_id": CALL_PREFIX + part.call_id,
        "name": part.name,
        **({"namespace": part.namespace} if part.namespace else {}),
        "arguments": compact(part.arguments) if filled else "",
    }


def _item_id(answer: Answer, index: int) -> str:
    return f"item_{answer.answer_id}_{index}"


def _text(text: str) -> object:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
