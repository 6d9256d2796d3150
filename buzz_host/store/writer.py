"""The one thread of a process that writes: it groups what waits into one transaction, so that one sync serves many.

A thread of our own and a daemon, not an executor's: it must never hold up the exit of the process. What it has answered
is on disk; what it has not answered, a crash may lose, and nobody was told otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final, TypeAlias

import attrs

from buzz_host.settings import Home
from buzz_host.store.errors import StoreClosed, StoreError, explained

GROUP_MAX_WORKS: Final = 512  # bounds what one sync waits for, and what one failed commit has to do again
IDLE_S: Final = 0.02  # nothing came for this long: time for what may wait
IDLE_DEADLINE_S: Final = 1.0  # what may wait is done by then, however busy the store is

Parameters: TypeAlias = Sequence[object]
log = logging.getLogger(__name__)


class Transaction:
    """What a work is handed: statements of one transaction, durable together with everything else in it.

    Good until the work returns, on the thread that runs it. `home` is the home that the database belongs to.
    `remembered` is for what a room wants to know from one transaction to the next without asking the database again;
    it is emptied whenever anything is rolled back, so it never holds what is not in the database.
    """

    __slots__ = ("_connection", "_lost", "home", "idle", "remembered")

    def __init__(self, connection: sqlite3.Connection, home: Home, remembered: dict[str, object]) -> None:
        self._connection: sqlite3.Connection | None = connection
        self._lost: sqlite3.Error | None = None
        self.home = home
        self.remembered = remembered
        self.idle: dict[str, Callable[[Transaction], object]] = {}

    def execute(self, statement: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Run one statement; constant text, so that it is prepared once. Raises what `sqlite3` raises."""
        connection = self._usable()
        try:
            return connection.execute(statement, parameters)
        except sqlite3.Error as error:
            self._note(connection, error)
            raise

    def executemany(self, statement: str, rows: Iterable[Parameters]) -> sqlite3.Cursor:
        """Run one statement for each of `rows`."""
        connection = self._usable()
        try:
            return connection.executemany(statement, rows)
        except sqlite3.Error as error:
            self._note(connection, error)
            raise

    def when_idle(self, key: str, work: Callable[[Transaction], object]) -> None:
        """Have `work` run in a transaction of its own once this one is durable and nothing waits, at the latest after
        a second and before the store closes.

        Asked again under the same `key` before it ran, it runs once. A fault in it is logged and costs nobody else.
        """
        self.idle[key] = work

    def end(self) -> None:
        """The work is over: this transaction answers no more. Raises what SQLite raised if it was lost meanwhile."""
        self._connection = None
        if self._lost is not None:
            raise self._lost

    def _usable(self) -> sqlite3.Connection:
        if self._lost is not None:
            raise self._lost
        if self._connection is None:
            raise RuntimeError("this transaction is over: statements belong into the work that was handed it")
        return self._connection

    def _note(self, connection: sqlite3.Connection, error: sqlite3.Error) -> None:
        # On a full disk SQLite rolls back everything by itself. A work that swallows the error must not go on outside
        # of any transaction, where each statement would become durable alone.
        if not connection.in_transaction:
            self._lost = error


@attrs.define(eq=False)
class Job:
    """One work that waits, and who is to be told: an asyncio future with its loop, or a thread's future."""

    work: Callable[[Transaction], object]
    waiter: asyncio.Future[object] | Future[object]
    loop: asyncio.AbstractEventLoop | None = None
    result: object = None
    error: BaseException | None = None

    def settle(self) -> None:
        """Tell the waiter, on the thread where it may be told; one that was cancelled meanwhile is left alone."""
        if self.waiter.done():
            return
        if self.error is None:
            self.waiter.set_result(self.result)
        elif isinstance(self.error, StopIteration):
            # A future refuses this one, and whoever waits would wait for ever.
            wrapped = RuntimeError("the work raised StopIteration")
            wrapped.__cause__ = self.error
            self.waiter.set_exception(wrapped)
        else:
            self.waiter.set_exception(self.error)


class Writer:
    """The queue and the thread. `connect` is called on the thread, again after each fault of the surroundings."""

    def __init__(self, home: Home, connect: Callable[[], sqlite3.Connection]) -> None:
        self._home = home
        self._connect = connect
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        # All below belongs to the thread.
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._remembered: dict[str, object] = {}
        self._idle: dict[str, Callable[[Transaction], object]] = {}
        self._idle_by = 0.0

    def submit(self, job: Job) -> None:
        """Queue `job`; its waiter is told once it is durable. Raises `StoreClosed` after `close`."""
        with self._lock:
            if self._closed:
                raise StoreClosed(f"{self._home.database}: the store is closed, nothing more can be written")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="buzz-store-writer", daemon=True)
                self._thread.start()
            self._queue.put(job)

    def close(self, deadline_s: float) -> None:
        """Write all that was queued, then end the thread. Raises `StoreError` if that takes longer than that."""
        with self._lock:
            thread = self._thread
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        if thread is None:
            return
        thread.join(deadline_s)
        if thread.is_alive():
            raise StoreError(f"{self._home.database}: what was queued could not be written within {deadline_s:g} s")

    def _run(self) -> None:
        open_for_more = True
        while open_for_more:
            jobs, open_for_more = self._collect()
            if jobs:
                self._write_group(jobs)
                _tell(jobs)
            if self._idle and (not jobs or not open_for_more or monotonic() >= self._idle_by):
                self._run_idle()
        self._disconnect()

    def _collect(self) -> tuple[list[Job], bool]:
        """The jobs that wait now, at least one unless it is time for idle works; False when none will follow."""
        jobs: list[Job] = []
        try:
            job = self._queue.get(timeout=IDLE_S if self._idle else None)
            while job is not None:
                # A waiter that has gone, before its work was begun, takes the work back.
                if not job.waiter.cancelled():
                    jobs.append(job)
                if len(jobs) == GROUP_MAX_WORKS:
                    return jobs, True
                job = self._queue.get_nowait()
        except Empty:
            return jobs, True
        return jobs, False

    def _write_group(self, jobs: list[Job]) -> None:
        """Make all `jobs` durable with one sync; where that fails for the group, each one by itself."""
        try:
            connection = self._begun()
        except Exception as error:
            self._roll_back(error)
            for job in jobs:
                job.error = explained(error, self._home.database) or error
            return
        try:
            transactions = self._transact(connection, jobs)
        except BaseException as error:
            self._roll_back(error)
            if len(jobs) == 1:
                # Whatever a work raises, `SystemExit` too, ends neither this thread nor the wait for its answer.
                jobs[0].error = explained(error, self._home.database) or error
                return
            for job in jobs:
                job.error = None
                self._write_group([job])
            return
        for transaction in transactions:
            if transaction.idle:
                if not self._idle:
                    self._idle_by = monotonic() + IDLE_DEADLINE_S
                self._idle |= transaction.idle

    def _begun(self) -> sqlite3.Connection:
        database = self._home.database
        if self._connection is None:
            self._connection = self._connect()
            self._file = _file_at(database)
        elif _file_at(database) != self._file:
            # What goes into a file without a name is gone with this process: that must not be acknowledged.
            raise StoreError(f"{database}: was removed or replaced while it was in use: stop Buzz and start it again")
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    def _transact(self, connection: sqlite3.Connection, jobs: list[Job]) -> list[Transaction]:
        """Run `jobs` in the transaction that was begun, and commit it; gives those of the jobs that did not fail.

        One of several that fails alone carries its error. Raises what failed for all of them, or for the only one.
        """
        done: list[Transaction] = []
        for job in jobs:
            transaction = Transaction(connection, self._home, self._remembered)
            if len(jobs) == 1:
                job.result = job.work(transaction)
                transaction.end()
            elif not self._run_in_savepoint(connection, job, transaction):
                continue
            done.append(transaction)
        connection.execute("COMMIT")
        return done

    def _run_in_savepoint(self, connection: sqlite3.Connection, job: Job, transaction: Transaction) -> bool:
        connection.execute("SAVEPOINT work")
        try:
            job.result = job.work(transaction)
            transaction.end()
        except BaseException as error:
            self._remembered.clear()
            if not connection.in_transaction:
                raise _GroupLost from error
            connection.execute("ROLLBACK TO work")
            connection.execute("RELEASE work")
            job.error = explained(error, self._home.database) or error
            return False
        connection.execute("RELEASE work")
        return True

    def _roll_back(self, error: BaseException) -> None:
        self._remembered.clear()
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()
        if explained(error, self._home.database) is not None:
            # The file may have been mended or replaced by the time of the next write: look at it afresh.
            self._disconnect()

    def _disconnect(self) -> None:
        self._remembered.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run_idle(self) -> None:
        works, self._idle = list(self._idle.values()), {}
        for work in works:
            job = Job(work, Future())
            self._write_group([job])
            if job.error is not None:
                log.warning("%s: what was put off could not be done: %s", self._home.database, job.error)


class _GroupLost(Exception):
    """SQLite has rolled back the whole group: its works are run again, each alone."""


def _file_at(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _tell(jobs: list[Job]) -> None:
    """Settle `jobs`; one wake-up for each event loop, however many of its tasks waited."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        if job.loop is None:
            job.settle()
        else:
            by_loop.setdefault(job.loop, []).append(job)
    for loop, waiting in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle_all, waiting)
        except RuntimeError:
            log.debug("an event loop was closed before %d answers reached it", len(waiting))


def _settle_all(jobs: list[Job]) -> None:
    for job in jobs:
        job.settle()
