"""A quick look at the end of the chain: its newest entries, and whether the mirrored head is in it.

What was changed lately, cut off or replaced shows at once, however long the ledger is. It proves nothing of what stands
before: `verify` does (AUD-03).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from buzz_host.ledger.append import Head
from buzz_host.ledger.entries import GENESIS, chain_hash
from buzz_host.ledger.verify import Break


def verify_newest(connection: sqlite3.Connection, count: int, mirrored: Head | None = None) -> Iterator[Break]:
    """The breaks within the newest `count` entries, and of the mirrored head; nothing where they are whole."""
    rows = connection.execute(
        "SELECT seq, CAST(kind AS BLOB), CAST(at AS BLOB), CAST(turn AS BLOB), CAST(fields AS BLOB),"
        " CAST(previous AS BLOB), CAST(hash AS BLOB) FROM entries ORDER BY seq DESC LIMIT ?",
        (count + 1,),
    ).fetchall()
    rows.reverse()
    # The one before the newest is there for its hash alone.
    last, expected = (rows[0][0], _hex(rows[0][6])) if len(rows) > count else (0, GENESIS)
    for seq, *texts, previous, made in rows[1:] if len(rows) > count else rows:
        if seq != last + 1:
            yield Break(last + 1, "the chain", f"entry {last + 1}", f"entry {seq} in its place")
        elif _hex(previous) != expected:
            yield Break(seq, "the previous hash", expected, _hex(previous))
        kind, at, turn, fields = ((each or b"").decode("utf-8", "replace") for each in texts)
        computed = chain_hash(seq, kind, at, turn, fields, _hex(previous))
        if computed != _hex(made):
            yield Break(seq, "the entry", f"the hash {_hex(made)}", f"{computed} from what stands there")
        last, expected = seq, _hex(made)
    if mirrored is not None:
        row = connection.execute("SELECT CAST(hash AS BLOB) FROM entries WHERE seq = ?", (mirrored.seq,)).fetchone()
        found = _hex(row[0]) if row is not None else f"a chain that ends with entry {last}"
        if found != mirrored.hash:
            yield Break(mirrored.seq, "the mirrored head", mirrored.hash, found)


def _hex(octets: bytes | None) -> str:
    return (octets or b"").hex()
