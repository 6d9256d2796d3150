"""What the dialects share: cutting an answer into deltas, and writing JSON so that every client can read it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from buzz_host.rehearsal.neutral import NotUnderstood

DELTAS_PER_BLOCK_MAX = 64
DELTA_MIN_CHARACTERS = 16
# Between two texts of one answer, for a protocol that has one text an answer.
TEXT_SEPARATOR = "\n\n"


def opened(body: object) -> tuple[Mapping[str, object], str, bool]:
    """What every request has: its fields, the model, and whether to stream; raises `NotUnderstood`."""
    if not isinstance(body, dict):
        raise NotUnderstood("the body must be a JSON object")
    model, stream = body.get("model"), body.get("stream")
    if not isinstance(model, str) or not model:
        raise NotUnderstood("model: expected a string")
    if stream is not None and not isinstance(stream, bool):
        raise NotUnderstood("stream: expected true or false")
    return body, model, bool(stream)


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
