"""The store of one home: opens the database, brings its schema up to date, and hands out writing and reading.

Several processes may open one home at once. Each migration is one transaction that looks at the version again once it
holds the lock, so whoever comes second finds it done. Network file systems are not covered: they break the locks.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Final, TypeVar, cast
from urllib.parse import quote

from buzz_host.settings import Home
from buzz_host.settings.home import FILE_MODE
from buzz_host.store.errors import StoreClosed, StoreError, explained
from buzz_host.store.schema import MIGRATIONS, Migration
from buzz_host.store.writer import Job, Transaction, Writer

BUSY_TIMEOUT_S: Final = 30.0  # several processes write one home; each holds the lock for milliseconds
CLOSE_DEADLINE_S: Final = 10.0
IDLE_READERS_MAX: Final = 4
STATEMENTS_CACHED: Final = 256
WRITER_CACHE_KIB: Final = 16384  # holds the inner pages of the indexes of some million turns
_WAL_RETRY_S: Final = 0.01
_FIRST_LOOK: Final = "SELECT 1 FROM sqlite_master"  # `BEGIN` alone takes no snapshot: the first statement does

T = TypeVar("T")


class Store:
    """The database of one home. `Store.open(home)` makes it where it is missing; `close`, or leaving the `with`, writes
    what was queued."""

    def __init__(self, home: Home) -> None:
        self.home: Final = home
        self._writer = Writer(home, lambda: writing_connection(home.database))
        self._readers: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, home: Home, migrations: Sequence[Migration] = MIGRATIONS) -> Store:
        """The store of `home`, its schema up to date. Raises `HomeError` for a home that cannot be written,
        `StoreError` for a database that cannot be used or that a newer version wrote (OPS-02)."""
        home.writable_root()
        path = home.database
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
            _migrate(path, migrations)
        except OSError as error:
            raise StoreError(f"{path}: cannot be opened ({error.strerror})") from None
        except sqlite3.Error as error:
            raise explained(error, path) or error from None
        return cls(home)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction and give what it gives, once that is durable on disk.

        Works of the same moment share one sync, each in a savepoint of its own: one that raises fails alone. `work`
        runs on the writer's thread; it may be run a second time if the group failed, so it touches nothing but its
        transaction. A wait that is cancelled takes back a work that was not begun, and no other. Raises what `work`
        raises, `StoreError` where the surroundings failed, `StoreClosed` after `close`.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[object] = loop.create_future()
        self._writer.submit(Job(work, waiter, loop))
        return cast("T", await waiter)

    def write_sync(self, work: Callable[[Transaction], T]) -> T:
        """`write` for callers without an event loop; never call it on a thread that runs one."""
        waiter: Future[object] = Future()
        self._writer.submit(Job(work, waiter))
        return cast("T", waiter.result())

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection that only reads, and sees the moment at which the `with` began until it ends.

        Any thread may ask; one thread uses it. Keep it short: while it lasts, the write-ahead log cannot shrink. Raises
        `StoreError` where the surroundings failed.
        """
        connection = self._reader()
        try:
            connection.execute("BEGIN")
            connection.execute(_FIRST_LOOK).fetchone()
            yield connection
            connection.execute("ROLLBACK")
        except BaseException as error:
            connection.close()
            translated = explained(error, self.home.database)
            if translated is not None:
                raise translated from None
            raise
        with self._lock:
            if not self._closed and len(self._readers) < IDLE_READERS_MAX:
                self._readers.append(connection)
                return
        connection.close()

    def close(self, *, deadline_s: float = CLOSE_DEADLINE_S) -> None:
        """Write what was queued and end the writer; afterwards `write` and `read` raise `StoreClosed`.

        Blocks until then. Raises `StoreError` where it takes longer than `deadline_s`. Closing twice is no fault.
        """
        with self._lock:
            self._closed = True
            readers, self._readers = self._readers, []
        for connection in readers:
            connection.close()
        self._writer.close(deadline_s)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _reader(self) -> sqlite3.Connection:
        with self._lock:
            if self._closed:
                raise StoreClosed(f"{self.home.database}: the store is closed, nothing more can be read")
            if self._readers:
                return self._readers.pop()
        try:
            return _reading(self.home.database)
        except sqlite3.Error as error:
            raise explained(error, self.home.database) or error from None


def _connection(path: Path, mode: str, *, one_thread: bool) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=one_thread,
        cached_statements=STATEMENTS_CACHED,
    )


def writing_connection(path: Path) -> sqlite3.Connection:
    """A connection that writes durably to the database at `path`; for the one thread that made it."""
    # `rw`, not `rwc`: a database that vanished is a fault to be told, not an empty one to go on with.
    connection = _connection(path, "rw", one_thread=True)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA cache_size = -{WRITER_CACHE_KIB}")
    return connection


def _reading(path: Path) -> sqlite3.Connection:
    connection = _connection(path, "ro", one_thread=False)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _migrate(path: Path, migrations: Sequence[Migration]) -> None:
    connection = writing_connection(path)
    try:
        newest = len(migrations)
        version = _version(connection)
        if version == 0 < newest:
            _use_write_ahead_log(connection)
        while version < newest:
            version = _step(connection, migrations)
        if version > newest:
            raise StoreError(
                f"{path}: a newer version of Buzz wrote this database (its schema is {version}, this version knows "
                f"{newest}): upgrade Buzz, or set BUZZ_HOME to another home"
            )
    finally:
        connection.close()


def _step(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> int:
    """Do the next migration in one transaction, unless another process did it meanwhile; gives the version after it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)
        if version < len(migrations):
            for statement in migrations[version].statements:
                connection.execute(statement)
            version += 1
            connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return version


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    # SQLite does not wait for a lock here: with several processes at the first start, all but one are told "busy".
    until = monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > until:
                raise
        sleep(_WAL_RETRY_S)
