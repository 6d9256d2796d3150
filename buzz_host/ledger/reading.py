"""What is read back from the ledger, each text only where it is what was recorded.

An entry vouches for its fields by its hash, and for each of its texts by a salted digest. Whoever shows a text asks
here, so that none is shown that somebody put in the place of another: it is lost then, and said to be (AUD-03). The
chain from entry to entry is for `verify`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal

import attrs

from buzz_host.ledger.entries import REFERENCE, body_digest, chain_hash

Lost = Literal["changed", "gone"]

_BODIES: Final = """
    SELECT b.id, CAST(b.salt AS BLOB), CAST(b.sha256 AS BLOB), CAST(b.body AS BLOB)
    FROM json_each(?) AS j CROSS JOIN bodies AS b ON b.id = j.value
"""
# Casts, since somebody who changes a column may change its type, and such an entry is to be told, not to raise.
ENTRY_COLUMNS: Final = (
    "e.seq, CAST(e.kind AS BLOB), CAST(e.at AS BLOB), CAST(e.turn AS BLOB), CAST(e.previous AS BLOB),"
    " CAST(e.hash AS BLOB), CAST(e.bodies AS BLOB), CAST(e.fields AS BLOB)"
)


@attrs.frozen
class Kept:
    """A text of an entry as it can be told. `sha256` (of the text as it was recorded) is known even of a text that was
    changed, unless its salt or that hash was changed as well."""

    text: str | None
    sha256: str | None
    lost: Lost | None


GONE: Final = Kept(None, None, "gone")
CHANGED: Final = Kept(None, None, "changed")


@attrs.frozen
class EntryRow:
    """One entry as a query reads it, with its texts by salted digest, and the digest of each body that it lists by the
    body's id. `intact` is whether its hash is that of its fields: where it is not, none of its texts is told."""

    seq: int
    kind: str
    at: str
    turn: str
    hash: bytes
    fields: str
    intact: bool
    texts: Mapping[str, Kept]
    digests: Mapping[int, str]

    def kept(self, reference: Mapping[str, Any]) -> Kept:
        """The text that stands in the fields as `reference`."""
        return self.texts.get(reference["digest"], GONE)

    def text(self, reference: Mapping[str, Any] | None) -> str | None:
        """The text alone; None where it is lost, and for no reference."""
        return None if reference is None else self.kept(reference).text

    def lost(self, reference: Mapping[str, Any] | None) -> Lost | None:
        """Whether the text is lost, and how."""
        return None if reference is None else self.kept(reference).lost


def entries_of(
    connection: sqlite3.Connection, rows: Iterable[Sequence[Any]], *, texts: bool = True
) -> tuple[EntryRow, ...]:
    """The entries of `rows`, each with `ENTRY_COLUMNS`, with their texts unless `texts` is false."""
    # The ids of the bodies are decoded, the rest as it was hashed.
    raw = [(row[0], *[each or b"" for each in row[1:]]) for row in rows]
    wanted: set[int] = set()
    listed: list[list[int]] = []
    for row in raw:
        numbers = numbers_in(row[6].decode("utf-8", "replace")) if texts else []
        listed.append(numbers)
        wanted.update(numbers)
    bodies = {number: rest for number, *rest in connection.execute(_BODIES, (json.dumps(sorted(wanted)),))}
    # What turns repeat is hashed once.
    judged: dict[tuple[int, str], Kept] = {}

    def kept(number: int, digest: str) -> Kept:
        place = (number, digest)
        if place not in judged:
            judged[place] = checked(digest, *bodies[number]) if number in bodies else GONE
        return judged[place]

    return tuple(_entry(row, numbers, kept if texts else None) for row, numbers in zip(raw, listed, strict=True))


def numbers_in(bodies: str) -> list[int]:
    """The ids of bodies that an entry lists; -1, which no body has, for what is no id."""
    parts = bodies.split(",") if bodies else []
    return [int(each) if each.isascii() and each.isdecimal() and len(each) < 19 else -1 for each in parts]


def checked(recorded: str, salt: bytes | None, plain: bytes | None, body: bytes | None) -> Kept:
    """What a body is worth as the text with the salted digest `recorded`: one SHA-256 over it decides."""
    if body_digest(salt or b"", plain or b"") != recorded:
        return CHANGED
    if sha256(body or b"").digest() != plain:
        return Kept(None, (plain or b"").hex(), "changed")
    return Kept((body or b"").decode("utf-8", "replace"), (plain or b"").hex(), None)


def lost_texts(entry: EntryRow) -> Iterator[tuple[str, Lost, Mapping[str, Any]]]:
    """Each text of `entry` that is lost: where in the fields it stands, how it is lost, and the object around it."""
    if any(each.lost for each in entry.texts.values()):
        yield from _lost(entry, json.loads(entry.fields), "", {})


def _lost(entry: EntryRow, value: object, path: str, holder: Mapping[str, Any]) -> Iterator[tuple[str, Lost, Any]]:
    if isinstance(value, dict):
        if "digest" in value:
            lost = entry.lost(value)
            if lost is not None:
                yield path, lost, holder
            return
        for key, inner in value.items():
            yield from _lost(entry, inner, f"{path}.{key}" if path else key, value)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _lost(entry, inner, f"{path}[{number}]", holder)


def _entry(row: Sequence[Any], numbers: list[int], kept_at: Callable[[int, str], Kept] | None) -> EntryRow:
    seq, kind, at, turn, fields = row[0], *[row[place].decode("utf-8", "replace") for place in (1, 2, 3, 7)]
    previous, made = row[4], row[5]
    intact = chain_hash(seq, kind, at, turn, fields, previous.hex()) == made.hex()
    kept: dict[str, Kept] = {}
    listed: dict[int, str] = {}
    if kept_at is not None:
        digests = [digest for _, digest in REFERENCE.findall(fields)]
        # The list of ids is no part of the hash: where it cannot be the one that was written, nothing can be found.
        found = numbers if len(numbers) == len(digests) else [-1] * len(digests)
        for number, digest in zip(found, digests, strict=True):
            if number >= 0:
                listed[number] = digest
            if not intact or number < 0:
                kept[digest] = CHANGED
            elif digest not in kept or kept[digest].lost is not None:
                kept[digest] = kept_at(number, digest)
    return EntryRow(seq, kind, at, turn, made, fields, intact, kept, listed)
