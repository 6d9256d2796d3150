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

GENESIS: Final = "0" * 64  # what the first entry names as its previous one
SALT_BYTES: Final = 16

EntryKind = Literal["turn_sent", "steer_sent", "tool", "steer_settled", "compacted", "turn_ended", "erased", "pruned"]
FieldValue: TypeAlias = (
    "None | bool | int | float | str | list[FieldValue] | tuple[FieldValue, ...] | Fields | Body | Encoded"
)
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
    """

    text: str
    sha256: str | None = None


@attrs.frozen
class Encoded:
    """A part of the fields that is canonical JSON already, but for the bodies in it.

    Each of `parts` is the JSON before a body, the body's text, and its SHA-256 in hexadecimal; `after` is the JSON
    behind the last of them. For what is encoded once and said in turn after turn.
    """

    parts: Sequence[tuple[str, str, str | None]]
    after: str


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
    number, of_kind, when, whose, what, before = (
        b"%d" % seq,
        kind.encode(),
        at.encode(),
        turn.encode(),
        fields.encode(),
        previous.encode(),
    )
    return sha256(
        b"13:buzz-ledger-1,%d:%b,%d:%b,%d:%b,%d:%b,%d:%b,%d:%b,"
        % (
            len(number),
            number,
            len(of_kind),
            of_kind,
            len(when),
            when,
            len(whose),
            whose,
            len(what),
            what,
            len(before),
            before,
        )
    ).hexdigest()


def body_digest(salt: bytes, plain: bytes) -> str:
    """The salted digest that an entry holds of a body, in hexadecimal: SHA-256 over its salt and its own SHA-256.

    It binds the body as firmly as a hash over the body would, and costs the same for any size.
    """
    return sha256(salt + plain).hexdigest()


def timestamp(at: datetime) -> str:
    """`at` as every entry writes it: UTC to the microsecond, always the same length. Raises `ValueError` without a
    time zone."""
    if at.tzinfo is None:
        raise ValueError("a time in the ledger needs a time zone")
    in_utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    return in_utc.isoformat(timespec="microseconds").replace("+00:00", "Z")


def canonical_json(value: object) -> str:
    """`value` as canonical JSON: keys sorted, no spaces, text as it is, lone surrogates as U+FFFD.

    Raises `ValueError` for a number that is not finite, `TypeError` for what is no JSON.
    """
    return well_formed(_encoder(_plain).encode(value))


def canonical_fields(fields: Fields, resolve: Callable[[list[str], list[str | None]], Sequence[str]]) -> str:
    """The canonical JSON of `fields`, with a reference (`reference`) where a body stands.

    `resolve` is asked once, with the texts and known hashes of all bodies in the order in which they stand in the
    result, for the reference of each. Raises `ValueError` where something that is no body would read like one.
    """
    holes: list[Encoded] = []

    def hole(value: object) -> object:
        if type(value) is Body:
            holes.append(Encoded((("", value.text, value.sha256),), ""))
        elif type(value) is Encoded:
            holes.append(value)
        else:
            return _plain(value)
        return _HOLE

    pieces = well_formed(_encoder(hole).encode(fields)).split(_HOLE_JSON)
    if len(pieces) != len(holes) + 1:
        raise ValueError('fields with the key "" cannot be encoded: it marks the place of a body')
    texts = [text for each in holes for _, text, _ in each.parts]
    references = iter(resolve(texts, [known for each in holes for _, _, known in each.parts]))
    closed = [pieces[0]]
    for filled, piece in zip(holes, pieces[1:], strict=True):
        for before, _, _ in filled.parts:
            closed.append(before)
            closed.append(next(references))
        closed.append(filled.after)
        closed.append(piece)
    encoded = "".join(closed)
    if encoded.count(_REFERENCE_KEY) != len(texts):
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
