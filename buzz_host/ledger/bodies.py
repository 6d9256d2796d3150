"""Texts beside the chain: each stored once, however often it is said, and found again by what it is.

The same instructions stand in turn after turn, so a body is looked up by its plain SHA-256 before it is stored. An
index of such hashes costs one page for each new body. Hence two levels: `body_keys` for all but the newest bodies,
filled many at a time and in order; the newest few thousand this process remembers, reading what others added meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, TypeAlias

import attrs

from buzz_author.text import well_formed
from buzz_host.ledger.entries import SALT_BYTES, Body, body_digest, reference
from buzz_host.store import Transaction

NEWEST_MAX_BODIES: Final = 4096  # then they go into body_keys: 10 to 40 ms, once in some hundred turns
SEEN_AGAIN_MAX_BODIES: Final = 4096
KEYS_A_QUERY: Final = 24
SALTS_AT_ONCE: Final = 32
KEY_BYTES: Final = 8

Place: TypeAlias = tuple[int, bytes]  # the id of a body in the database, and its salted digest

_REMEMBERED: Final = "ledger.bodies"
_OLDER: Final = (
    "WITH wanted (key) AS (VALUES "
    + ",".join(["(?)"] * KEYS_A_QUERY)
    + ") SELECT b.sha256, b.id, b.digest FROM wanted AS w CROSS JOIN body_keys AS k ON k.key = w.key"
    " CROSS JOIN bodies AS b ON b.id = k.id"
)


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


def keep(tx: Transaction, bodies: Sequence[Body]) -> tuple[list[str], list[int]]:
    """Store those of `bodies` that are not there yet; gives, in order, the reference and the id of each."""
    known = _known(tx)
    texts: list[bytes] = []
    hashes: list[bytes] = []
    for body in bodies:
        text, given = body.text, body.sha256
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            encoded, given = well_formed(text).encode(), None
        texts.append(encoded)
        hashes.append(bytes.fromhex(given) if given is not None else sha256(encoded).digest())
    places = _places(tx, known, hashes)
    if len(places) < len(set(hashes)):
        _store(tx, known, places, zip(texts, hashes, strict=True))
    references: list[str] = []
    ids: list[int] = []
    for encoded, plain in zip(texts, hashes, strict=True):
        number, digest = places[plain]
        ids.append(number)
        references.append(reference(len(encoded), digest.hex()))
    return references, ids


def _store(tx: Transaction, known: _Known, places: dict[bytes, Place], bodies: Iterable[tuple[bytes, bytes]]) -> None:
    """Store those of `bodies` (text, SHA-256) that have no place in `places`, and give them one."""
    fresh = []
    salts = os.urandom(SALT_BYTES * SALTS_AT_ONCE)
    at = 0
    for encoded, plain in bodies:
        if plain in places:
            continue
        if at == len(salts):
            salts, at = os.urandom(SALT_BYTES * SALTS_AT_ONCE), 0
        salt = salts[at : at + SALT_BYTES]
        at += SALT_BYTES
        known.last += 1
        digest = body_digest(salt, plain)
        places[plain] = known.newest[plain] = (known.last, digest)
        fresh.append((known.last, digest, salt, plain, encoded))
    tx.executemany("INSERT INTO bodies (id, digest, salt, sha256, body) VALUES (?, ?, ?, ?, ?)", fresh)
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
        for start in range(0, len(keys), KEYS_A_QUERY):
            asked = keys[start : start + KEYS_A_QUERY]
            asked += asked[-1:] * (KEYS_A_QUERY - len(asked))
            for plain, number, digest in tx.execute(_OLDER, asked):
                if plain in wanted:
                    places[plain] = again[plain] = (number, digest)
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
    for plain, number, digest in tx.execute(
        "SELECT sha256, id, digest FROM bodies WHERE id > ? ORDER BY id", (known.last,)
    ):
        known.newest[plain] = (number, digest)
        known.last = number


def _index_newest(tx: Transaction, known: _Known) -> None:
    tx.execute(
        "INSERT INTO body_keys (key, id) SELECT substr(sha256, 1, ?), id FROM bodies WHERE id > ? ORDER BY 1",
        (KEY_BYTES, known.upto),
    )
    tx.execute("UPDATE body_keys_upto SET id = ?", (known.last,))
    known.upto = known.last
    known.newest.clear()
