"""Finding what was changed behind the ledger's back: every entry, every body, every row that is derived from them.

Reads the whole ledger once, in order, and keeps one bit a body in memory. It proves that what is here is what was
chained; it cannot prove that nobody wrote the whole chain anew: a head that is kept elsewhere is for that (AUD-03).
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from typing import Any, Final

import attrs

from buzz_host.ledger.append import Head, checked_hash
from buzz_host.ledger.entries import GENESIS, REFERENCE, Entry, body_digest, canonical_json, chain_hash
from buzz_host.ledger.record import SETTLED, index_row
from buzz_host.store import MIGRATIONS

DIGESTS_CACHED: Final = 65536
HELD_MAX: Final = 10_000  # breaks of the indexes that wait until it is known whether they are consequences
NOTED_HEAD: Final = "the noted head"
_CHUNK_BITS: Final = 16
_TURNS: Final = "the index turns"

_TABLES: Final = frozenset({"entries", "bodies", "body_keys", "body_keys_upto", "parties", "party_plugins", "turns"})

_ENTRIES: Final = """
    SELECT seq, CAST(kind AS BLOB), CAST(at AS BLOB), CAST(turn AS BLOB), CAST(previous AS BLOB), CAST(hash AS BLOB),
        CAST(bodies AS BLOB), CAST(fields AS BLOB),
        typeof(kind) || typeof(at) || typeof(turn) || typeof(bodies) || typeof(fields)
            || typeof(previous) || typeof(hash)
    FROM entries ORDER BY seq
"""
_ENTRY_TYPES: Final = "text" * 5 + "blob" * 2
_BODY: Final = """
    SELECT CAST(salt AS BLOB), CAST(sha256 AS BLOB), CAST(body AS BLOB), typeof(salt) || typeof(sha256) || typeof(body)
    FROM bodies WHERE id = ?
"""
_BODY_TYPES: Final = "blob" * 3
_TURN: Final = """
    SELECT p.agent, p.harness, p.plugins, t.session, t.kind, t.steers, t.status, t.ended
    FROM turns AS t LEFT JOIN parties AS p ON p.id = t.party WHERE t.seq = ?
"""
# Rows that follow from no entry: the index, and a query for each such row as text.
_ORPHANS: Final = (
    (
        "turns",
        """
        SELECT seq FROM turns AS t WHERE NOT EXISTS
            (SELECT 1 FROM entries AS e WHERE e.seq = t.seq AND e.kind IN ('turn_sent', 'steer_sent'))
        """,
    ),
    ("parties", "SELECT id FROM parties AS p WHERE NOT EXISTS (SELECT 1 FROM turns AS t WHERE t.party = p.id)"),
    (
        "party_plugins",
        """
        SELECT plugin || ' in ' || party FROM party_plugins AS m WHERE NOT EXISTS
            (SELECT 1 FROM parties AS p, json_each(p.plugins) AS j WHERE p.id = m.party AND j.value = m.plugin)
        """,
    ),
    (
        "body_keys",
        """
        SELECT id FROM body_keys AS k WHERE NOT EXISTS
            (SELECT 1 FROM bodies AS b WHERE b.id = k.id AND substr(b.sha256, 1, 8) = k.key)
        """,
    ),
    ("body_keys", "SELECT max(id) FROM body_keys HAVING max(id) > (SELECT max(id) FROM body_keys_upto)"),
)
# Rows that are missing, in the same form.
_MISSING: Final = (
    (
        "party_plugins",
        """
        SELECT j.value || ' in ' || p.id FROM parties AS p, json_each(p.plugins) AS j WHERE NOT EXISTS
            (SELECT 1 FROM party_plugins AS m WHERE m.party = p.id AND m.plugin = j.value)
        """,
    ),
    (
        "body_keys",
        """
        SELECT id FROM bodies AS b WHERE id <= (SELECT max(id) FROM body_keys_upto) AND NOT EXISTS
            (SELECT 1 FROM body_keys AS k WHERE k.key = substr(b.sha256, 1, 8) AND k.id = b.id)
        """,
    ),
    ("body_keys_upto", "SELECT 'the one number' WHERE (SELECT count(*) FROM body_keys_upto WHERE id >= 0) <> 1"),
)


@attrs.frozen
class Break:
    """One place where the ledger is not what was written. `seq` is the entry's number, None where it is no entry's.

    `follows` says that the place is a row or a text that hangs on an entry, where entries are missing or changed: a
    consequence of that, or at least nothing that can be judged by itself.
    """

    seq: int | None
    what: str
    expected: str
    found: str
    follows: bool = False

    def __str__(self) -> str:
        if self.what == NOTED_HEAD:
            return (
                f"the noted head: no entry has the hash {self.expected} ({self.found}): it was changed or cut off "
                "since that was noted, or the hash is one of another ledger"
            )
        place = "" if self.seq is None else f"entry {self.seq}: "
        return f"{place}{self.what}: expected {self.expected}, found {self.found}"


def verify(connection: sqlite3.Connection, head: str | None = None, mirrored: Head | None = None) -> Iterator[Break]:
    """Every break of the ledger, found in one pass over a connection of `Store.read()`; nothing where all is whole.

    `head` (64 hexadecimal digits, noted earlier) has to be the hash of an entry in the chain. `mirrored`
    (`mirrored_head(home.head)`) may be an entry behind the newest, and has to be in the chain as well: so a tail that
    was cut off shows. Raises `LedgerError` for a `head` that is none.
    """
    wanted = None if head is None else checked_hash(head)
    try:
        for (line,) in connection.execute("PRAGMA integrity_check"):
            if line != "ok":
                yield Break(None, "the database file", "a sound file", " ".join(str(line).split()))
        for name, table in connection.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'"):
            yield Break(None, f"the trigger {name} on {table}", "no trigger", "one that can change what is written")
        # A changed schema changes what every column means: then there is nothing that could be read.
        said = _schema(connection)
        changed = [name for name, statement in _expected_schema().items() if said.get(name) != statement]
        for name in changed:
            yield Break(None, f"the schema of {name}", "the one that was made", repr(said.get(name, "none")))
        if not changed:
            yield from _Pass(connection, wanted, mirrored).breaks()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        yield Break(None, "the database file", "a sound file", " ".join(str(error).split()))


def _schema(connection: sqlite3.Connection) -> dict[str, str]:
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {name: " ".join(statement.split()) for name, statement in rows}


@lru_cache(maxsize=1)
def _expected_schema() -> dict[str, str]:
    """The statement of each table and index of the ledger, as the migrations make it."""
    empty = sqlite3.connect(":memory:")
    try:
        for step in MIGRATIONS:
            for statement in step.statements:
                empty.execute(statement)
        made = empty.execute("SELECT name, tbl_name FROM sqlite_master").fetchall()
        ours = {name for name, table in made if table in _TABLES}
        return {name: statement for name, statement in _schema(empty).items() if name in ours}
    finally:
        empty.close()


class _Pass:
    """One reading of the whole ledger."""

    def __init__(self, connection: sqlite3.Connection, wanted: str | None, mirrored: Head | None) -> None:
        self._connection = connection
        self._wanted = wanted
        self._mirrored = mirrored
        self._last = 0
        self._hash: str | None = GENESIS
        self._digests: OrderedDict[int, str] = OrderedDict()
        # One bit a body, in chunks: which ones an entry names.
        self._named: dict[int, bytearray] = {}
        # Whether an entry is missing or changed: then what hangs on entries is broken as well.
        self._entries_broken = False

    def breaks(self) -> Iterator[Break]:
        """The breaks of the chain and of the texts first, then those of what hangs on it."""
        held: list[Break] = []
        for row in self._connection.execute(_ENTRIES):
            for found in self._entry(row):
                if found.what == _TURNS and len(held) < HELD_MAX:
                    held.append(found)
                else:
                    yield found
        yield from self._heads()
        for found in chain(held, self._derived()):
            yield attrs.evolve(found, follows=True) if self._entries_broken else found

    def _derived(self) -> Iterator[Break]:
        for (number,) in self._connection.execute("SELECT id FROM bodies"):
            if not self._is_named(number):
                yield Break(None, f"body {number}", "an entry that names it", "none")
        for table, query in _ORPHANS:
            for (row,) in self._connection.execute(query):
                yield Break(None, f"the index {table}", "no such row", f"row {row}")
        for table, query in _MISSING:
            for (row,) in self._connection.execute(query):
                yield Break(None, f"the index {table}", f"row {row}", "no such row")

    def _entry(self, row: tuple[Any, ...]) -> Iterator[Break]:
        seq, *columns, types = row
        # A damaged file may hold nothing where nothing may be; the types say so below.
        raw = [each or b"" for each in columns]
        if seq != self._last + 1:
            gone = f"entry {self._last + 1}" + (f" to {seq - 1}" if seq > self._last + 2 else "")
            yield Break(self._last + 1, "the chain", gone, f"entry {seq} in its place")
            self._hash = None
            self._entries_broken = True
        self._last = seq
        kind, at, turn, previous, made, bodies, fields = (
            each.hex() if number in (3, 4) else each.decode("utf-8", "replace") for number, each in enumerate(raw)
        )
        if self._hash is not None and previous != self._hash:
            yield Break(seq, "the previous hash", self._hash, previous)
            self._entries_broken = True
        # The next one must name what this one says of itself: one changed entry is one break, not all that follow.
        self._hash = made
        if made == self._wanted:
            self._wanted = None
        if self._mirrored is not None and self._mirrored.seq == seq:
            if self._mirrored.hash != made:
                yield Break(seq, "the mirrored head", self._mirrored.hash, made)
            self._mirrored = None
        computed = chain_hash(seq, kind, at, turn, fields, previous)
        if computed != made or types != _ENTRY_TYPES:
            yield Break(seq, "the entry", f"the hash {made}", f"{computed} from what stands there")
            self._entries_broken = True
            return
        yield from self._bodies(seq, fields, bodies)
        try:
            yield from self._index(Entry(seq, kind, at, turn, fields, previous, made))
        except (ValueError, LookupError, TypeError) as error:
            # Somebody who chains anew may leave fields that no version of ours wrote.
            yield Break(seq, "the fields", f"those of a {kind}", f"others ({type(error).__name__})")

    def _heads(self) -> Iterator[Break]:
        ends = f"a chain that ends with entry {self._last}" if self._last else "no entry at all"
        if self._mirrored is not None:
            self._entries_broken = self._entries_broken or self._mirrored.seq > self._last
            yield Break(self._mirrored.seq, "the mirrored head", f"the entry {self._mirrored.hash}", ends)
        if self._wanted is not None:
            yield Break(None, NOTED_HEAD, self._wanted, ends)

    def _bodies(self, seq: int, fields: str, bodies: str) -> Iterator[Break]:
        references = REFERENCE.findall(fields)
        ids = bodies.split(",") if bodies else []
        if len(ids) != len(references) or not all(each.isascii() and each.isdecimal() for each in ids):
            yield Break(seq, "the ids of its bodies", f"{len(references)} numbers", repr(bodies))
            return
        for each, (size, digest) in zip(ids, references, strict=True):
            number = int(each)
            if self._digests.get(number) != digest:
                yield from self._body(seq, number, int(size), digest)

    def _body(self, seq: int, number: int, size: int, wanted: str) -> Iterator[Break]:
        """Look at a body, once for each entry that names it unless it was seen lately and is whole."""
        what = f"body {number}"
        row = self._connection.execute(_BODY, (number,)).fetchone()
        self._name(number)
        if row is None:
            yield Break(seq, what, "a body", "none: it is missing")
            return
        *columns, types = row
        salt, plain, body = (each or b"" for each in columns)
        if types != _BODY_TYPES or sha256(body).digest() != plain:
            yield Break(seq, what, f"a text with the hash {plain.hex()}", sha256(body).hexdigest())
        elif len(body) != size:
            yield Break(seq, what, f"{size} bytes", f"{len(body)} bytes")
        elif body_digest(salt, plain) != wanted:
            yield Break(seq, what, f"the salted digest {wanted}", body_digest(salt, plain))
        else:
            self._digests[number] = wanted
            if len(self._digests) > DIGESTS_CACHED:
                self._digests.popitem(last=False)

    def _index(self, entry: Entry) -> Iterator[Break]:
        match entry.kind:
            case "turn_sent" | "steer_sent":
                yield from self._turn_row(entry)
            case "turn_ended":
                yield from self._end_row(entry, json.loads(entry.fields)["status"])
            case "steer_settled":
                outcome = json.loads(entry.fields)["outcome"]
                if outcome in SETTLED:
                    yield from self._end_row(entry, outcome)

    def _turn_row(self, entry: Entry) -> Iterator[Break]:
        wanted = index_row(entry.fields)
        row = self._connection.execute(_TURN, (entry.seq,)).fetchone()
        if row is None:
            yield Break(entry.seq, _TURNS, "a row of this turn", "none")
            return
        *says, status, ended = row
        expected = [
            wanted.agent,
            wanted.harness,
            canonical_json(wanted.plugins),
            wanted.session,
            wanted.kind,
            wanted.steers,
        ]
        if says != expected:
            yield Break(entry.seq, _TURNS, canonical_json(expected), repr(says))
        if ended is None:
            if status != wanted.open_status:
                yield Break(entry.seq, _TURNS, f"the status {wanted.open_status}", repr(status))
        elif not self._connection.execute(
            "SELECT 1 FROM entries WHERE seq = ? AND turn = ? AND kind IN ('turn_ended', 'steer_settled')",
            (ended, entry.turn),
        ).fetchone():
            yield Break(entry.seq, _TURNS, "the entry that ended it", f"entry {ended}, which did not")

    def _end_row(self, entry: Entry, status: str) -> Iterator[Break]:
        row = self._connection.execute(
            "SELECT t.status, t.ended FROM entries AS e CROSS JOIN turns AS t ON t.seq = e.seq WHERE e.turn = ?",
            (entry.turn,),
        ).fetchone()
        if row != (status, entry.seq):
            found = "none" if row is None else f"the status {row[0]!r} by entry {row[1]}"
            yield Break(entry.seq, _TURNS, f"the status {status!r} by this entry", found)

    def _name(self, number: int) -> None:
        chunk = self._named.setdefault(number >> _CHUNK_BITS, bytearray(1 << (_CHUNK_BITS - 3)))
        bit = number & ((1 << _CHUNK_BITS) - 1)
        chunk[bit >> 3] |= 1 << (bit & 7)

    def _is_named(self, number: int) -> bool:
        chunk = self._named.get(number >> _CHUNK_BITS)
        bit = number & ((1 << _CHUNK_BITS) - 1)
        return chunk is not None and bool(chunk[bit >> 3] & (1 << (bit & 7)))
