"""OpenAI Chat Completions: `POST /v1/chat/completions`, streamed and not, and the list of models.

What it reads and writes follows the protocol's public reference and what goose, Pi and the `openai` package send.
An answer has one text: several texts of a script stand in it with a blank line between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

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
from buzz_host.rehearsal.wire import TEXT_SEPARATOR, compact, cuts, opened

ANSWER_PATHS = frozenset({"/v1/chat/completions", "/chat/completions"})
MODELS_PATHS = frozenset({"/v1/models", "/models"})
REHEARSAL_MODEL = "rehearsal"
CALL_PREFIX = "call_"
ROLES = ("system", "developer", "user", "assistant", "tool", "function")

failure = openai_parts.failure


def understand(body: object) -> Asked:
    """The request as asked; raises `NotUnderstood` where the protocol's server would answer 400."""
    fields, model, stream = opened(body)
    messages = _checked(fields.get("messages"))
    newest = newest_user_text(fields) or NewestText("", "")
    return Asked(
        model=model,
        stream=stream,
        session=session_of(fields, ("prompt_cache_key", "user"), messages[:2]),
        newest=newest,
        returns=_returns(messages, newest.place),
        input_tokens=estimated_tokens(sum(len(compact(fields.get(key))) for key in ("messages", "tools"))),
        counted=_counted(fields.get("stream_options"), stream=stream),
    )


def newest_user_text(body: object) -> NewestText | None:
    """The last text of the newest message with the role `user` that is a person's or the host's."""
    return newest_text(body.get("messages") if isinstance(body, Mapping) else None)


def other(method: str, path: str, body: object) -> object | None:
    """The list of models, which has one, and a single model: this server answers for every name."""
    if method != "GET":
        return None
    if path in MODELS_PATHS:
        return {"object": "list", "data": [_model(REHEARSAL_MODEL)]}
    for base in MODELS_PATHS:
        if path.startswith(f"{base}/"):
            return _model(unquote(path.removeprefix(f"{base}/")))
    return None


def whole(answer: Answer) -> object:
    """The answer as one completion."""
    text = _text(answer)
    calls = [_call(part, filled=True) for part in _called(answer)]
    message = {"role": "assistant", "content": text, "refusal": None, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(answer)}
    return {**_head(answer, "chat.completion"), "choices": [choice], "usage": _usage(answer)}


def pieces(answer: Answer) -> Iterator[Piece]:
    """The answer as chunks, at most 64 deltas a part; the last one before the end has the usage, where it is wanted."""
    yield _chunk(answer, {"role": "assistant", "content": ""})
    for cut in cuts(_text(answer) or ""):
        yield _chunk(answer, {"content": cut}, is_delta=True)
    for number, part in enumerate(_called(answer)):
        yield _chunk(answer, {"tool_calls": [{"index": number, **_call(part, filled=False)}]})
        for cut in cuts(compact(part.arguments)):
            arguments = {"index": number, "function": {"arguments": cut}}
            yield _chunk(answer, {"tool_calls": [arguments]}, is_delta=True)
    yield _chunk(answer, {}, finish_reason=_finish_reason(answer))
    if answer.counted:
        yield _data({**_head(answer, "chat.completion.chunk"), "choices": [], "usage": _usage(answer)})
    yield Piece(b"data: [DONE]\n\n", is_delta=False)


def _counted(options: object, *, stream: bool) -> bool:
    """Whether the answer tells its tokens: a stream does so only when it is asked to."""
    if options is None:
        return not stream
    if not isinstance(options, dict):
        raise NotUnderstood("stream_options: expected an object")
    if not stream:
        raise NotUnderstood("stream_options: only a stream has options")
    return options.get("include_usage") is True


def _checked(messages: object) -> list[dict[str, object]]:
    if not isinstance(messages, list) or not messages:
        raise NotUnderstood("messages: expected a list with at least one message")
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        if not isinstance(message, dict):
            raise NotUnderstood(f"{where}: expected an object")
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise NotUnderstood(f"{where}.role: expected one of {', '.join(ROLES)}")
        if role == "tool" and not isinstance(message.get("tool_call_id"), str):
            raise NotUnderstood(f"{where}.tool_call_id: expected a string")
        calls = message.get("tool_calls")
        if calls is not None and not (isinstance(calls, list) and all(isinstance(each, dict) for each in calls)):
            raise NotUnderstood(f"{where}.tool_calls: expected a list of objects")
        if content is not None or role != "assistant":
            check_content(where, content)
    _check_pairs(messages)
    return messages


def _check_pairs(messages: list[dict[str, object]]) -> None:
    """Each call of a tool is answered before the next message that is no tool's, and nothing else, as the protocol
    demands."""
    called: set[str] = set()
    left: set[str] = set()
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            call_id = str(message["tool_call_id"])
            if call_id not in called:
                raise NotUnderstood(f"messages.{index}: the message before it has no tool call {shown(call_id)}")
            left.discard(call_id)
            continue
        if left:
            raise NotUnderstood(f"messages.{index}: the tool calls before it are not all answered: {shown(min(left))}")
        calls = message.get("tool_calls")
        called = {str(call.get("id")) for call in calls} if isinstance(calls, list) else set()
        left = set(called)
    if left:
        raise NotUnderstood(f"messages.{len(messages) - 1}: its tool calls are not all answered: {shown(min(left))}")


def _returns(messages: list[dict[str, object]], place: str) -> tuple[ToolReturn, ...]:
    """What tools gave back behind the newest user text."""
    names: dict[str, str] = {}
    returns = []
    for message in messages[begins_behind(place) :]:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function")
            names[str(call.get("id"))] = str(function.get("name", "")) if isinstance(function, dict) else ""
        if message["role"] == "tool":
            call_id = str(message["tool_call_id"])
            returns.append(ToolReturn(call_id, names.get(call_id, ""), flat(message.get("content")), is_error=False))
    return tuple(returns)


def _text(answer: Answer) -> str | None:
    texts = [part.text for part in answer.parts if isinstance(part, Said)]
    return TEXT_SEPARATOR.join(texts) if texts else None


def _called(answer: Answer) -> list[Called]:
    return [part for part in answer.parts if isinstance(part, Called)]


def _finish_reason(answer: Answer) -> str:
    return "tool_calls" if _called(answer) else "stop"


def _call(part: Called, *, filled: bool) -> dict[str, object]:
    function = {"name": part.name, "arguments": compact(part.arguments) if filled else ""}
    return {"id": CALL_PREFIX + part.call_id, "type": "function", "function": function}


def _usage(answer: Answer) -> dict[str, object]:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _head(answer: Answer, kind: str) -> dict[str, object]:
    return {"id": f"chatcmpl-{answer.answer_id}", "object": kind, "created": 0, "model": answer.model}


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "buzz"}


def _chunk(
    answer: Answer, delta: Mapping[str, object], *, finish_reason: str | None = None, is_delta: bool = False
) -> Piece:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    usage = {"usage": None} if answer.counted else {}
    return _data({**_head(answer, "chat.completion.chunk"), "choices": [choice], **usage}, is_delta=is_delta)


def _data(value: object, *, is_delta: bool = False) -> Piece:
    return Piece(f"data: {compact(value)}\n\n".encode(), is_delta)
