"""What the two OpenAI protocols share: texts in their messages, what tools gave back, sessions, and the error body."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from buzz_host.rehearsal.neutral import NewestText, NotUnderstood
from buzz_host.rehearsal.wire import mark_of

TEXT_TYPES = ("input_text", "output_text", "text")
ID_SHOWN_CHARACTERS = 80
IMAGES_FOLLOW = "Attached image(s) from tool result:"
# What Codex, and goose over Responses, write in the role of a user: an opening line, and how the text then ends.
PROGRAM_TEXTS = (
    ("<skill>", "</skill>"),
    ("<environment_context>", "</environment_context>"),
    ("<turn_aborted>", "</turn_aborted>"),
    ("# AGENTS.md instructions", "</INSTRUCTIONS>"),
    ("<turn-context>", "</turn-context>"),
)
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}
ERROR_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded", 503: "server_is_overloaded"}


def failure(status: int, message: str) -> object:
    """The protocols' error object; an unlisted status is the client's fault below 500, the server's from there."""
    kind = ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": ERROR_CODES.get(status)}}


def newest_text(messages: object) -> NewestText | None:
    """The last text of the newest message with the role `user` that a person or the host wrote.

    Programs write in that role too, behind the person's text: Codex the body of a skill that a text names, goose its
    turn-context, goose and Pi the images of a tool's result.
    """
    for index, message in reversed(list(enumerate(messages if isinstance(messages, list) else []))):
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        content: object = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        parts = content if isinstance(content, list) else []
        images = any(isinstance(part, dict) and part.get("type") == "image_url" for part in parts)
        for number, part in reversed(list(enumerate(parts))):
            text: object = part.get("text") if isinstance(part, dict) and part.get("type") in TEXT_TYPES else None
            if isinstance(text, str) and not _programs_own(text, images=images):
                return NewestText(text, f"{index}.{number}")
    return None


def _programs_own(text: str, *, images: bool) -> bool:
    if images and text == IMAGES_FOLLOW:
        return True
    return any(text.startswith(opening) and text.rstrip().endswith(ending) for opening, ending in PROGRAM_TEXTS)


def check_content(where: str, content: object) -> None:
    """A message's content is a string, or parts with a type; raises `NotUnderstood`."""
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise NotUnderstood(f"{where}.content: expected a string or a list of parts")
    for number, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise NotUnderstood(f"{where}.content.{number}: expected an object with a type")
        if part["type"] in TEXT_TYPES and not isinstance(part.get("text"), str):
            raise NotUnderstood(f"{where}.content.{number}.text: expected a string")


def flat(output: object) -> str:
    """What a tool gave back, as text; a part that is none is named by its type."""
    if isinstance(output, str):
        return output
    parts = [part for part in output if isinstance(part, dict)] if isinstance(output, list) else []
    return "\n".join(part["text"] if isinstance(part.get("text"), str) else f"[{part.get('type')}]" for part in parts)


def shown(call_id: object) -> str:
    """An id as a line of an error may hold it."""
    return repr(str(call_id)[:ID_SHOWN_CHARACTERS])


def begins_behind(place: str) -> int:
    """The number of the message in which the newest text stands, from which on tools answer this turn."""
    return int(place.partition(".")[0]) if place else 0


def session_of(body: Mapping[str, object], keys: Collection[str], beginning: object) -> str:
    """What tells this conversation from others: what the request names it by, else a hash of its beginning."""
    named = (body.get(key) for key in keys)
    return next((name for name in named if isinstance(name, str) and name), mark_of(beginning))
