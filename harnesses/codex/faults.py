"""What goes wrong in Codex, as one `HarnessError`: by the HTTP status that it tells, else by its own name, else by its
words (HAR-03)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from buzz_author.harness import ErrorKind, HarnessError
from buzz_author.json_values import JsonObject, JsonValue
from harnesses.stdio import faults

_NAMED: Final[Mapping[str, ErrorKind]] = {
    "badRequest": "invalid-request",
    "contextWindowExceeded": "invalid-request",
    "internalServerError": "overloaded",
    "modelNotFound": "invalid-request",
    "rateLimitExceeded": "rate-limit",
    "serverOverloaded": "overloaded",
    "unauthorized": "authentication",
    "usageLimitExceeded": "rate-limit",
}

# What it says in place of an answer of 500 and more, whose status it keeps to itself.
_BUSY: Final = "currently experiencing high demand"


def of_turn(error: JsonObject) -> HarnessError:
    """The fault for an error that the program tells: its words, what it says of it, and its name for it."""
    said = [str(error[key]) for key in ("message", "additionalDetails") if error.get(key)]
    native = ": ".join(dict.fromkeys(said)) or "Codex did not say what failed"
    info = error.get("codexErrorInfo")
    status = _status(info)
    if status is not None:
        return faults.of_status(status, native)
    if isinstance(info, str) and info in _NAMED:
        kind = _NAMED[info]
        return HarnessError(kind, native, retryable=kind in faults.RETRYABLE)
    if _BUSY in native:
        return HarnessError("overloaded", native, retryable=True)
    if _refused(str(error.get("message", ""))):
        return faults.refused(native)
    return faults.of_words(native)


def _status(info: JsonValue) -> int | None:
    if not isinstance(info, Mapping):
        return None
    for each in info.values():
        status = each.get("httpStatusCode") if isinstance(each, Mapping) else None
        if isinstance(status, int):
            return status
    return None


def _refused(message: str) -> bool:
    """Whether the words are the body of an answer that refuses the request: it tells no status then."""
    try:
        body = json.loads(message)
    except ValueError:
        return False
    error = body.get("error") if isinstance(body, dict) else None
    return isinstance(error, dict) and str(error.get("type", "")).startswith("invalid_request")
