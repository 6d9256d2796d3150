"""What an entry of the ledger is, and the one encoding that its hash is made of.

An entry holds names, numbers and digests, never a text: texts are bodies and lie beside the chain, so that erasing one
leaves the chain whole (AUD-03). Anybody can compute the hashes again from this page alone: see `chain_hash`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Literal, TypeAlias

import attrs

from buzz_author.errors import BuzzError
from buzz_author.text import well_formed

CHAIN_VERSION: Final = "buzz-ledger-1"
GENESIS: Final = "0" * 64  # what the first entry names as its previous one
SALT_BYTES: Final = 16

EntryKind = Literal["turn_sent", "steer_sent", "tool", "steer_settled", "compacted", "turn_ended", "erased", "pruned"]
FieldValue: TypeAlias = "None | bool | int | float | str | list[FieldValue] | tuple[FieldValue, ...] | Fields | Body"
Fields: TypeAlias = "Mapping[str, FieldValue]"

# How a body stands in the fields of an entry. Inside of a JSON string each quote is escaped, so neither this nor a hole
# can be imitated by a text.
REFERENCE: Final = re.compile(r'\{"bytes":(\d+),"digest":"([0-9a-f]{64})"\}')
_REFERENCE_KEY: Final = '"digest":"'
_HOLE: Final = {"": 0}
_HOLE_JSON: Final = '{"":0}'


class LedgerError(BuzzError):
    """A turn that the ledger does not have, or an entry that it cannot take."""


@attrs.frozen
class Body:
    """A text among the fields of a draft: `append` stores it, and puts its size and salted digest in its place.

    `sha256` (hexadecimal, of the UTF-8 form) may be given where it is known already. Lone surrogates become U+FFFD.
    `before` and `after` are canonical JSON to stand around the reference, for what is encoded once and used often.
    """

    text: str
    sha256: str | None = None
    before: str = ""
    after: str = ""


@attrs.frozen
class EntryDraft:
    """An entry before it has a place in the chain. `turn` is empty for an entry that belongs to no turn."""

    kind: EntryKind
    at: datetime
    turn: str
    fields: Fields


@attrs.frozen
class Entry:
    """One entry as it stands in the chain. `fields` is canonical JSON; `previous` and `hash` are hexadecimal."""

    seq: int
    kind: str
    at: str
    turn: str
    fields: str
    previous: str
    hash: str


@attrs.frozen
class Receipt:
    """Where an entry stands in the chain, once the transaction that appended it is durable."""

    seq: int
    hash: str


def chain_hash(seq: int, kind: str, at: str, turn: str, fields: str, previous: str) -> str:
    """The hash of an entry: SHA-256 over its parts, each as a netstring, which makes the encoding unambiguous.

    The parts in order: `buzz-ledger-1`, the sequence number in decimal, kind, time, turn, fields, and the hash of
    the previous entry (64 zeros for the first). A netstring is the length in bytes in decimal, `:`, the UTF-8 bytes,
    and `,`.
    """
    parts = []
    for part in (CHAIN_VERSION, str(seq), kind, at, turn, fields, previous):
        encoded = part.encode("utf-8")
        parts.append(b"%d:%b," % (len(encoded), encoded))
    return sha256(b"".join(parts)).hexdigest()


def body_digest(salt: bytes, plain: bytes) -> bytes:
    """The salted digest that an entry holds of a body: SHA-256 over the salt and the body's own SHA-256, as bytes.

    It binds the body as firmly as a hash over the body would, and costs the same for any size.
    """
    return sha256(salt + plain).digest()


def timestamp(at: datetime) -> str:
    """`at` as every entry writes it: UTC to the microsecond, always the same length. Raises `ValueError` without a
    time zone."""
    if at.tzinfo is None:
        raise ValueError("a time in the ledger needs a time zone")
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def canonical_json(value: object) -> str:
    """`value` as canonical JSON: keys sorted, no spaces, text as it is, lone surrogates as U+FFFD.

    Raises `ValueError` for a number that is not finite, `TypeError` for what is no JSON.
    """
    return well_formed(_encoder(_plain).encode(value))


def canonical_fields(fields: Fields, resolve: Callable[[list[Body]], Sequence[str]]) -> str:
    """The canonical JSON of `fields`, with a reference (`reference`) where a body stands.

    `resolve` is asked once, with all bodies in the order in which they stand in the result, for the reference of each.
    Raises `ValueError` where something that is no body would read like one.
    """
    bodies: list[Body] = []

    def hole(value: object) -> object:
        if type(value) is Body:
            bodies.append(value)
            return _HOLE
        return _plain(value)

    pieces = well_formed(_encoder(hole).encode(fields)).split(_HOLE_JSON)
    if len(pieces) != len(bodies) + 1:
        raise ValueError('fields with the key "" cannot be encoded: it marks the place of a body')
    closed: list[str] = []
    for piece, body, stored in zip(pieces, bodies, resolve(bodies), strict=False):
        closed += (piece, body.before, stored, body.after)
    closed.append(pieces[-1])
    encoded = "".join(closed)
    if encoded.count(_REFERENCE_KEY) != len(bodies):
        raise ValueError('the key "digest" is kept for bodies')
    return encoded


def reference(size: int, digest: str) -> str:
    """How a body of `size` bytes with the salted `digest` stands in the fields of an entry."""
    return f'{{"bytes":{size},"digest":"{digest}"}}'


def _encoder(default: Callable[[object], object]) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=default)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
