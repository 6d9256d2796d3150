"""The mirrored head keeps the evidence: what was cut off or put back shows, also after further turns."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from buzz_host.ledger.append import mirrored_head
from buzz_host.ledger.record import EndRecord, TurnRecord, record_end, record_turn
from buzz_host.ledger.verify import verify
from buzz_host.services.audit import Audit
from buzz_host.settings import Home
from buzz_host.store import Store

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def one_turn(home: Home) -> None:
    identifier = str(uuid4())
    with Store.open(home) as store:
        store.write_sync(
            lambda tx: record_turn(tx, TurnRecord(identifier, "message", "s", "main", "echo", NOW, "", ()))
        )
        store.write_sync(lambda tx: record_end(tx, EndRecord(identifier, NOW, "completed", "Done.")))


def breaks(home: Home) -> list[str]:
    with Store.open(home) as store, store.read() as connection:
        return [found.what for found in verify(connection, mirrored=mirrored_head(home.head))]


@pytest.mark.req("AUD-03")
def test_an_older_database_that_was_put_back_shows_however_many_turns_follow(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Home.resolve(home)
    one_turn(place)
    shutil.copy(place.database, home / "older")
    one_turn(place)
    noted = place.head.read_text(encoding="ascii")
    shutil.copy(home / "older", place.database)
    assert breaks(place) != []
    with caplog.at_level(logging.WARNING):
        one_turn(place)
        one_turn(place)
    assert "does not fit the ledger" in caplog.text
    assert place.head.read_text(encoding="ascii") == noted
    assert breaks(place) != []


@pytest.mark.req("AUD-03")
def test_a_database_that_was_deleted_shows_after_the_next_turn(home: Path) -> None:
    place = Home.resolve(home)
    one_turn(place)
    one_turn(place)
    place.database.unlink()
    one_turn(place)
    assert breaks(place) != []


@pytest.mark.req("AUD-03")
def test_whole_ledgers_are_mirrored_on(home: Path) -> None:
    place = Home.resolve(home)
    for turns in (1, 2, 3):
        one_turn(place)
        head = mirrored_head(place.head)
        assert head is not None
        assert head.seq == 2 * turns
    assert breaks(place) == []


@pytest.mark.req("AUD-03")
def test_a_trigger_that_somebody_planted_is_found_before_it_acts(home: Path) -> None:
    place = Home.resolve(home)
    one_turn(place)
    with closing(sqlite3.connect(place.database)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER forgets AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE seq = new.seq - 1; END"
        )
    assert breaks(place) == ["the trigger forgets on entries"]


@pytest.mark.req("AUD-03", "OPS-03")
def test_a_host_that_was_killed_before_its_first_mirror_left_a_whole_ledger(home: Path) -> None:
    place = Home.resolve(home)
    one_turn(place)
    place.head.unlink()
    result = Audit(place).verify(None, lambda found: None)
    assert (result.entries, result.breaks) == (2, 0)
