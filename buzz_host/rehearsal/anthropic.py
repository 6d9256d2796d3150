"""Anthropic Messages: `POST /v1/messages`, streamed and not, and the counting of tokens.

What it reads and writes follows the protocol's public reference and what Claude Code really sends: content as a
string or as blocks, tool results inside user messages, texts of failed turns sent again in front of the newest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
from buzz_host.rehearsal.script import opens_event
from buzz_host.rehearsal.wire import compact, cuts, opened

ANSWER_PATHS = frozenset({"/v1/messages"})
COUNT_PATH = "/v1/messages/count_tokens"
REMINDER = "<system-reminder>"
SKILL_TOOL = "Skill"
INTERRUPTED = "[Request interrupted by user"
CALL_PREFIX = "toolu_"
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def understand(body: object) -> Asked:
    """The request as asked; raises `NotUnderstood` where the protocol's server would answer 400."""
    fields, model, stream = opened(body)
    messages = _checked(fields.get("messages"))
    newest = newest_user_text(body) or NewestText("", "")
    return Asked(
        model=model,
        stream=stream,
        session=_session(fields),
        newest=newest,
        returns=_returns(messages, newest.place),
        input_tokens=_input_tokens(fields),
    )


def newest_user_text(body: object) -> NewestText | None:
    """The last text block of the newest user message that is a person's or the host's, not a tool's.

    After a turn that failed or was interrupted behind a tool call, programs put the next text into the message that
    holds the tool's result. Their own texts stand there too and do not count: reminders, the note of the interruption,
    and one block for each skill that was launched.
    """
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list):
        return None
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, str):
            return NewestText(content, f"{index}.0")
        before = messages[index - 1] if index else None
        found = _newest_block(content if isinstance(content, list) else [], _skill_calls(before))
        if found is not None:
            block, text = found
            return NewestText(text, f"{index}.{block}")
    return None


def other(method: str, path: str, body: object) -> object | None:
    """The answer to `count_tokens`, the one side request of this protocol that harnesses make."""
    if method != "POST" or path != COUNT_PATH:
        return None
    if not isinstance(body, dict):
        raise NotUnderstood("the body must be a JSON object")
    _checked(body.get("messages"))
    return {"input_tokens": _input_tokens(body)}


def whole(answer: Answer) -> object:
    """The answer as one message object."""
    return {
        **_message(answer),
        "content": [_block(part, filled=True) for part in answer.parts],
        "stop_reason": _stop_reason(answer),
        "usage": _usage(answer, answer.output_tokens),
    }


def pieces(answer: Answer) -> Iterator[Piece]:
    """The answer as server-sent events, at most 64 deltas a block."""
    yield _event("message_start", {"message": {**_message(answer), "usage": _usage(answer, 1)}})
    for index, part in enumerate(answer.parts):
        yield _event("content_block_start", {"index": index, "content_block": _block(part, filled=False)})
        if isinstance(part, Said):
            kind, key, text = "text_delta", "text", part.text
        else:
            kind, key, text = "input_json_delta", "partial_json", compact(part.arguments)
        for cut in cuts(text):
            yield _event("content_block_delta", {"index": index, "delta": {"type": kind, key: cut}}, is_delta=True)
        yield _event("content_block_stop", {"index": index})
    ending = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    yield _event("message_delta", {"delta": ending, "usage": {"output_tokens": answer.output_tokens}})
    yield _event("message_stop", {})


def failure(status: int, message: str) -> object:
    """The protocol's error object; an unlisted status is the client's fault below 500, the server's from there."""
    kind = ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def _checked(messages: object) -> list[dict[str, object]]:
    if not isinstance(messages, list) or not messages:
        raise NotUnderstood("messages: expected a list with at least one message")
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        if not isinstance(message, dict):
            raise NotUnderstood(f"{where}: expected an object")
        if message.get("role") not in ("user", "assistant", "system"):
            raise NotUnderstood(f"{where}.role: expected user or assistant")
        content = message.get("content")
        if isinstance(content, str):
            continue
        if not isinstance(content, list):
            raise NotUnderstood(f"{where}.content: expected a string or a list of blocks")
        for number, block in enumerate(content):
            if not isinstance(block, dict) or not isinstance(block.get("type"), str):
                raise NotUnderstood(f"{where}.content.{number}: expected an object with a type")
            if block["type"] == "text" and not isinstance(block.get("text"), str):
                raise NotUnderstood(f"{where}.content.{number}.text: expected a string")
    return messages


def _newest_block(blocks: list[object], skill_calls: frozenset[str]) -> tuple[int, str] | None:
    after_result, skill_bodies = False, 0
    found: tuple[int, str] | None = None
    for number, block in enumerate(blocks):
        if not isinstance(block, dict):
            continue
        if block.get("type") == "tool_result":
            after_result, found = True, None
            launched = block.get("tool_use_id") in skill_calls and block.get("is_error") is not True
            skill_bodies += 1 if launched else 0
        text = block.get("text")
        if block.get("type") != "text" or not isinstance(text, str):
            continue
        if not after_result or any(map(opens_event, text.split("\n"))):
            found = number, text
        elif text.startswith((REMINDER, INTERRUPTED)):
            continue
        elif skill_bodies:
            skill_bodies -= 1
        else:
            found = number, text
    return found


def _skill_calls(message: object) -> frozenset[str]:
    content = message.get("content") if isinstance(message, dict) else None
    return frozenset(
        str(block.get("id"))
        for block in (content if isinstance(content, list) else [])
        if isinstance(block, dict) and block.get("type") == "tool_use" and block.get("name") == SKILL_TOOL
    )


def _returns(messages: list[dict[str, object]], place: str) -> tuple[ToolReturn, ...]:
    """What tools gave back behind the newest user text."""
    first, _, block = place.partition(".")
    start, start_block = (int(first), int(block)) if first else (0, -1)
    names: dict[str, str] = {}
    returns: list[ToolReturn] = []
    for index in range(start, len(messages)):
        content = messages[index].get("content")
        for number, part in enumerate(content if isinstance(content, list) else []):
            if index == start and number <= start_block:
                continue
            call_id = str(part.get("tool_use_id") or part.get("id") or "")
            if part["type"] == "tool_use":
                names[call_id] = str(part.get("name", ""))
            elif part["type"] == "tool_result":
                text, notices = _flat(part.get("content"))
                is_error = part.get("is_error") is True
                returns.append(ToolReturn(call_id, names.get(call_id, ""), text, is_error, notices))
    return tuple(returns)


def _flat(content: object) -> tuple[str, tuple[str, ...]]:
    """A tool result as text, apart from the reminders that the program appended as blocks of their own."""
    if isinstance(content, str):
        return content, ()
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts = [block["text"] if isinstance(block.get("text"), str) else f"[{block.get('type')}]" for block in blocks]
    notices = tuple(text for text in texts[1:] if text.startswith(REMINDER))
    return "\n".join(text for text in texts if text not in notices), notices


def _session(body: Mapping[str, object]) -> str:
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    return user if isinstance(user, str) else ""


def _input_tokens(body: Mapping[str, object]) -> int:
    return estimated_tokens(sum(len(compact(body.get(key))) for key in ("system", "messages", "tools")))


def _message(answer: Answer) -> dict[str, object]:
    return {
        "id": f"msg_{answer.answer_id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _usage(answer: Answer, output_tokens: int) -> dict[str, int]:
    return {
        "input_tokens": answer.input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
    }


def _stop_reason(answer: Answer) -> str:
    return "end_turn" if all(isinstance(part, Said) for part in answer.parts) else "tool_use"


def _block(part: object, *, filled: bool) -> dict[str, object]:
    if isinstance(part, Said):
        return {"type": "text", "text": part.text if filled else ""}
    assert isinstance(part, Called)
    return {
        "type": "tool_use",
        "id": CALL_PREFIX + part.call_id,
        "name": part.name,
        "input": part.arguments if filled else {},
    }


def _event(kind: str, fields: Mapping[str, object], *, is_delta: bool = False) -> Piece:
    return Piece(f"event: {kind}\ndata: {compact({'type': kind, **fields})}\n\n".encode(), is_delta)
