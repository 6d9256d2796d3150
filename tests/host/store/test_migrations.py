"""The schema moves forward only, in whole steps, once, however many processes start at the same moment."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from buzz_host.settings import Home
from buzz_host.store import MIGRATIONS, Migration, Store, StoreError
from tests.conftest import SOAK

PROCESSES = 6
ROUNDS = 20 if SOAK else 3
ONE = Migration("one", ("CREATE TABLE one (a TEXT)", "INSERT INTO one VALUES ('kept')"))
TWO = Migration("two", ("ALTER TABLE one ADD COLUMN b TEXT DEFAULT 'new'",))


def version(home: Home) -> int:
    connection = sqlite3.connect(home.database)
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return int(found)


@pytest.mark.req("OPS-02")
def test_an_older_database_is_brought_up_to_date_and_keeps_what_it_holds(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    Store.open(home, (ONE,)).close()
    assert version(home) == 1
    with Store.open(home, (ONE, TWO)) as store, store.read() as connection:
        assert connection.execute("SELECT a, b FROM one").fetchall() == [("kept", "new")]
    assert version(home) == 2
    Store.open(home, (ONE, TWO)).close()
    assert version(home) == 2


@pytest.mark.req("OPS-02", "OPS-03")
def test_a_step_that_fails_leaves_the_version_before_it(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    broken = Migration("broken", ("CREATE TABLE two (a TEXT)", "INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        Store.open(home, (ONE, broken))
    assert version(home) == 1
    with Store.open(home, (ONE,)) as store, store.read() as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        assert tables == [("one",)]


@pytest.mark.req("OPS-02")
def test_a_database_of_a_newer_version_is_one_clear_line(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    Store.open(home, (ONE, TWO)).close()
    with pytest.raises(
        StoreError, match=r"a newer version of Buzz wrote this .* 2, this version knows 1.*upgrade"
    ) as said:
        Store.open(home, (ONE,))
    assert "\n" not in str(said.value)
    assert version(home) == 2


@pytest.mark.req("OPS-02")
def test_each_step_says_what_it_is_for() -> None:
    assert all(step.purpose and step.statements for step in MIGRATIONS)


@pytest.mark.req("OPS-02", "OPS-03")
def test_processes_that_start_at_once_on_an_empty_home_all_get_a_whole_store(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from buzz_host.settings import Home
from buzz_host.store import Store
sys.stdin.readline()
with Store.open(Home(Path(sys.argv[1]))) as store:
    store.write_sync(lambda tx: tx.execute("CREATE TABLE IF NOT EXISTS here (n INTEGER)"))
    store.write_sync(lambda tx: tx.execute("INSERT INTO here VALUES (1)"))
"""
    for number in range(ROUNDS):
        home = Home.resolve(tmp_path / f"home-{number}")
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", script, str(home.root)],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
            )
            for _ in range(PROCESSES)
        ]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()
        assert [(process.communicate(timeout=60)[1], process.returncode) for process in processes] == [
            (b"", 0)
        ] * PROCESSES
        assert version(home) == len(MIGRATIONS)
        with Store.open(home) as store, store.read() as connection:
            assert connection.execute("SELECT count(*) FROM here").fetchone() == (PROCESSES,)
