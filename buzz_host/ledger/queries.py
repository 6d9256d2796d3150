"""Reading the ledger: which turns there were, what one of them carried, what one plugin told whom.

Everything is read back from disk, texts included, and held against the hashes of its entries. Rows come newest first, a
page at a time, each page by an index: the turns of an agent or of a plugin are those of the parties that it takes part
in, so a page is merged from a few short ranges, however many turns there are (AUD-01, AUD-02).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from heapq import nlargest
from typing import Final

from buzz_author.errors import BuzzError
from buzz_host.ledger.entries import LedgerError
from buzz_host.ledger.reading import ENTRY_COLUMNS, EntryRow, entries_of
from buzz_host.ledger.views import PluginRow, TurnRow, TurnView, attested, named_by, view

PAGE_TURNS: Final = 50
_NEWEST: Final = 2**63 - 1
_LAST_CHARACTER: Final = "\U0010ffff"

_ROWS: Final = """
    SELECT t.seq, e.turn, e.at, t.session, p.agent, p.harness, t.kind, t.status, t.steers, p.plugins
    FROM json_each(?) AS j CROSS JOIN turns AS t ON t.seq = j.value
        CROSS JOIN parties AS p ON p.id = t.party CROSS JOIN entries AS e ON e.seq = t.seq
    ORDER BY t.seq DESC
"""
_ENTRIES_OF: Final = f"SELECT {ENTRY_COLUMNS} FROM entries AS e WHERE turn = ? ORDER BY seq"
_ENTRIES_AT: Final = f"""
    SELECT {ENTRY_COLUMNS} FROM json_each(?) AS j CROSS JOIN entries AS e ON e.seq = j.value ORDER BY e.seq DESC
"""
# How the turns of these entries ended; other entries of a turn, as those of its tools, are not read.
_ENDS: Final = f"""
    SELECT {ENTRY_COLUMNS}
    FROM json_each(?) AS j CROSS JOIN entries AS s ON s.seq = j.value CROSS JOIN entries AS e ON e.turn = s.turn
    WHERE e.kind IN ('turn_ended', 'steer_settled') ORDER BY e.seq
"""


def turns(
    connection: sqlite3.Connection,
    *,
    agent: str | None = None,
    session: str | None = None,
    plugin: str | None = None,
    limit: int = PAGE_TURNS,
    before: int | None = None,
) -> tuple[TurnRow, ...]:
    """The newest turns and steers, newest first; of one agent, session or plugin where that is given.

    At most `limit`, with a `seq` below `before`: the `seq` of a page's last row asks for the page after it. Which turns
    there are is what the index says; what a row says of its turn is what the entries say.
    """
    seqs = _page(connection, agent, session, plugin, limit, before)
    return _attested(connection, seqs, _sent(connection, seqs, texts=False))


def turn(connection: sqlite3.Connection, id_or_prefix: str) -> TurnView:
    """One turn with all that belongs to it, by its id or by the beginning of it that no other turn shares.

    Raises `LedgerError` where no turn, or more than one, is meant.
    """
    identifier = _id_of(connection, id_or_prefix)
    with _readable(f"the turn {identifier}"):
        return _whole(connection, identifier)


def agents(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The agents that turns were of."""
    return tuple(str(each) for (each,) in connection.execute("SELECT DISTINCT agent FROM parties ORDER BY agent"))


def plugin(
    connection: sqlite3.Connection,
    name: str,
    *,
    agent: str | None = None,
    limit: int = PAGE_TURNS,
    before: int | None = None,
) -> tuple[PluginRow, ...]:
    """For each turn that names the plugin, newest first: what it told the agent, what was left out and why, its faults.

    Pages as `turns` does. Raises `LedgerError` where no turn at all names it.
    """
    if not connection.execute("SELECT 1 FROM party_plugins WHERE plugin = ? LIMIT 1", (name,)).fetchone():
        known = [each for (each,) in connection.execute("SELECT DISTINCT plugin FROM party_plugins")]
        near = get_close_matches(name, known, n=1)
        raise LedgerError(f"no turn names a plugin {name!r}" + (f": did you mean {near[0]}?" if near else ""))
    seqs = _page(connection, agent, None, name, limit, before)
    with _readable(f"the turns of {name}"):
        entries = _sent(connection, seqs, texts=True)
        rows = _attested(connection, seqs, entries)
        return tuple(named_by(name, row, entry) for row, entry in zip(rows, entries, strict=True))


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Whatever somebody made of the ledger, its reader gets one line: only `verify` can say more."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, BuzzError):
            raise
        raise LedgerError(f"{what} cannot be read from the ledger: buzz audit verify says what is broken") from error


def _page(
    connection: sqlite3.Connection,
    agent: str | None,
    session: str | None,
    plugin: str | None,
    limit: int,
    before: int | None,
) -> list[int]:
    below = _NEWEST if before is None else before
    if agent is None and plugin is None:
        if session is None:
            query = "SELECT seq FROM turns WHERE seq < ? ORDER BY seq DESC LIMIT ?"
            return _firsts(connection.execute(query, (below, limit)))
        query = "SELECT seq FROM turns WHERE session = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
        return _firsts(connection.execute(query, (session, below, limit)))
    parties = _parties(connection, agent, plugin)
    if session is not None:
        query = (
            "SELECT seq FROM turns INDEXED BY turns_of_session WHERE session = ? AND seq < ?"
            " AND party IN (SELECT value FROM json_each(?)) ORDER BY seq DESC LIMIT ?"
        )
        return _firsts(connection.execute(query, (session, below, _json(parties), limit)))
    query = "SELECT seq FROM turns WHERE party = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
    return nlargest(
        limit,
        (seq for party in parties for (seq,) in connection.execute(query, (party, below, limit))),
    )


def _parties(connection: sqlite3.Connection, agent: str | None, plugin: str | None) -> list[int]:
    if plugin is None:
        return _firsts(connection.execute("SELECT id FROM parties WHERE agent = ?", (agent,)))
    query = (
        "SELECT m.party FROM party_plugins AS m CROSS JOIN parties AS p ON p.id = m.party"
        " WHERE m.plugin = ? AND (? IS NULL OR p.agent = ?)"
    )
    return _firsts(connection.execute(query, (plugin, agent, agent)))


def _sent(connection: sqlite3.Connection, seqs: Sequence[int], *, texts: bool) -> tuple[EntryRow, ...]:
    return entries_of(connection, connection.execute(_ENTRIES_AT, (_json(seqs),)), texts=texts)


def _attested(connection: sqlite3.Connection, seqs: Sequence[int], sent: Sequence[EntryRow]) -> tuple[TurnRow, ...]:
    ends: dict[str, list[EntryRow]] = {}
    for entry in entries_of(connection, connection.execute(_ENDS, (_json(seqs),)), texts=False):
        ends.setdefault(entry.turn, []).append(entry)
    rows = _rows(connection, seqs)
    return tuple(attested(row, [entry, *ends.get(entry.turn, ())]) for row, entry in zip(rows, sent, strict=True))


def _rows(connection: sqlite3.Connection, seqs: Sequence[int]) -> tuple[TurnRow, ...]:
    rows = connection.execute(_ROWS, (_json(seqs),))
    return tuple(
        TurnRow(seq, turn, at, session, agent, harness, kind, status, steers, tuple(json.loads(plugins)))
        for seq, turn, at, session, agent, harness, kind, status, steers, plugins in rows
    )


def _id_of(connection: sqlite3.Connection, id_or_prefix: str) -> str:
    if not id_or_prefix:
        raise LedgerError("a turn is asked for by its id, or by the beginning of it")
    if connection.execute("SELECT 1 FROM entries WHERE turn = ? LIMIT 1", (id_or_prefix,)).fetchone():
        return id_or_prefix
    query = "SELECT DISTINCT turn FROM entries WHERE turn >= ? AND turn < ? ORDER BY turn LIMIT 3"
    matches = connection.execute(query, (id_or_prefix, id_or_prefix + _LAST_CHARACTER))
    found = [str(each) for (each,) in matches]
    if not found:
        raise LedgerError(f"the ledger has no turn {id_or_prefix!r}: buzz audit turns lists them")
    if len(found) > 1:
        more = ", …" if len(found) > 2 else ""
        raise LedgerError(f"{id_or_prefix!r} begins the ids of several turns ({', '.join(found[:2])}{more}): give more")
    return found[0]


def _whole(connection: sqlite3.Connection, identifier: str) -> TurnView:
    entries = entries_of(connection, connection.execute(_ENTRIES_OF, (identifier,)))
    (row,) = _rows(connection, [entries[0].seq])
    # A steer stands behind the turn that it joins; asking for that keeps a broken ledger from going in circles.
    steers = connection.execute(
        "SELECT e.turn FROM turns AS t CROSS JOIN entries AS e ON e.seq = t.seq"
        " WHERE t.steers = ? AND t.seq > ? ORDER BY t.seq",
        (identifier, entries[0].seq),
    ).fetchall()
    return view(attested(row, entries), entries, tuple(_whole(connection, each) for (each,) in steers))


def _json(numbers: Iterable[object]) -> str:
    return f"[{','.join(map(str, numbers))}]"


def _firsts(rows: Iterable[tuple[int]]) -> list[int]:
    return [each for (each,) in rows]
