"""A body is stored once, whoever stored it first and however long ago."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_host.ledger import Body, EntryDraft, append, verify
from buzz_host.settings import Home
from buzz_host.store import Store, Transaction
from tests.host.ledger.making import NOON

NEWEST_MAX_BODIES = 7  # instead of thousands, so that bodies move between the levels all the time


@contextmanager
def small_levels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("buzz_host.ledger.bodies.NEWEST_MAX_BODIES", NEWEST_MAX_BODIES)
        patch.setattr("buzz_host.ledger.bodies.SEEN_AGAIN_MAX_BODIES", 3)
        yield


def say(words: list[int], *, fail: bool = False) -> object:
    def work(tx: Transaction) -> None:
        append(tx, EntryDraft("tool", NOON, "t", {"said": [Body(f"word {word}") for word in words]}))
        if fail:
            raise LookupError

    return work


says = st.tuples(st.integers(0, 1), st.lists(st.integers(0, 60), max_size=40), st.booleans(), st.booleans())


@pytest.mark.req("AUD-03")
@given(steps=st.lists(says, max_size=8))
def test_each_body_is_stored_once_across_stores_failures_and_restarts(
    steps: list[tuple[int, list[int], bool, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = Home.resolve(tmp_path_factory.mktemp("home"))
    with small_levels():
        stores = [Store.open(home), Store.open(home)]
        said: set[str] = set()
        for which, words, fail, restart in steps:
            if restart:
                stores[which].close()
                stores[which] = Store.open(home)
            try:
                stores[which].write_sync(say(words, fail=fail))  # type: ignore[arg-type]
            except LookupError:
                continue
            said |= {f"word {word}" for word in words}
        with stores[0].read() as connection:
            bodies = [body.decode() for (body,) in connection.execute("SELECT body FROM bodies")]
            assert sorted(bodies) == sorted(said)
            assert list(verify(connection)) == []
        for store in stores:
            store.close()


@pytest.mark.req("AUD-03")
def test_the_newest_bodies_of_another_process_s_store_are_known_too(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    with small_levels(), Store.open(home) as one, Store.open(home) as two:
        for start in range(0, 50, 5):
            words = list(range(start, start + 5))
            for store in (one, two, one):
                store.write_sync(say(words))  # type: ignore[arg-type]
        with one.read() as connection:
            assert connection.execute("SELECT count(*) FROM bodies").fetchone() == (50,)
            assert connection.execute("SELECT count(*) > 40 FROM body_keys").fetchone() == (1,)
            assert list(verify(connection)) == []


@pytest.mark.req("AUD-03")
def test_a_body_that_another_connection_removed_is_stored_again(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    with small_levels(), Store.open(home) as one, Store.open(home) as two:
        one.write_sync(say([1, 2]))  # type: ignore[arg-type]
        two.write_sync(lambda tx: tx.execute("DELETE FROM bodies WHERE body = ?", (b"word 1",)))
        one.write_sync(say([1, 2]))  # type: ignore[arg-type]
        with one.read() as connection:
            bodies = connection.execute("SELECT body FROM bodies ORDER BY id").fetchall()
    assert bodies == [(b"word 2",), (b"word 1",)]
