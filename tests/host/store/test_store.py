"""The store: what it has answered is in the database, works fail alone, readers see one moment."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_host.settings import Home
from buzz_host.store import Migration, Store, StoreClosed, StoreError, Transaction

pytestmark = pytest.mark.anyio

NUMBERS = (Migration("numbers", ("CREATE TABLE numbers (n INTEGER PRIMARY KEY, who TEXT)",)),)


def numbers_store(path: Path) -> Store:
    return Store.open(Home.resolve(path), NUMBERS)


def put(number: int, who: str = "") -> object:
    def work(tx: Transaction) -> int:
        tx.execute("INSERT INTO numbers VALUES (?, ?)", (number, who))
        return number

    return work


def numbers(store: Store) -> list[int]:
    with store.read() as connection:
        return [n for (n,) in connection.execute("SELECT n FROM numbers ORDER BY n")]


def independently(path: Path) -> list[int]:
    """What another connection, of nobody's making but this test's, finds in the database."""
    connection = sqlite3.connect(path / "state.db")
    try:
        return [n for (n,) in connection.execute("SELECT n FROM numbers ORDER BY n")]
    finally:
        connection.close()


@pytest.mark.req("OPS-02")
async def test_what_was_answered_is_in_the_one_file_of_its_owner_alone(tmp_path: Path) -> None:
    with numbers_store(tmp_path / "home") as store:
        assert await store.write(put(1)) == 1
        assert independently(tmp_path / "home") == [1]
        for name in ("state.db", "state.db-wal", "state.db-shm"):
            assert stat.S_IMODE((tmp_path / "home" / name).stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["state.db"], "closing leaves one file"


@pytest.mark.req("OPS-03")
async def test_writing_is_synchronous_to_the_disk(tmp_path: Path) -> None:
    with numbers_store(tmp_path) as store:
        mode = await store.write(lambda tx: tx.execute("PRAGMA journal_mode").fetchone()[0])
        level = await store.write(lambda tx: tx.execute("PRAGMA synchronous").fetchone()[0])
        foreign = await store.write(lambda tx: tx.execute("PRAGMA foreign_keys").fetchone()[0])
    assert (mode, level, foreign) == ("wal", 2, 1)


@pytest.mark.req("OPS-03")
async def test_a_work_that_raises_fails_alone_and_leaves_nothing(tmp_path: Path) -> None:
    def fails(tx: Transaction) -> None:
        tx.execute("INSERT INTO numbers VALUES (100, '')")
        raise LookupError("mine alone")

    with numbers_store(tmp_path) as store:
        outcomes = await asyncio.gather(
            store.write(put(1)), store.write(fails), store.write(put(2)), store.write(put(1)), return_exceptions=True
        )
        assert [type(each) for each in outcomes] == [int, LookupError, int, sqlite3.IntegrityError]
        assert numbers(store) == [1, 2]
        with pytest.raises(LookupError, match="mine alone"):
            await store.write(fails)
        assert numbers(store) == [1, 2]


@pytest.mark.req("OPS-03")
async def test_even_a_work_that_asks_the_process_to_exit_is_answered(tmp_path: Path) -> None:
    def leaves(tx: Transaction) -> None:
        raise SystemExit(3)

    def stops(tx: Transaction) -> None:
        raise StopIteration

    with numbers_store(tmp_path) as store:
        for group in (1, 2):
            outcomes = await asyncio.gather(*[store.write(stops) for _ in range(group)], return_exceptions=True)
            assert [str(each) for each in outcomes] == ["the work raised StopIteration"] * group
        with pytest.raises(SystemExit):
            store.write_sync(leaves)
        assert await store.write(put(1)) == 1


steps = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30)


@pytest.mark.req("OPS-03")
@given(groups=st.lists(steps, max_size=5))
def test_any_mix_of_works_leaves_what_those_left_that_were_answered(
    groups: list[list[tuple[int, bool]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("home")

    def step(number: int, ok: bool) -> object:
        def work(tx: Transaction) -> int:
            tx.execute("INSERT INTO numbers VALUES (?, '')", (number,))
            tx.remembered["last"] = number
            if not ok:
                raise LookupError
            return number

        return work

    async def run() -> list[int]:
        answered: list[int] = []
        with numbers_store(path) as store:
            for group in groups:
                outcomes = await asyncio.gather(
                    *[store.write(step(number, ok)) for number, ok in group], return_exceptions=True
                )
                answered += [each for each in outcomes if isinstance(each, int)]
                remembered = await store.write(lambda tx: tx.remembered.get("last"))
                assert remembered is None or remembered in answered, "nothing is remembered that was rolled back"
        return answered

    answered = asyncio.run(run())
    assert len(answered) == len(set(answered))
    assert independently(path) == sorted(answered)
    assert set(answered) == {number for group in groups for number, ok in group if ok}


@pytest.mark.req("OPS-03")
async def test_many_works_of_one_moment_share_a_sync(tmp_path: Path) -> None:
    release = threading.Event()
    with numbers_store(tmp_path) as store:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.write, lambda tx: release.wait(10))
            await anyio.wait_all_tasks_blocked()
            for number in range(100):
                tasks.start_soon(store.write, put(number))
            await anyio.wait_all_tasks_blocked()
            versions = sqlite3.connect(tmp_path / "state.db")
            before = versions.execute("PRAGMA data_version").fetchone()
            seen = []
            release.set()
            while not seen or seen[-1] != 100:
                seen.append(versions.execute("SELECT count(*) FROM numbers").fetchone()[0])
            versions.close()
        assert before
        assert set(seen) <= {0, 100}, "all hundred became visible together"


@pytest.mark.req("OPS-03")
async def test_a_wait_that_was_given_up_takes_back_a_work_that_was_not_begun(tmp_path: Path) -> None:
    release = threading.Event()
    with numbers_store(tmp_path) as store:
        first = asyncio.ensure_future(store.write(lambda tx: release.wait(10)))
        second = asyncio.ensure_future(store.write(put(2)))
        await anyio.wait_all_tasks_blocked()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        release.set()
        assert await first
        assert await store.write(put(3)) == 3
        assert numbers(store) == [3]


@pytest.mark.req("OPS-03")
async def test_a_transaction_is_over_when_its_work_is(tmp_path: Path) -> None:
    kept: list[Transaction] = []
    with numbers_store(tmp_path) as store:
        await store.write(kept.append)
        with pytest.raises(RuntimeError, match="this transaction is over"):
            kept[0].execute("SELECT 1")
        with pytest.raises(RuntimeError, match="this transaction is over"):
            kept[0].executemany("SELECT ?", [(1,)])


@pytest.mark.req("OPS-03")
async def test_closing_writes_what_was_queued_and_then_refuses(tmp_path: Path) -> None:
    store = numbers_store(tmp_path)
    waits = [asyncio.ensure_future(store.write(put(number))) for number in range(50)]
    await anyio.wait_all_tasks_blocked()
    store.close()
    assert await asyncio.gather(*waits) == list(range(50))
    assert independently(tmp_path) == list(range(50))
    with pytest.raises(StoreClosed, match="the store is closed"):
        await store.write(put(51))
    with pytest.raises(StoreClosed, match="the store is closed"), store.read():
        pass
    store.close()


@pytest.mark.req("OPS-03")
def test_closing_does_not_wait_for_ever(tmp_path: Path) -> None:
    store = numbers_store(tmp_path)
    release = threading.Event()
    hanging = threading.Thread(target=store.write_sync, args=[lambda tx: release.wait(30)])
    hanging.start()
    with pytest.raises(StoreError, match=r"within 0\.05 s"):
        store.close(deadline_s=0.05)
    release.set()
    hanging.join(10)
    store.close()


@pytest.mark.req("OPS-03")
def test_an_event_loop_that_is_gone_harms_nobody(tmp_path: Path) -> None:
    release = threading.Event()
    loop = asyncio.new_event_loop()
    with numbers_store(tmp_path) as store:
        begun = threading.Event()

        def work(tx: Transaction) -> None:
            begun.set()
            release.wait(10)
            tx.execute("INSERT INTO numbers VALUES (1, '')")

        task = loop.create_task(store.write(work))
        loop.call_later(0, loop.stop)
        loop.run_forever()
        assert begun.wait(10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()
        release.set()
        assert store.write_sync(put(2)) == 2
        assert numbers(store) == [1, 2]


@pytest.mark.req("OPS-03")
def test_a_writer_at_work_does_not_hold_up_the_exit_of_the_process(tmp_path: Path) -> None:
    script = """
import sys, threading
from pathlib import Path
from buzz_host.settings import Home
from buzz_host.store import Store
store = Store.open(Home(Path(sys.argv[1])))
begun = threading.Event()
def work(tx):
    begun.set()
    threading.Event().wait()
threading.Thread(target=lambda: store.write_sync(work), daemon=True).start()
begun.wait()
print("leaving")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        timeout=20,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        check=True,
    )
    assert (done.stdout, done.stderr) == ("leaving\n", "")


@pytest.mark.req("OPS-02")
async def test_a_reader_sees_one_moment_and_writes_nothing(tmp_path: Path) -> None:
    with numbers_store(tmp_path) as store:
        await store.write(put(1))
        with store.read() as connection:
            assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (1,)
            await store.write(put(2))
            assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (1,)
            assert numbers(store) == [1, 2], "another reader sees the newest"
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                connection.execute("DELETE FROM numbers")
        with pytest.raises(LookupError), store.read():
            raise LookupError
        assert numbers(store) == [1, 2]


@pytest.mark.req("OPS-02")
async def test_readers_are_used_again_and_any_number_may_read_at_once(tmp_path: Path) -> None:
    with numbers_store(tmp_path) as store:
        await store.write(put(1))
        with store.read() as first:
            pass
        with store.read() as second:
            assert second is first
        found: list[list[int]] = []
        threads = [threading.Thread(target=lambda: found.append(numbers(store))) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert found == [[1]] * 12


@pytest.mark.req("OPS-03")
async def test_what_may_wait_is_done_when_idle_once_and_before_closing(tmp_path: Path) -> None:
    ran: list[str] = []

    def ask(tx: Transaction) -> None:
        tx.when_idle("key", lambda tx: ran.append(threading.current_thread().name))

    def refuse(tx: Transaction) -> None:
        tx.when_idle("other", lambda tx: ran.append("never"))
        raise LookupError

    store = numbers_store(tmp_path)
    await asyncio.gather(*[store.write(ask) for _ in range(10)], store.write(refuse), return_exceptions=True)
    store.close()
    assert ran == ["buzz-store-writer"]


@pytest.mark.req("OPS-03")
async def test_what_may_wait_is_done_within_its_deadline_however_busy_the_store_is(tmp_path: Path) -> None:
    done = threading.Event()
    with numbers_store(tmp_path) as store:
        await store.write(lambda tx: tx.when_idle("key", lambda tx: done.set()))
        with anyio.fail_after(10):
            while not done.is_set():
                await store.write(lambda tx: None)


@pytest.mark.req("OPS-03")
async def test_a_fault_in_what_may_wait_is_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def breaks(tx: Transaction) -> None:
        raise LookupError("not now")

    with numbers_store(tmp_path) as store:
        await store.write(lambda tx: tx.when_idle("key", breaks))
    assert "what was put off could not be done: not now" in caplog.text


@pytest.mark.req("OPS-02")
async def test_a_backup_made_while_the_store_writes_opens(tmp_path: Path) -> None:
    with numbers_store(tmp_path / "home") as store:
        for number in range(50):
            await store.write(put(number))
        Home.resolve(tmp_path / "copy").folder()
        target = sqlite3.connect(tmp_path / "copy" / "state.db")
        with store.read() as source:
            writing = asyncio.ensure_future(store.write(put(50)))
            source.backup(target, pages=1)
        target.close()
        await writing
    with numbers_store(tmp_path / "copy") as copy:
        assert numbers(copy)[:50] == list(range(50))
        assert await copy.write(put(100)) == 100
