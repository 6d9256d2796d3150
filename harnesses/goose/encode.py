"""What goose does to a text beside handing it on, done here first, so that the ledger holds what the model reads.

A message that begins with `/` may be a command (`/compact`, `/clear`), or pull a skill in. A word joiner (U+2060,
invisible, without width) in front keeps it a message. Turns that Buzz composes begin with a section and need none.
goose takes tag characters out of every message, and puts the rest in Unicode's composed form (NFC).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

WORD_JOINER: Final = "\u2060"
_TAG_CHARACTERS: Final = re.compile("[\U000e0000-\U000e007f]")


def encoded(text: str) -> str:
    """`text` as goose hands it on, kept from being a command."""
    composed = unicodedata.normalize("NFC", _TAG_CHARACTERS.sub("", text))
    return WORD_JOINER + composed if composed.lstrip().startswith("/") else composed
