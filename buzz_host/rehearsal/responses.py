"""OpenAI Responses: `POST /v1/responses`, streamed and not.

What it reads and writes follows the protocol's public reference and what Codex, Pi and the `openai` package really
send. Nothing is stored: a request that leans on an earlier answer (`previous_response_id`) is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from buzz_host.rehearsal import openai_parts
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
from buzz_host.rehearsal.openai_parts import begins_behind, check_content, flat, newest_text, session_of, shown
from buzz_host.rehearsal.wire import compact, cuts, opened

ANSWER_PATHS = frozenset({"/v1/responses", "/responses"})
CALL_PREFIX = "call_"
JOINT = "__"
ROLES = ("user", "assistant", "system", "developer")
CALL_TYPES = ("function_call", "custom_tool_call")
OUTPUT_TYPES = ("function_call_output", "custom_tool_call_output")

failure = openai_parts.failure


def understand(body: object) -> Asked:
    """The request as asked; raises `NotUnderstood` where the protocol's server would answer 400."""
    fields, model, stream = opened(body)
    for key in ("previous_response_id", "conversation"):
        if fields.get(key) is not None:
            raise NotUnderstood(f"{key}: nothing is stored here; send the whole conversation as input")
    items = _items(fields.get("input"))
    newest = newest_user_text(fields) or NewestText("", "")
    namespaced, freeform = _offered(fields.get("tools"))
    return Asked(
        model=model,
        stream=stream,
        session=session_of(fields, ("prompt_cache_key",), [fields.get("instructions"), items[:1]]),
        newest=newest,
        returns=_returns(items, newest.place),
        input_tokens=estimated_tokens(sum(len(compact(fields.get(key))) for key in ("instructions", "input", "tools"))),
        namespaced=namespaced,
        freeform=freeform,
    )


def newest_user_text(body: object) -> NewestText | None:
    """The last text of the newest message with the role `user` that is a person's or the host's."""
    given: object = body.get("input") if isinstance(body, Mapping) else None
    return newest_text([{"role": "user", "content": given}] if isinstance(given, str) else given)


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

    for kind in ("response.created", "response.in_progress"):
        yield event(kind, {"response": _response(answer, "in_progress", [])})
    for index, part in enumerate(answer.parts):
        place: dict[str, object] = {"output_index": index}
        yield event("response.output_item.added", {**place, "item": _item(answer, part, index, filled=False)})
        place["item_id"] = _item_id(answer, part, index)
        if isinstance(part, Said):
            place["content_index"] = 0
            yield event("response.content_part.added", {**place, "part": _text("")})
            for cut in cuts(part.text):
                fields = {**place, "delta": cut, "logprobs": []}
                yield event("response.output_text.delta", fields, is_delta=True)
            yield event("response.output_text.done", {**place, "text": part.text, "logprobs": []})
            yield event("response.content_part.done", {**place, "part": _text(part.text)})
        elif part.freeform is not None:
            for cut in cuts(part.freeform):
                yield event("response.custom_tool_call_input.delta", {**place, "delta": cut}, is_delta=True)
            yield event("response.custom_tool_call_input.done", {**place, "input": part.freeform})
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
        if kind == "item_reference":
            raise NotUnderstood(f"{where}: nothing is stored here; send the item itself")
        if kind == "message":
            if item.get("role") not in ROLES:
                raise NotUnderstood(f"{where}.role: expected one of {', '.join(ROLES)}")
            check_content(where, item.get("content"))
        elif kind in (*CALL_TYPES, *OUTPUT_TYPES) and not isinstance(item.get("call_id"), str):
            raise NotUnderstood(f"{where}.call_id: expected a string")
    _check_pairs(given)
    return given


def _check_pairs(items: list[dict[str, object]]) -> None:
    """Each call of a tool has its output, and each output a call before it, as the protocol demands."""
    called: set[object] = set()
    answered = {item["call_id"] for item in items if item.get("type") in OUTPUT_TYPES}
    for index, item in enumerate(items):
        call_id = item.get("call_id")
        if item.get("type") in OUTPUT_TYPES and call_id not in called:
            raise NotUnderstood(f"input.{index}: no tool call before it has the call_id {shown(call_id)}")
        if item.get("type") in CALL_TYPES:
            called.add(call_id)
            if call_id not in answered:
                raise NotUnderstood(f"input.{index}: the tool call {shown(call_id)} has no output")


def _returns(items: list[dict[str, object]], place: str) -> tuple[ToolReturn, ...]:
    """What tools gave back behind the newest user text."""
    names: dict[str, str] = {}
    returns = []
    for item in items[begins_behind(place) :]:
        call_id = str(item.get("call_id", ""))
        if item.get("type") in CALL_TYPES:
            names[call_id] = _joined(item.get("namespace"), item.get("name"))
        elif item.get("type") in OUTPUT_TYPES:
            returns.append(ToolReturn(call_id, names.get(call_id, ""), flat(item.get("output")), is_error=False))
    return tuple(returns)


def _offered(tools: object) -> tuple[dict[str, tuple[str, str]], frozenset[str]]:
    """Tools that are offered inside a namespace, by the name of both; and the names of those that take a text."""
    namespaced: dict[str, tuple[str, str]] = {}
    freeform: set[str] = set()
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        inner, namespace = tool.get("tools"), tool.get("name")
        inside = tool.get("type") == "namespace"
        for each in (inner if isinstance(inner, list) else ()) if inside else (tool,):
            if not isinstance(each, dict):
                continue
            name = str(each.get("name", ""))
            joined = _joined(namespace, name) if inside else name
            if inside:
                namespaced[joined] = (str(namespace), name)
            if each.get("type") == "custom":
                freeform.add(joined)
    return namespaced, frozenset(freeform)


def _joined(namespace: object, name: object) -> str:
    if not isinstance(namespace, str) or not namespace:
        return str(name)
    return f"{namespace.removesuffix(JOINT)}{JOINT}{name}"


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


def _item(answer: Answer, part: Said | Called, index: int, *, filled: bool) -> object:
    head = {"id": _item_id(answer, part, index), "status": "completed" if filled else "in_progress"}
    if isinstance(part, Said):
        return {**head, "type": "message", "role": "assistant", "content": [_text(part.text)] if filled else []}
    named = {"call_id": CALL_PREFIX + part.call_id, "name": part.name}
    if part.namespace:
        named["namespace"] = part.namespace
    if part.freeform is not None:
        return {**head, "type": "custom_tool_call", **named, "input": part.freeform if filled else ""}
    return {**head, "type": "function_call", **named, "arguments": compact(part.arguments) if filled else ""}


def _item_id(answer: Answer, part: Said | Called, index: int) -> str:
    """Begins as the protocol has it, so that a program that checks it does not make another one."""
    kind = "msg" if isinstance(part, Said) else "fc" if part.freeform is None else "ctc"
    return f"{kind}_{answer.answer_id}_{index}"


def _text(text: str) -> object:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
