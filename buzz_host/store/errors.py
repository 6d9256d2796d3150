"""What SQLite and the disk can do to us, in one line for the person who has to put it right.

Only faults of the surroundings are translated. A constraint that fails, or a statement that is wrong, is the caller's
own affair and comes through as SQLite raised it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from buzz_author.errors import BuzzError


class StoreError(BuzzError):
    """The database could not be used: a full disk, a damaged file, a folder that may not be written."""


class StoreDamaged(StoreError):
    """The database is no database, or not a sound one any more."""


class StoreClosed(StoreError):
    """Something was to be written after the store was closed."""


_EXPLANATIONS: Final = {
    sqlite3.SQLITE_PERM: "may not be opened; check the owner and the mode of it and of its folder",
    sqlite3.SQLITE_BUSY: "another program has kept it locked for too long; close that program and try again",
    sqlite3.SQLITE_LOCKED: "another program has kept it locked for too long; close that program and try again",
    sqlite3.SQLITE_READONLY: "may not be written; check the owner and the mode of it and of its folder",
    sqlite3.SQLITE_IOERR: "the disk failed; nothing of this was written",
    sqlite3.SQLITE_CORRUPT: "is damaged; put a backup in its place",
    sqlite3.SQLITE_FULL: "the disk is full; nothing of this was written: free some space and try again",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder exists and may be written",
    sqlite3.SQLITE_NOTADB: "is no database, or is damaged; put a backup in its place",
}
_PRIMARY_CODE: Final = 0xFF


def explained(error: BaseException, path: Path) -> StoreError | None:
    """The line for a fault of the surroundings of the database at `path`; None for any other error."""
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(error, sqlite3.Error) or code is None:
        return None
    explanation = _EXPLANATIONS.get(code & _PRIMARY_CODE)
    if explanation is None:
        return None
    kind = StoreDamaged if code & _PRIMARY_CODE in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) else StoreError
    return kind(f"{path}: {explanation} ({error.sqlite_errorname}: {' '.join(str(error).split())})")
