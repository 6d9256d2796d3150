"""What the doctor says of the database, and that it reads it without the right to write."""

from __future__ import annotations

import sqlite3

import pytest

from buzz_host.ledger import mirrored_head, record_turn
from buzz_host.ledger.newest import verify_newest
from buzz_host.ledger.search import index
from buzz_host.services.doctor import database
from buzz_host.settings import Home
from buzz_host.store import MIGRATIONS, Store, StoreError, read_only
from tests.host.doctor.conftest import Examined, lines
from tests.host.ledger.making import turn_record

TURNS = 30


@pytest.fixture
def recorded(opened: Home) -> Home:
    """A home with 30 turns without an end."""
    with Store.open(opened) as store:
        for number in range(1, TURNS + 1):
            store.write_sync(lambda tx, number=number: record_turn(tx, turn_record(number)))  # type: ignore[misc]
        while store.write_sync(index):
            pass
    return opened


def change(home: Home, statement: str) -> None:
    connection = sqlite3.connect(home.database)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.req("OPS-01", "AUD-03")
def test_a_sound_ledger_is_told_with_what_was_looked_at(
    recorded: Home, examined: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = lines(examined(area="ledger"))
    assert "state.db is sound" in said
    assert f"the newest {TURNS} of {TURNS} entries are whole" in said
    assert f"note ledger {TURNS} turns have no end" in said
    monkeypatch.setattr(database, "NEWEST_ENTRIES", 10)
    assert f"the newest 10 of {TURNS} entries are whole; `buzz doctor --full` looks at all" in lines(
        examined(area="ledger")
    )
    assert f"all {TURNS} entries are whole" in lines(examined(area="ledger", full=True))


@pytest.mark.req("OPS-01", "AUD-03")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET fields = replace(fields, 'main', 'mains') WHERE seq = 28",
        "UPDATE entries SET hash = zeroblob(32) WHERE seq = 30",
        "DELETE FROM entries WHERE seq = 29",
        "DELETE FROM entries WHERE seq = 30",
        "UPDATE entries SET previous = zeroblob(32) WHERE seq = 21",
        "UPDATE entries SET fields = x'ff00', at = NULL WHERE 0",
    ],
)
def test_what_was_changed_among_the_newest_is_a_problem(
    statement: str, recorded: Home, examined: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(recorded, statement)
    monkeypatch.setattr(database, "NEWEST_ENTRIES", 10)
    changed = not statement.endswith("WHERE 0")
    assert ("changed behind its back" in lines(examined("problem", "ledger"))) is changed


@pytest.mark.req("OPS-01", "AUD-03")
def test_what_was_changed_long_ago_is_found_by_the_full_look(
    recorded: Home, examined: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "NEWEST_ENTRIES", 10)
    change(recorded, "UPDATE entries SET fields = replace(fields, 'main', 'mains') WHERE seq = 3")
    assert examined("problem", "ledger") == ()
    assert "entry 3" in lines(examined("problem", "ledger", full=True))


@pytest.mark.req("OPS-01", "AUD-03")
def test_a_ledger_that_is_gone_is_missed(recorded: Home, examined: Examined) -> None:
    recorded.database.unlink()
    assert f"says that it had {TURNS} entries; put a backup in its place" in lines(examined("problem", "ledger"))


@pytest.mark.req("AUD-03")
def test_the_quick_look_takes_any_number_of_entries(recorded: Home) -> None:
    mirrored = mirrored_head(recorded.head)
    with read_only(recorded) as connection:
        for count in (1, 2, TURNS - 1, TURNS, TURNS + 1, 1000):
            assert list(verify_newest(connection, count, mirrored)) == []


@pytest.mark.req("OPS-01", "AUD-02")
@pytest.mark.parametrize("beside", ["nothing", "a log and an index", "a log alone"])
def test_a_database_is_read_without_changing_anything(beside: str, recorded: Home) -> None:
    writer = None
    if beside != "nothing":
        writer = sqlite3.connect(recorded.database, isolation_level=None)
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("CREATE TABLE late (n)")
        writer.execute("INSERT INTO late VALUES (7)")
    copy = Home(recorded.root.parent / "copy")
    copy.folder()
    for each in recorded.root.glob("state.db*"):
        if beside == "a log and an index" or not each.name.endswith("-shm"):
            (copy.root / each.name).write_bytes(each.read_bytes())
    before = {each.name: each.read_bytes() for each in copy.root.iterdir() if not each.name.endswith("-shm")}
    with read_only(copy) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (TURNS,)
        if writer is not None:
            assert connection.execute("SELECT n FROM late").fetchone() == (7,), "what stands in the log counts"
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM entries")
    assert {each.name: each.read_bytes() for each in copy.root.iterdir() if not each.name.endswith("-shm")} == before
    if writer is not None:
        writer.close()


@pytest.mark.req("OPS-01", "AUD-02")
def test_a_file_that_is_written_while_it_is_read_as_unchanged_is_told(recorded: Home) -> None:
    def read_while_it_is_written() -> None:
        with read_only(recorded), Store.open(recorded) as store:
            store.write_sync(lambda tx: record_turn(tx, turn_record(TURNS + 1)))

    with pytest.raises(StoreError, match="was written to while it was read: ask again"):
        read_while_it_is_written()


@pytest.mark.req("OPS-01", "OPS-02")
def test_a_schema_of_another_version_is_read_if_older_and_refused_if_newer(recorded: Home, examined: Examined) -> None:
    change(recorded, f"PRAGMA user_version = {len(MIGRATIONS) - 1}")
    assert "was written by an older version of Buzz" in lines(examined("note", "ledger"))
    change(recorded, f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    assert "a newer version of Buzz wrote this database" in lines(examined("problem", "ledger"))
    change(recorded, "PRAGMA user_version = 0")
    assert "holds nothing" in lines(examined("problem", "ledger"))
