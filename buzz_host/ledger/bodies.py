"""Texts beside the chain: each stored once, however often it is said, and found again by what it is.

The same instructions stand in turn after turn, so a body is looked up by its plain SHA-256 before it is stored. An
index of such hashes costs one page for each new body. Hence two levels: `body_keys` for all but the newest bodies,
filled many at a time and in order; the newest few thousand this process remembers, reading what others added meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, TypeAlias

import attrs

from buzz_author.text import well_formed
from buzz_host.ledger.entries import SALT_BYTES, body_digest, reference
from buzz_host.store import Transaction

NEWEST_MAX_BODIES: Final = 4096  # then they go into body_keys: 10 to 40 ms, once in some hundred turns
SEEN_AGAIN_MAX_BODIES: Final = 4096
KEYS_A_QUERY: Final = (4, 24)  # a usual turn says two or three new things; two statements are prepared, not twenty
KEY_BYTES: Final = 8

Place: TypeAlias = tuple[int, str]  # the id of a body in the database, and its salted digest

_REMEMBERED: Final = "ledger.bodies"
_OLDER: Final = {
    number: "WITH wanted (key) AS (VALUES "
    + ",".join(["(?)"] * number)
    + ") SELECT b.sha256, b.id, b.salt FROM wanted AS w CROSS JOIN body_keys AS k ON k.key = w.key"
    " CROSS JOIN bodies AS b ON b.id = k.id"
    for number in KEYS_A_QUERY
}


@attrs.define
class _Known:
    """What this process knows of the bodies. `newest` are all beyond `upto`, `again` some older ones, both by SHA-256.

    Exact while nobody else writes; `version` (SQLite's `data_version`) tells whether somebody did.
    """

    version: int
    upto: int
    last: int
    newest: dict[bytes, Place]
    again: dict[bytes, Place]
    exact: bool = True


def keep(tx: Transaction, texts: Sequence[str], known_hashes: Sequence[str | None]) -> tuple[list[str], list[int]]:
    """Store those of `texts` that are not there yet; gives, in order, the reference and the id of each.

    `known_hashes` holds the SHA-256 of each text in hexadecimal, or None where it has to be computed.
    """
    known = _known(tx)
    try:
        encoded = [text.encode() for text in texts]
    except UnicodeEncodeError:
        encoded = [well_formed(text).encode() for text in texts]
        known_hashes = [None] * len(texts)
    hashes = [
        bytes.fromhex(given) if given is not None else sha256(text).digest()
        for given, text in zip(known_hashes, encoded, strict=True)
    ]
    places = _places(tx, known, hashes)
    fresh = {plain: text for plain, text in zip(hashes, encoded, strict=True) if plain not in places}
    if fresh:
        _store(tx, known, places, fresh)
    found = [places[plain] for plain in hashes]
    references = [reference(len(text), digest) for text, (_, digest) in zip(encoded, found, strict=True)]
    return references, [number for number, _ in found]


def _store(tx: Transaction, known: _Known, places: dict[bytes, Place], fresh: dict[bytes, bytes]) -> None:
    """Store the texts `fresh`, by SHA-256, and enter their places."""
    random = os.urandom(SALT_BYTES * len(fresh))
    salts = [random[at : at + SALT_BYTES] for at in range(0, len(random), SALT_BYTES)]
    numbers = range(known.last + 1, known.last + 1 + len(fresh))
    tx.executemany(
        "INSERT INTO bodies (id, salt, sha256, body) VALUES (?, ?, ?, ?)",
        zip(numbers, salts, fresh.keys(), fresh.values(), strict=True),
    )
    made = {
        plain: (number, sha256(salt + plain).hexdigest())
        for number, salt, plain in zip(numbers, salts, fresh, strict=True)
    }
    places.update(made)
    known.newest.update(made)
    known.last = numbers[-1]
    if len(known.newest) > NEWEST_MAX_BODIES:
        _index_newest(tx, known)


def _places(tx: Transaction, known: _Known, hashes: list[bytes]) -> dict[bytes, Place]:
    """Where those of `hashes` are that are stored."""
    places: dict[bytes, Place] = {}
    unknown: list[bytes] = []
    newest, again, exact = known.newest, known.again, known.exact
    for plain in hashes:
        place = newest.get(plain) or again.get(plain)
        if place is None:
            unknown.append(plain)
        elif exact or _still_there(tx, place[0], plain):
            places[plain] = place
    if unknown and known.upto:
        wanted = set(unknown)
        # In order, so that neighbours share a page; filled up, so that the statement is always the same one.
        keys = sorted([plain[:KEY_BYTES] for plain in wanted])
        few, many = KEYS_A_QUERY
        size = few if len(keys) <= few else many
        for start in range(0, len(keys), size):
            asked = keys[start : start + size]
            asked += asked[-1:] * (size - len(asked))
            for plain, number, salt in tx.execute(_OLDER[size], asked):
                if plain in wanted:
                    places[plain] = again[plain] = (number, body_digest(salt, plain))
    return places


def _still_there(tx: Transaction, number: int, plain: bytes) -> bool:
    return tx.execute("SELECT 1 FROM bodies WHERE id = ? AND sha256 = ?", (number, plain)).fetchone() is not None


def _known(tx: Transaction) -> _Known:
    version = int(tx.execute("PRAGMA data_version").fetchone()[0])
    known = tx.remembered.get(_REMEMBERED)
    if not isinstance(known, _Known):
        upto = _upto(tx)
        known = _Known(version, upto, upto, {}, {})
        tx.remembered[_REMEMBERED] = known
        _read_newest(tx, known)
    elif known.version != version:
        known.version = version
        known.exact = False
        known.upto = _upto(tx)
        _read_newest(tx, known)
        if len(known.newest) > 2 * NEWEST_MAX_BODIES:
            # Others have moved most of these into body_keys meanwhile.
            known.newest = {plain: place for plain, place in known.newest.items() if place[0] > known.upto}
    if len(known.again) > SEEN_AGAIN_MAX_BODIES:
        known.again.clear()
    return known


def _upto(tx: Transaction) -> int:
    return int(tx.execute("SELECT id FROM body_keys_upto").fetchone()[0])


def _read_newest(tx: Transaction, known: _Known) -> None:
    query = "SELECT sha256, id, salt FROM bodies WHERE id > ? ORDER BY id"
    for plain, number, salt in tx.execute(query, (known.last,)):
        known.newest[plain] = (number, body_digest(salt, plain))
        known.last = number


def _index_newest(tx: Transaction, known: _Known) -> None:
    tx.execute(
        "INSERT INTO body_keys (key, id) SELECT substr(sha256, 1, ?), id FROM bodies WHERE id > ? ORDER BY 1",
        (KEY_BYTES, known.upto),
    )
    tx.execute("UPDATE body_keys_upto SET id = ?", (known.last,))
    known.upto = known.last
    known.newest.clear()
