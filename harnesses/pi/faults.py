"""What goes wrong in Pi, as one `HarnessError`: by the HTTP status in front of its words, else by them (HAR-03).

Pi hands on what the endpoint said: `401: {…}`, `429 rate limited`, `500 status code (no body)`, or the words of a
connection that broke.
"""

from __future__ import annotations

import re

from buzz_author.harness import HarnessError
from harnesses.stdio import faults

_STATUS = re.compile(r"^\s*(?:[A-Za-z ]{0,40}\()?([45]\d\d)\b")
_NO_KEY = re.compile(
    r"No API key|No models? (?:available|selected)|API key (?:is )?(?:missing|required)|Authentication failed|/login",
    re.IGNORECASE,
)
_BROKEN_OFF = re.compile(r"terminated|ended without|premature|stream ended|aborted", re.IGNORECASE)


def of_words(native: str) -> HarnessError:
    """The fault for an error that the program tells."""
    found = _STATUS.match(native)
    if found is not None:
        return faults.of_status(int(found.group(1)), native)
    if _NO_KEY.search(native):
        return HarnessError("authentication", native)
    fault = faults.of_words(native)
    if fault.kind == "unknown" and _BROKEN_OFF.search(native):
        return HarnessError("connection", native, retryable=True)
    return fault


def refusal(native: str) -> HarnessError:
    """The fault for what the program does not do as it is asked: there is no key, or a command that it refuses."""
    return HarnessError("authentication" if _NO_KEY.search(native) else "invalid-request", native)
