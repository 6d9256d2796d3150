"""Keeping a conversation within what the model can read: the oldest turns go, whole, and the newest always stays.

A turn is a message of the user with all that followed from it, so no call is parted from its result, and the sections
of the newest message are never touched.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import attrs

from harnesses.direct.transcript import Item, Said

BYTES_A_TOKEN: Final = 4
# Trimmed to this share, so that the beginning of a request stays the same for a while, and caches keep hitting.
TRIMMED_TO: Final = 0.6


def tokens(items: Sequence[Item], beside: int = 0) -> int:
    """An estimate of what `items` cost the model, with `beside` bytes of other text: four bytes a token."""
    return (sum(len(json.dumps(attrs.astuple(each))) for each in items) + beside) // BYTES_A_TOKEN


def cut(items: Sequence[Item], limit: float, beside: int = 0) -> int:
    """How many of the oldest `items` have to go so that the rest is within `limit` tokens; 0 where nothing can go."""
    starts = [n for n, each in enumerate(items) if isinstance(each, Said) and each.role == "user" and n > 0]
    for start in starts:
        if tokens(items[start:], beside) <= limit:
            return start
    return starts[-1] if starts else 0
