"""What goose reads in a text beside its words, and how it is kept from doing so.

A message that begins with `/` may be a command (`/compact`, `/clear`), or pull a skill in. A word joiner (U+2060,
invisible, without width) in front keeps it a message. Turns that Buzz composes begin with a section and need none.
"""

from __future__ import annotations

from typing import Final

WORD_JOINER: Final = "\u2060"


def encoded(text: str) -> str:
    """`text`, kept from being a command."""
    return WORD_JOINER + text if text.lstrip().startswith("/") else text
