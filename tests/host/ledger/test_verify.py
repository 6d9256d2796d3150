"""Whatever is changed behind the ledger's back is found: a byte, an entry, an order, a tail, a derived row."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.events import Usage
from buzz_author.harness import HarnessError
from buzz_author.turns import LeftOut
from buzz_host.ledger import (
    Body,
    Break,
    EndRecord,
    EntryDraft,
    Head,
    LedgerError,
    SettledRecord,
    ToolRecord,
    append,
    mirrored_head,
    queries,
    record_compacted,
    record_end,
    record_settled,
    record_steer,
    record_tool,
    record_turn,
    verify,
)
from buzz_host.settings import Home
from buzz_host.store import Store
from tests.conftest import SOAK
from tests.host.ledger.making import NOON, turn_record

LATER = NOON + timedelta(hours=1)
TABLES = ("entries", "bodies", "body_keys", "body_keys_upto", "parties", "party_plugins", "turns")
FILE_FLIPS = 4000 if SOAK else 120
Change = Callable[[sqlite3.Connection], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A ledger with something of everything in it, closed."""
    home = Home.resolve(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patch, Store.open(home) as store:
        patch.setattr("buzz_host.ledger.bodies.NEWEST_MAX_BODIES", 12)
        write = store.write_sync
        for number in range(1, 7):
            left_out = (LeftOut("freeze", "rule", "when-raised", f"ValueError {number}"),)
            plugins = ("style-guide", "other") if number % 2 else ("style-guide",)
            record = turn_record(number, agent="dev" if number > 3 else "main", plugins=plugins, left_out=left_out)
            write(lambda tx, record=record: record_turn(tx, record))  # type: ignore[misc]
        write(lambda tx: record_tool(tx, ToolRecord("turn-000001", LATER, "c", "t", "p", {"a": 1}, "result")))
        for number, outcome in ((11, "folded"), (12, "own-turn"), (13, "returned")):
            steer = turn_record(number, steers="turn-000001")
            write(lambda tx, steer=steer: record_steer(tx, steer))  # type: ignore[misc]
            settled = SettledRecord(steer.turn, LATER, outcome)  # type: ignore[arg-type]
            write(lambda tx, settled=settled: record_settled(tx, settled))  # type: ignore[misc]
        write(lambda tx: record_end(tx, EndRecord("turn-000012", LATER, "completed", "own reply")))
        write(lambda tx: record_compacted(tx, "turn-000001", LATER))
        error = HarnessError("overloaded", "busy", 529, True)
        write(lambda tx: record_end(tx, EndRecord("turn-000001", LATER, "failed", "reply", Usage(1, 2), error)))
        write(lambda tx: record_end(tx, EndRecord("turn-000002", LATER, "completed", "reply two")))
        write(lambda tx: append(tx, EntryDraft("pruned", LATER, "", {"note": Body("a checkpoint")})))
    return home


@contextmanager
def copied(whole: Home, folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a copy of the ledger, free to do anything."""
    path = folder / "state.db"
    shutil.copy(whole.database, path)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def found(connection: sqlite3.Connection, **heads: object) -> list[Break]:
    breaks = list(verify(connection, **heads))  # type: ignore[arg-type]
    assert all("\n" not in str(each) for each in breaks)
    return breaks


def says(breaks: list[Break]) -> list[tuple[int | None, str]]:
    return [(each.seq, each.what) for each in breaks]


@pytest.mark.req("AUD-03")
def test_a_whole_ledger_has_no_break_and_ends_at_its_mirrored_head(whole: Home, tmp_path: Path) -> None:
    head = mirrored_head(whole.head)
    assert head is not None
    with copied(whole, tmp_path) as connection:
        assert connection.execute("SELECT count(*) > 0 FROM body_keys").fetchone() == (1,)
        assert found(connection, mirrored=head, head=head.hash.upper()) == []
        assert connection.execute("SELECT max(seq) FROM entries").fetchone() == (head.seq,)


def cells() -> list[tuple[str, str]]:
    connection = sqlite3.connect(":memory:")
    from buzz_host.store import MIGRATIONS

    for statement in MIGRATIONS[0].statements:
        connection.execute(statement)
    return [(table, column) for table in TABLES for _, column, *_ in connection.execute(f"PRAGMA table_info({table})")]


@pytest.mark.req("AUD-03")
@given(cell=st.sampled_from(cells()), row=st.integers(0, 10**6), place=st.integers(0, 10**6), mask=st.integers(1, 255))
def test_any_changed_byte_of_any_row_is_found(
    cell: tuple[str, str], row: int, place: int, mask: int, whole: Home, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table, column = cell
    with copied(whole, tmp_path_factory.mktemp("copy")) as connection:
        values = connection.execute(f"SELECT CAST({column} AS BLOB), typeof({column}) FROM {table}").fetchall()
        before, kind = values[row % len(values)]
        where = row % len(values)
        if kind == "integer":
            after: object = int(before) ^ mask
        elif kind == "null":
            after = mask
        else:
            changed = bytearray(before or b"\0")
            changed[place % len(changed)] ^= mask
            after = bytes(changed)
        cast = "TEXT" if kind == "text" else "BLOB"
        value = "?" if kind in ("integer", "null") else f"CAST(? AS {cast})"
        key = "rowid" if table not in ("body_keys", "party_plugins") else None
        try:
            if key is None:
                columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
                old = connection.execute(f"SELECT * FROM {table} LIMIT 1 OFFSET ?", (where,)).fetchone()
                before_raw = dict(zip(columns, old, strict=True))
                condition = " AND ".join(f"{name} IS ?" for name in columns)
                connection.execute(
                    f"UPDATE {table} SET {column} = {value} WHERE {condition}", (after, *before_raw.values())
                )
            else:
                (rowid,) = connection.execute(f"SELECT rowid FROM {table} LIMIT 1 OFFSET ?", (where,)).fetchone()
                connection.execute(f"UPDATE {table} SET {column} = {value} WHERE rowid = ?", (after, rowid))
        except sqlite3.IntegrityError:
            return  # SQLite refused the change by itself: two rows cannot have one key
        assert found(connection), f"{table}.{column}: {before!r} became {after!r}"


@pytest.mark.req("AUD-03")
@given(cell=st.sampled_from(cells()), row=st.integers(0, 10**6))
def test_a_value_that_only_changed_its_type_is_found(
    cell: tuple[str, str], row: int, whole: Home, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table, column = cell
    if table in ("body_keys", "party_plugins"):
        return
    with copied(whole, tmp_path_factory.mktemp("copy")) as connection:
        count = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        rowid, kind = connection.execute(
            f"SELECT rowid, typeof({column}) FROM {table} LIMIT 1 OFFSET ?", (row % count,)
        ).fetchone()
        if kind not in ("text", "blob"):
            return
        other = "BLOB" if kind == "text" else "TEXT"
        connection.execute(f"UPDATE {table} SET {column} = CAST({column} AS {other}) WHERE rowid = ?", (rowid,))
        assert found(connection)


@pytest.mark.req("AUD-03")
@given(table=st.sampled_from(TABLES), row=st.integers(0, 10**6))
def test_any_removed_row_is_found(table: str, row: int, whole: Home, tmp_path_factory: pytest.TempPathFactory) -> None:
    head = mirrored_head(whole.head)
    with copied(whole, tmp_path_factory.mktemp("copy")) as connection:
        columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
        count = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        old = connection.execute(f"SELECT * FROM {table} LIMIT 1 OFFSET ?", (row % count,)).fetchone()
        condition = " AND ".join(f"{name} IS ?" for name in columns)
        connection.execute(f"DELETE FROM {table} WHERE {condition}", old)
        assert found(connection, mirrored=head)


@pytest.mark.req("AUD-03")
@pytest.mark.parametrize(
    ("change", "places"),
    [
        ("DELETE FROM entries WHERE seq = 3", (3, "the chain")),
        ("DELETE FROM bodies WHERE body = 'result'", (7, "body ID")),
        ("UPDATE bodies SET body = 'resulT' WHERE body = 'result'", (7, "body ID")),
        ("UPDATE bodies SET salt = zeroblob(16) WHERE body = 'result'", (7, "body ID")),
        ("UPDATE entries SET fields = replace(fields, 'main', 'dev') WHERE seq = 2", (2, "the entry")),
        ("UPDATE turns SET status = 'completed' WHERE seq = 1", (16, "the index turns")),
        ("UPDATE turns SET status = 'completed' WHERE seq = 5", (5, "the index turns")),
        ("UPDATE turns SET session = 'other' WHERE seq = 4", (4, "the index turns")),
        ("INSERT INTO turns VALUES (9999, 1, 's', 'message', NULL, 'unended', NULL)", (None, "the index turns")),
        ("INSERT INTO party_plugins VALUES ('evil', 1)", (None, "the index party_plugins")),
        ("INSERT INTO parties VALUES (99, 'a', 'b', '[]')", (None, "the index parties")),
        ("INSERT INTO bodies VALUES (999, x'00', x'00', 'more')", (None, "body 999")),
        ("INSERT INTO body_keys_upto VALUES (0)", (None, "the index body_keys_upto")),
        ("UPDATE body_keys_upto SET id = 0", (None, "the index body_keys")),
    ],
)
def test_a_break_names_the_place(whole: Home, tmp_path: Path, change: str, places: tuple[int | None, str]) -> None:
    with copied(whole, tmp_path) as connection:
        (number,) = connection.execute("SELECT id FROM bodies WHERE body = CAST('result' AS BLOB)").fetchone()
        for text in ("'result'", "'resulT'"):
            change = change.replace(text, f"CAST({text} AS BLOB)")
        connection.execute(change)
        breaks = found(connection)
    seq, what = places
    assert (seq, what.replace("ID", str(number))) in says(breaks), [str(each) for each in breaks]
    assert len(breaks) < 5, "one change is not a flood"


@pytest.mark.req("AUD-03")
@pytest.mark.parametrize("change", ["DROP INDEX turns_of_party", "ALTER TABLE bodies RENAME COLUMN salt TO pepper"])
def test_a_changed_schema_is_found(whole: Home, tmp_path: Path, change: str) -> None:
    with copied(whole, tmp_path) as connection:
        connection.execute(change)
        assert len(found(connection)) == 1
        assert "the schema of" in str(found(connection)[0])


@pytest.mark.req("AUD-03")
def test_a_reordered_pair_is_found(whole: Home, tmp_path: Path) -> None:
    with copied(whole, tmp_path) as connection:
        for old, new in ((3, -1), (4, 3), (-1, 4)):
            connection.execute("UPDATE entries SET seq = ? WHERE seq = ?", (new, old))
        assert {(3, "the entry"), (4, "the entry")} <= set(says(found(connection)))


@pytest.mark.req("AUD-03")
def test_a_cut_tail_is_found_by_the_mirrored_head_and_by_a_head_kept_elsewhere(whole: Home, tmp_path: Path) -> None:
    head = mirrored_head(whole.head)
    assert head is not None
    cuts: list[Change] = [
        lambda connection: connection.execute("DELETE FROM entries WHERE seq > 15"),
        lambda connection: connection.execute("DELETE FROM entries"),
    ]
    for cut in cuts:
        with copied(whole, tmp_path) as connection:
            cut(connection)
            # Somebody who cuts well leaves no loose ends.
            connection.execute("DELETE FROM turns WHERE seq NOT IN (SELECT seq FROM entries)")
            connection.execute(
                "UPDATE turns SET status = 'unended', ended = NULL WHERE ended NOT IN (SELECT seq FROM entries)"
            )
            assert {(head.seq, "the mirrored head"), (None, "the noted head")} <= set(
                says(found(connection, mirrored=head, head=head.hash))
            )


@pytest.mark.req("AUD-03")
def test_a_mirror_that_lags_is_an_ancestor_and_a_foreign_one_is_not(whole: Home, tmp_path: Path) -> None:
    with copied(whole, tmp_path) as connection:
        seq, made = connection.execute("SELECT seq, hash FROM entries WHERE seq = 4").fetchone()
        assert found(connection, mirrored=Head(seq, made.hex()), head=made.hex()) == []
        assert says(found(connection, mirrored=Head(5, made.hex()))) == [(5, "the mirrored head")]
        assert says(found(connection, head="ab" * 32)) == [(None, "the noted head")]
        assert says(found(connection, mirrored=Head(0, made.hex()))) == [(0, "the mirrored head")]
        with pytest.raises(LedgerError, match="is no head of a ledger"):
            found(connection, head="abc")


@pytest.mark.req("AUD-03")
def test_a_chain_that_was_written_anew_passes_alone_but_not_against_a_head_from_before(
    whole: Home, tmp_path: Path
) -> None:
    head = mirrored_head(whole.head)
    assert head is not None
    with Store.open(Home.resolve(tmp_path)) as store:
        store.write_sync(lambda tx: record_turn(tx, turn_record(1)))
        with store.read() as connection:
            assert found(connection) == []
            assert says(found(connection, head=head.hash)) == [(None, "the noted head")]


@pytest.mark.req("AUD-03")
@pytest.mark.parametrize("fields", [{}, {"sections": 1, "left_out": [], "faults": []}, {"sections": [{"plugin": []}]}])
def test_an_entry_that_was_chained_anew_with_fields_of_no_kind_is_a_break(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    with Store.open(Home.resolve(tmp_path)) as store:
        for kind in ("turn_sent", "turn_ended", "steer_settled"):
            draft = EntryDraft(kind, NOON, f"of {kind}", fields)  # type: ignore[arg-type]
            store.write_sync(lambda tx, draft=draft: append(tx, draft))  # type: ignore[misc]
        with store.read() as connection:
            assert says(found(connection)) == [(number, "the fields") for number in (1, 2, 3)]


@pytest.mark.req("AUD-03")
def test_the_mirror_follows_the_chain_and_what_is_no_head_is_one_line(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    assert mirrored_head(home.head) is None
    for number in (1, 2):
        with Store.open(home) as store:
            receipt = store.write_sync(lambda tx: record_turn(tx, turn_record(number)))  # noqa: B023
        assert mirrored_head(home.head) == Head(receipt.seq, receipt.hash)
    assert [path.name for path in tmp_path.iterdir() if "head" in path.name] == ["ledger.head"]
    home.head.write_text("", encoding="utf-8")
    assert mirrored_head(home.head) is None, "a power cut may leave it empty"
    for nonsense in ("1", "x " + "0" * 64, "1 abc", "\xff"):
        home.head.write_text(nonsense, encoding="utf-8")
        with pytest.raises(LedgerError, match=r"ledger\.head: is no head"):
            mirrored_head(home.head)


@pytest.mark.req("AUD-03")
def test_an_empty_ledger_is_whole(tmp_path: Path) -> None:
    with Store.open(Home.resolve(tmp_path)) as store, store.read() as connection:
        assert found(connection) == []
        assert says(found(connection, mirrored=Head(1, "0" * 64))) == [(1, "the mirrored head")]


def told(connection: sqlite3.Connection) -> object:
    """All that an auditor is shown."""
    rows = queries.turns(connection, limit=1000)
    views = [queries.turn(connection, row.turn) for row in rows]
    error = [repr(view.error) for view in views]
    plugins = [queries.plugin(connection, name) for name in ("style-guide", "freeze", "other")]
    by_agent = [queries.turns(connection, agent=agent, session="session-1") for agent in ("main", "dev")]
    return rows, [repr(view) for view in views], error, plugins, by_agent


@pytest.mark.req("AUD-03")
def test_a_changed_byte_anywhere_in_the_file_is_found_or_changes_nothing_that_is_told(
    whole: Home, tmp_path: Path
) -> None:
    choice = random.Random(17)
    content = whole.database.read_bytes()
    with copied(whole, tmp_path) as connection:
        truth = told(connection)
    unseen = 0
    for number in range(FILE_FLIPS):
        changed = bytearray(content)
        place = choice.randrange(len(content))
        changed[place] ^= choice.randint(1, 255)
        path = tmp_path / f"flip-{number}.db"
        path.write_bytes(changed)
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            if found(connection):
                continue
            unseen += 1
            assert told(connection) == truth, f"byte {place}"
        finally:
            connection.close()
            for each in tmp_path.glob(f"flip-{number}.db*"):
                each.unlink()
    assert unseen < FILE_FLIPS


@pytest.mark.req("AUD-03", "OPS-02")
def test_a_backup_made_while_turns_are_recorded_verifies(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path / "home")
    with Store.open(home) as store:
        for number in range(40):
            record = turn_record(number)
            store.write_sync(lambda tx, record=record: record_turn(tx, record))  # type: ignore[misc]
        target = sqlite3.connect(tmp_path / "backup.db")
        with store.read() as source:
            later = iter(range(1000, 10_000))

            def meanwhile(status: int, remaining: int, total: int) -> None:
                record = turn_record(next(later))
                store.write_sync(lambda tx: record_turn(tx, record))

            source.backup(target, pages=16, progress=meanwhile)
        assert found(target) == []
        assert target.execute("SELECT count(*) FROM turns").fetchone() == (40,), "the moment at which it began"
        target.close()
        with store.read() as connection:
            assert found(connection) == []
