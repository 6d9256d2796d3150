"""A full disk, a damaged file, a folder that may not be written: one clear line, nothing lost, and on it goes after."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from buzz_host.settings import Home, HomeError
from buzz_host.store import Migration, Store, StoreError, Transaction

pytestmark = pytest.mark.anyio

BODIES = (Migration("bodies", ("CREATE TABLE bodies (n INTEGER PRIMARY KEY, body BLOB)",)),)
DISK_KIB = 768


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 768 KiB of our own; skips where mounting one is not permitted."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k", "buzz-test", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def put(number: int, size: int) -> object:
    def work(tx: Transaction) -> int:
        tx.execute("INSERT INTO bodies VALUES (?, ?)", (number, os.urandom(size)))
        return number

    return work


def kept(home: Home) -> list[int]:
    connection = sqlite3.connect(home.database)
    rows = [n for (n,) in connection.execute("SELECT n FROM bodies ORDER BY n")]
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    return rows


@pytest.mark.req("OPS-03")
async def test_a_full_disk_is_one_line_loses_nothing_and_passes(small_disk: Path) -> None:
    home = Home.resolve(small_disk / "home")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300 * 1024))
    answered = []

    async def fill(store: Store) -> None:
        while True:
            answered.append(await store.write(put(len(answered), 8000)))

    with Store.open(home, BODIES) as store:
        with pytest.raises(StoreError, match=r"state\.db: the disk is full; nothing of this was written") as said:
            await fill(store)
        assert "\n" not in str(said.value)
        assert answered == list(range(len(answered)))
        assert len(answered) > 5
        ballast.unlink()
        answered.append(await store.write(put(5000, 8000)))
        with store.read() as connection:
            assert [n for (n,) in connection.execute("SELECT n FROM bodies ORDER BY n")] == answered
    assert kept(home) == answered


@pytest.mark.req("OPS-03")
async def test_a_work_that_fills_the_disk_fails_alone(small_disk: Path) -> None:
    home = Home.resolve(small_disk / "home")
    with Store.open(home, BODIES) as store:
        outcomes = await asyncio.gather(
            store.write(put(1, 100)),
            store.write(put(2, DISK_KIB * 1024)),
            store.write(put(3, 100)),
            return_exceptions=True,
        )
        assert [outcomes[0], outcomes[2]] == [1, 3]
        assert isinstance(outcomes[1], StoreError)
    assert kept(home) == [1, 3]


@pytest.mark.req("OPS-03")
async def test_a_work_that_swallows_the_full_disk_does_not_go_on_outside_of_its_transaction(small_disk: Path) -> None:
    home = Home.resolve(small_disk / "home")

    def stubborn(tx: Transaction) -> None:
        tx.execute("INSERT INTO bodies VALUES (1, '')")
        try:
            tx.execute("INSERT INTO bodies VALUES (2, ?)", (os.urandom(DISK_KIB * 2048),))
        except sqlite3.Error:
            tx.execute("INSERT INTO bodies VALUES (3, '')")

    with Store.open(home, BODIES) as store:
        for group in (1, 2):
            outcomes = await asyncio.gather(*[store.write(stubborn) for _ in range(group)], return_exceptions=True)
            assert [type(each) for each in outcomes] == [StoreError] * group
        assert await store.write(put(4, 10)) == 4
    assert kept(home) == [4]


@pytest.mark.req("OPS-03")
async def test_a_database_that_may_grow_no_more_says_so_and_goes_on_when_it_may(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    with Store.open(home, BODIES) as store:
        await store.write(put(1, 100))
        limit = await store.write(lambda tx: tx.execute("PRAGMA max_page_count = 8").fetchone()[0])
        assert limit == 8
        with pytest.raises(StoreError, match="the disk is full"):
            await store.write(put(2, 100_000))
        # A fault of the surroundings makes the writer look afresh: a new connection has no such limit.
        assert await store.write(put(3, 100_000)) == 3
    assert kept(home) == [1, 3]


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize("content", [b"this is no database at all, " * 40, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_file_that_is_no_database_is_one_line(tmp_path: Path, content: bytes) -> None:
    home = Home.resolve(tmp_path)
    home.database.write_bytes(content)
    with pytest.raises(StoreError, match=r"state\.db: .*(is no database|is damaged)") as said:
        Store.open(home, BODIES)
    assert "\n" not in str(said.value)
    assert home.database.read_bytes() == content, "it is not touched"


@pytest.mark.req("OPS-01", "OPS-03")
async def test_damage_within_the_database_is_one_line_and_a_backup_can_take_its_place(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    with Store.open(home, BODIES) as store:
        for number in range(100):
            await store.write(put(number, 5000))
    backup = home.database.read_bytes()
    damaged = bytearray(backup)
    damaged[4096:] = b"\xa5" * (len(damaged) - 4096)
    home.database.write_bytes(damaged)
    with Store.open(home, BODIES) as store:
        with pytest.raises(StoreError, match=r"is damaged; put a backup in its place"), store.read() as connection:
            connection.execute("SELECT * FROM bodies").fetchall()
        with pytest.raises(StoreError, match=r"is damaged; put a backup in its place"):
            await store.write(put(200, 10))
        home.database.write_bytes(backup)
        assert await store.write(put(200, 10)) == 200
    assert kept(home) == [*range(100), 200]


@pytest.mark.req("OPS-01")
def test_a_database_whose_place_a_folder_takes_is_one_line(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    home.database.mkdir()
    with pytest.raises(StoreError, match=r"state\.db: cannot be opened"):
        Store.open(home, BODIES)


@pytest.mark.req("OPS-01")
def test_a_home_that_may_not_be_written_is_one_line() -> None:
    with pytest.raises(HomeError):
        Store.open(Home.resolve(Path("/proc/self/home")), BODIES)


@pytest.mark.req("OPS-01", "OPS-03")
async def test_a_database_that_vanished_is_told_and_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    with Store.open(home, BODIES) as store:
        home.database.unlink()
        with pytest.raises(StoreError, match="cannot be opened"):
            await store.write(put(1, 1))
        with pytest.raises(StoreError, match="cannot be opened"), store.read():
            pass
        assert not home.database.exists()


@pytest.mark.req("OPS-01", "OPS-03")
async def test_a_database_that_is_replaced_while_in_use_takes_no_more_and_says_so(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    with Store.open(home, BODIES) as store:
        await store.write(put(1, 1))
        copy = tmp_path / "copy.db"
        copy.write_bytes(home.database.read_bytes())
        copy.replace(home.database)
        for _ in range(2):
            # The old file has no name any more: whatever went into it would be gone with this process.
            with pytest.raises(StoreError, match="was removed or replaced while it was in use"):
                await store.write(put(2, 1))


@pytest.mark.req("OPS-01")
async def test_a_lock_that_is_never_released_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buzz_host.store.database.BUSY_TIMEOUT_S", 0.05)
    home = Home.resolve(tmp_path)
    with Store.open(home, BODIES) as store:
        other = sqlite3.connect(home.database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waits = await asyncio.gather(*[store.write(put(n, 1)) for n in range(3)], return_exceptions=True)
        assert [str(each) for each in waits if "another program has kept it locked" not in str(each)] == []
        other.execute("ROLLBACK")
        other.close()
        assert await store.write(put(1, 1)) == 1
