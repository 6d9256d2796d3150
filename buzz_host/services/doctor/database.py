"""The database and the ledger in it: readable, sound, whole, with its mirrored head in the chain."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from time import monotonic
from typing import Final

from buzz_host.ledger.append import Head, mirrored_head
from buzz_host.ledger.entries import LedgerError
from buzz_host.ledger.newest import verify_newest
from buzz_host.ledger.record import UNENDED
from buzz_host.ledger.search import unindexed
from buzz_host.ledger.verify import Break, verify
from buzz_host.services.doctor.checks import Check, note, ok, problem
from buzz_host.settings import Home
from buzz_host.store import MIGRATIONS, read_only

AREA: Final = "ledger"
NEWEST_ENTRIES: Final = 1000
SOUNDNESS_DEADLINE_S: Final = 5.0
BREAKS_SHOWN: Final = 10
UNENDED_LOOKED_AT: Final = 1000
_STEPS_BETWEEN_LOOKS: Final = 10_000


def database_checks(home: Home, *, full: bool) -> Iterator[Check]:
    """The database, its newest entries or all of them (`full`), and turns without an end. Nothing in it is changed."""
    mirrored: Head | None = None
    try:
        mirrored = mirrored_head(home.head)
    except LedgerError as error:
        yield problem(AREA, f"{error}; the next turn writes it anew, after `buzz audit verify`")
    if not home.database.exists() and not home.database.is_symlink():
        if mirrored is not None:
            yield problem(
                AREA,
                f"{home.database} is gone: {home.head} says that it had {mirrored.seq} entries; put a backup in its "
                "place",
            )
        else:
            yield ok(AREA, "no turn was ever recorded: there is no database yet")
        return
    with read_only(home) as connection:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version < len(MIGRATIONS):
            yield note(
                AREA,
                f"{home.database} was written by an older version of Buzz (its schema is {version}, of "
                f"{len(MIGRATIONS)}): the next use brings it up to date",
            )
        entries = int(connection.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0])
        if full:
            yield from _told(verify(connection, None, mirrored), f"all {entries:,} entries are whole")
        else:
            yield _sound(home, connection)
            looked_at = min(entries, NEWEST_ENTRIES)
            rest = "; `buzz doctor --full` looks at all" if entries > looked_at else ""
            yield from _told(
                verify_newest(connection, NEWEST_ENTRIES, mirrored),
                f"the newest {looked_at:,} of {entries:,} entries are whole{rest}",
            )
        yield from _unended(home, connection)
        left = unindexed(connection)
        if left:
            yield note(AREA, f"{left:,} entries cannot be searched yet: `buzz audit search` indexes them")


def _told(breaks: Iterator[Break], whole: str) -> Iterator[Check]:
    found = 0
    for each in islice(breaks, BREAKS_SHOWN):
        found += 1
        yield problem(AREA, f"changed behind its back: {each}; `buzz audit verify` shows each place")
    more = sum(1 for _ in breaks)
    if more:
        yield problem(AREA, f"and {more:,} more places: `buzz audit verify`")
    elif not found:
        yield ok(AREA, whole)


def _sound(home: Home, connection: sqlite3.Connection) -> Check:
    """SQLite's own quick check, as far as it comes in 5 s: it reads the whole file."""
    until = monotonic() + SOUNDNESS_DEADLINE_S
    connection.set_progress_handler(lambda: int(monotonic() > until), _STEPS_BETWEEN_LOOKS)
    try:
        (line,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return ok(AREA, f"{home.database} opens; it is too large for a quick check: `buzz doctor --full`")
    finally:
        connection.set_progress_handler(None, 0)
    if line != "ok":
        return problem(AREA, f"{home.database} is damaged ({line}): put a backup in its place")
    return ok(AREA, f"{home.database} is sound")


def _unended(home: Home, connection: sqlite3.Connection) -> Iterator[Check]:
    rows = connection.execute(
        "SELECT e.turn, t.session FROM turns AS t JOIN entries AS e ON e.seq = t.seq"
        " WHERE t.status = ? ORDER BY t.seq DESC LIMIT ?",
        (UNENDED, UNENDED_LOOKED_AT),
    ).fetchall()
    cut_off = [turn for turn, session in rows if not _is_driven(home, session)]
    if cut_off:
        number = f"{len(cut_off):,}{' or more' if len(rows) == UNENDED_LOOKED_AT else ''}"
        yield note(
            AREA,
            f"{number} turns have no end, since what ran them was killed or ran out of disk (the newest is "
            f"{cut_off[0]}): what was sent is recorded, what came back may not be; `buzz audit show {cut_off[0][:8]}`",
        )


def _is_driven(home: Home, session: str) -> bool:
    """Whether a process that lives holds the lease of `session`; its turn may still run."""
    with suppress(OSError, ValueError, OverflowError):
        pid = int((home.root / "leases" / f"{session}.lock").read_text(encoding="ascii"))
        os.kill(pid, 0)
        return True
    return False
