"""What goes wrong in goose, as one `HarnessError` (HAR-03).

goose reports most faults of a model as an ordinary message of the assistant. Such a message is its own: it carries an
id that goose made, comes whole, and begins with certain words. A provider that gives its answers no ids gets ids of
goose's making, too; so the message is a fault only when the run ends behind it without goose having counted tokens,
which it does after every answer of a model, even of one that tells none.
"""

from __future__ import annotations

import re
from typing import Final

from buzz_author.harness import HarnessError
from buzz_author.jsonrpc import RpcError
from harnesses.stdio import faults

OWN_ID: Final = re.compile(r"msg_[0-9a-f]{8}-[0-9a-f-]{27}")
BEGINNINGS: Final = (
    "Ran into this error",
    "Network error: ",
    "Server error: ",
    "Authentication error: ",
    "The model returned an empty response",
)
_ENDINGS: Final = (
    "\n\nPlease retry if you think this is a transient or recoverable error.",
    "\n\nPlease resend your message to try again.",
)
_STATUS = re.compile(r"\((\d{3})\b[^)]*\)|\bstatus:? (\d{3})\b")
_NAMED: Final = (("Rate limit exceeded", 429), ("Authentication", 401))
# What it says where no other request would go better.
_TOO_LONG: Final = ("Context length exceeded", "Unable to continue: Context limit")
NO_ANSWER: Final = "goose ended the run without an answer of the model"
NOT_LOGGED_IN: Final = -32000


def may_be_told(message_id: str, text: str) -> bool:
    """Whether this is how goose tells a fault; what comes behind it shows whether it is one."""
    return OWN_ID.fullmatch(message_id) is not None and text.startswith(BEGINNINGS)


def told(text: str) -> HarnessError:
    """The fault that goose tells in a message of its own, or in a notice."""
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
    if native.startswith(_TOO_LONG):
        return faults.refused(native)
    return faults.of_words(native)


def of_answer(error: RpcError) -> HarnessError:
    """The fault for a request that goose refuses."""
    said = error.message if error.details is None else f"{error.message}: {error.details}"
    if error.code == NOT_LOGGED_IN:
        return HarnessError("authentication", said)  # 401 or 403: it does not say
    return faults.refused(said)
