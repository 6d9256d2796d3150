"""Which turns there were: by agent, session and plugin, a page at a time, and what one plugin told whom."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.turns import LeftOut
from buzz_host.ledger import LedgerError, TurnRecord, queries, record_steer, record_turn, verify
from buzz_host.settings import Home
from buzz_host.store import Store
from tests.host.ledger.making import turn_record

AGENTS = ("main", "dev")
SESSIONS = ("s-1", "s-2", "s-3")
PLUGINS = ("style-guide", "freeze", "rare")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(Home.resolve(tmp_path)) as opened:
        yield opened


def write(store: Store, *turns: TurnRecord) -> None:
    for each in turns:
        record = record_turn if each.steers is None else record_steer
        store.write_sync(lambda tx, each=each, record=record: record(tx, each))  # type: ignore[misc]


recipes = st.lists(
    st.tuples(
        st.sampled_from(AGENTS),
        st.sampled_from(SESSIONS),
        st.lists(st.sampled_from(PLUGINS), unique=True).map(tuple),
        st.lists(st.sampled_from(PLUGINS), unique=True, max_size=1),
    ),
    max_size=25,
)


@pytest.mark.req("AUD-02")
@given(recipes=recipes, limit=st.integers(1, 7))
def test_every_filter_gives_what_sifting_all_turns_gives(
    recipes: list[tuple[str, str, tuple[str, ...], list[str]]], limit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = [
        turn_record(
            number,
            agent=agent,
            session=session,
            plugins=plugins,
            left_out=tuple(LeftOut(name, "rule", "when-false") for name in left_out),
        )
        for number, (agent, session, plugins, left_out) in enumerate(recipes)
    ]
    with Store.open(Home.resolve(tmp_path_factory.mktemp("home"))) as store:
        write(store, *made)
        with store.read() as connection:
            assert list(verify(connection)) == []
            for agent, session, plugin in product((None, *AGENTS), (None, *SESSIONS), (None, *PLUGINS)):
                expected = [
                    record.turn
                    for record, (_, _, plugins, left_out) in zip(made, recipes, strict=True)
                    if agent in (None, record.agent)
                    and session in (None, record.session)
                    and (plugin is None or plugin in plugins or plugin in left_out)
                ]
                found = []
                before = None
                while page := queries.turns(
                    connection, agent=agent, session=session, plugin=plugin, limit=limit, before=before
                ):
                    assert len(page) <= limit
                    found += [row.turn for row in page]
                    before = page[-1].seq
                assert found == expected[::-1]


@pytest.mark.req("AUD-02")
def test_a_plugin_s_turns_say_what_it_told_or_why_it_was_left_out(store: Store) -> None:
    write(
        store,
        turn_record(1, plugins=("freeze", "style-guide")),
        turn_record(2, agent="dev", left_out=(LeftOut("freeze", "rule", "when-false", "not for dev"),)),
        turn_record(3),
        turn_record(4, agent="dev", plugins=("freeze",)),
    )
    with store.read() as connection:
        rows = queries.plugin(connection, "freeze")
        assert [row.row.turn for row in rows] == ["turn-000004", "turn-000002", "turn-000001"]
        assert [[each.body for each in row.told] for row in rows] == [["what freeze says"], [], ["what freeze says"]]
        assert [[(each.reason, each.detail) for each in row.left_out] for row in rows] == [
            [],
            [("when-false", "not for dev")],
            [],
        ]
        assert [row.row.turn for row in queries.plugin(connection, "freeze", agent="main")] == ["turn-000001"]
        page = queries.plugin(connection, "freeze", limit=1, before=rows[0].row.seq)
        assert [row.row.turn for row in page] == ["turn-000002"]


@pytest.mark.req("AUD-02", "OPS-01")
def test_a_plugin_that_no_turn_names_is_one_line_with_a_suggestion(store: Store) -> None:
    write(store, turn_record(1))
    with store.read() as connection:
        with pytest.raises(LedgerError, match=r"no turn names a plugin 'style-gide': did you mean style-guide\?"):
            queries.plugin(connection, "style-gide")
        with pytest.raises(LedgerError, match=r"no turn names a plugin 'zzz'$"):
            queries.plugin(connection, "zzz")


@pytest.mark.req("AUD-02", "OPS-01")
def test_a_turn_is_found_by_an_unambiguous_beginning_of_its_id(store: Store) -> None:
    ids = ("ab", "abc1", "abc2", "abd", "b%_*", "\U0010ffffz")
    write(store, *(attrs.evolve(turn_record(number), turn=turn) for number, turn in enumerate(ids)))
    with store.read() as connection:

        def found(text: str) -> str:
            return queries.turn(connection, text).row.turn

        assert [found(text) for text in ("ab", "abc1", "abd", "b", "b%", "\U0010ffff")] == [
            "ab",
            "abc1",
            "abd",
            "b%_*",
            "b%_*",
            "\U0010ffffz",
        ]
        with pytest.raises(LedgerError, match=r"'abc' begins the ids of several turns \(abc1, abc2\): give more"):
            found("abc")
        with pytest.raises(LedgerError, match=r"several turns \(ab, abc1, …\)"):
            found("a")
        for nothing in ("abx", "%", "*", "AB"):
            with pytest.raises(LedgerError, match="the ledger has no turn"):
                found(nothing)
        with pytest.raises(LedgerError, match="asked for by its id"):
            found("")


@pytest.mark.req("AUD-02")
def test_an_empty_ledger_has_no_turns(store: Store) -> None:
    with store.read() as connection:
        assert queries.turns(connection) == ()
        assert queries.turns(connection, agent="main", session="s", plugin="p") == ()


@pytest.mark.req("AUD-02", "OPS-01")
def test_what_somebody_spoiled_is_one_line_and_a_body_that_is_gone_is_no_guess(store: Store) -> None:
    write(store, turn_record(1), turn_record(2, plugins=("freeze",)))
    store.write_sync(lambda tx: tx.execute("DELETE FROM bodies WHERE body = ?", (b"what freeze says",)))
    with store.read() as connection:
        view = queries.turn(connection, "turn-000002")
        assert (view.text, [each.body for each in view.sections]) == (None, ["agent main", "message 2", None])
        assert view.sections[2].bytes == len("what freeze says")
    for fields in ("no json", "[]", '{"sections":[{}],"left_out":[],"faults":[]}'):
        store.write_sync(lambda tx, fields=fields: tx.execute("UPDATE entries SET fields = ?", (fields,)))  # type: ignore[misc]
        with store.read() as connection:
            with pytest.raises(LedgerError, match="buzz audit verify"):
                queries.turn(connection, "turn-000001")
            with pytest.raises(LedgerError, match="buzz audit verify"):
                queries.plugin(connection, "style-guide")
            assert len(queries.turns(connection)) == 2
