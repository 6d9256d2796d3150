"""What goes wrong in goose, as one `HarnessError` (HAR-03).

goose reports most faults of a model as an ordinary message of the assistant. Such a message is its own: it carries an
id that goose made, comes whole, and begins with certain words; a model that says the same words has the provider's id
on them. Only where a provider gives its answers no ids could the two be mistaken.
"""

from __future__ import annotations

import re
from typing import Final

from buzz_author.harness import HarnessError
from buzz_author.jsonrpc import RpcError
from harnesses.stdio import faults

OWN_ID: Final = re.compile(r"msg_[0-9a-f]{8}-[0-9a-f-]{27}")
BEGINNINGS: Final = ("Ran into this error: ", "Network error: ", "Server error: ", "Authentication error: ")
_ENDINGS: Final = (
    "\n\nPlease retry if you think this is a transient or recoverable error.",
    "\n\nPlease resend your message to try again.",
)
_STATUS = re.compile(r"\((\d{3})\b[^)]*\)|\bstatus:? (\d{3})\b")
_NAMED: Final = (("Rate limit exceeded", 429), ("Context length exceeded", 413), ("Authentication", 401))
NOT_LOGGED_IN: Final = -32000


def told(message_id: str, text: str) -> HarnessError | None:
    """The fault that goose tells in a message of its own; None for what is no such message."""
    if not OWN_ID.fullmatch(message_id) or not text.startswith(BEGINNINGS):
        return None
    native = text
    for ending in _ENDINGS:
        native = native.removesuffix(ending)
    native = native.removeprefix("Ran into this error: ")
    return of_words(native)


def of_words(native: str) -> HarnessError:
    """The fault for goose's words: by the status in them, by its name for a fault, else by what they sound like."""
    found = _STATUS.search(native)
    if found is not None:
        return faults.of_status(int(found[1] or found[2]), native)
    for name, status in _NAMED:
        if native.startswith(name):
            return faults.of_status(status, native)
    return faults.of_words(native)


def of_answer(error: RpcError) -> HarnessError:
    """The fault for a request that goose refuses."""
    said = error.message if error.details is None else f"{error.message}: {error.details}"
    if error.code == NOT_LOGGED_IN:
        return HarnessError("authentication", said, status=401)
    return faults.refused(said)
