"""What the dialects share: cutting an answer into deltas, and writing JSON so that every client can read it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

DELTAS_PER_BLOCK_MAX = 64
DELTA_MIN_CHARACTERS = 16
# Between two texts of one answer, for a protocol that has one text an answer.
TEXT_SEPARATOR = "\n\n"


def cuts(text: str) -> Iterator[str]:
    """`text` in pieces of at least 16 characters, at most 64 of them."""
    size = max(DELTA_MIN_CHARACTERS, -(-len(text) // DELTAS_PER_BLOCK_MAX))
    for start in range(0, len(text), size):
        yield text[start : start + size]


def compact(value: object) -> str:
    """`value` as JSON in ASCII: an escaped lone surrogate of the request survives an echo, and no client's line
    splitter sees U+2028."""
    return json.dumps(value, separators=(",", ":"))


def mark_of(value: object) -> str:
    """A short name for a value, for telling conversations apart where their protocol names none."""
    return hashlib.sha256(compact(value).encode("ascii")).hexdigest()[:16]
