"""Reading a database that may not be written: a home on a read-only mount, a copy of one, a disk that is full.

SQLite wants to write even where it only reads: a shared index beside a write-ahead log. Where it may not, the database
is read as a file that nobody changes, and afterwards it is looked at whether that was true. What still stands in a
write-ahead log without such an index is read from a copy. Nothing in the home is changed, not even beside the database.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from buzz_host.settings import Home
from buzz_host.store.errors import StoreError, explained
from buzz_host.store.schema import MIGRATIONS

BUSY_TIMEOUT_S: Final = 5.0
LOG_SUFFIX: Final = "-wal"
INDEX_SUFFIX: Final = "-shm"


@contextmanager
def read_only(home: Home) -> Iterator[sqlite3.Connection]:
    """A connection that reads one moment of the database of `home`, and needs no right to write anything there.

    The schema may be an older one, as it cannot be brought up to date here. Raises `StoreError` where there is no
    database, it cannot be read, a newer version wrote it, or somebody wrote it meanwhile although nobody may.
    """
    path = home.database
    with ExitStack() as stack:
        try:
            connection = _ready(path, stack)
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror})") from None
        except sqlite3.Error as error:
            raise explained(error, path) or error from None
        try:
            yield connection
        except sqlite3.Error as error:
            raise explained(error, path) or error from None


def _ready(path: Path, stack: ExitStack) -> sqlite3.Connection:
    connection = _opened(path, stack)
    stack.callback(connection.close)
    connection.execute("PRAGMA query_only = ON")
    _must_be_known(path, int(connection.execute("PRAGMA user_version").fetchone()[0]))
    connection.execute("BEGIN")
    connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    return connection


def _opened(path: Path, stack: ExitStack) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    log, index = path.with_name(path.name + LOG_SUFFIX), path.with_name(path.name + INDEX_SUFFIX)
    if index.exists() and os.access(index, os.R_OK):
        return _connection(path, "mode=ro")
    if _size(log):
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="buzz-reading-")))
        for each in (path, log):
            shutil.copyfile(each, folder / each.name)
        return _connection(folder / path.name, "mode=rw")
    stack.enter_context(_unchanged(path, log))
    return _connection(path, "mode=ro&immutable=1")


def _connection(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?{how}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )


@contextmanager
def _unchanged(path: Path, log: Path) -> Iterator[None]:
    """What was read as a file that nobody changes was changed by nobody: else what was read may be of two moments."""
    before = _state(path)
    yield
    if _state(path) != before or _size(log):
        raise StoreError(f"{path}: was written to while it was read: ask again")


def _must_be_known(path: Path, version: int) -> None:
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path}: a newer version of Buzz wrote this database (its schema is {version}, this version knows "
            f"{len(MIGRATIONS)}): upgrade Buzz"
        )
    if version == 0:
        raise StoreError(f"{path}: holds nothing: Buzz was ended before it wrote the first entry, or this is no ledger")


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _size(path: Path) -> int:
    state = _state(path)
    return state[1] if state is not None else 0
