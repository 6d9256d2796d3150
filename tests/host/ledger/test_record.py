"""What a session records is read back from disk, whole and to the byte (AUD-01, INS-11)."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import attrs
import pytest
from hypothesis import given

from buzz_author.errors import PluginFault
from buzz_author.events import Usage
from buzz_author.harness import HarnessError
from buzz_author.sections import parse, render
from buzz_author.text import well_formed
from buzz_author.turns import LeftOut
from buzz_host.ledger import (
    EndRecord,
    LedgerError,
    LeftOutView,
    SettledRecord,
    ToolRecord,
    TurnRecord,
    TurnView,
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
from tests.host.ledger.making import NOON, instructions, records, turn_record

LATER = NOON + timedelta(minutes=1)


def read(store: Store, turn: str) -> TurnView:
    with store.read() as connection:
        assert list(verify(connection)) == []
        return queries.turn(connection, turn)


@pytest.mark.req("AUD-01", "INS-11")
@given(record=records())
def test_any_turn_is_read_back_as_it_was_sent(record: TurnRecord, tmp_path_factory: pytest.TempPathFactory) -> None:
    with Store.open(Home.resolve(tmp_path_factory.mktemp("home"))) as store:
        store.write_sync(lambda tx: record_turn(tx, record))
        view = read(store, record.turn)
    assert view.text == well_formed(record.text)
    assert view.encoded == (record.text != render(record.sections))
    if not view.encoded:
        assert parse(view.text or "") == record.sections
    seen = [(each.tag, each.attributes, each.body, each.bytes, each.sha256, each.rendered) for each in view.sections]
    assert seen == [
        (each.tag, each.attributes, each.body, each.size, each.sha256, each.rendered) for each in record.sections
    ]
    assert [(each.plugin, each.id) for each in view.sections] == [
        (None, None) if each.source is None else (each.source.plugin, each.source.id) for each in record.sections
    ]
    assert [attrs.astuple(each)[:-1] for each in view.left_out] == [
        (each.plugin, each.id, each.reason, well_formed(each.detail)) for each in record.left_out
    ]
    assert [attrs.astuple(each)[:-1] for each in view.faults] == [
        (each.plugin, each.phase, well_formed(each.message)) for each in record.faults
    ]
    assert view.plugins == tuple((name, well_formed(loaded)) for name, loaded in record.plugins)
    assert (view.revision, view.anchored, view.carries_sections) == (
        record.revision,
        record.anchored,
        record.carries_sections,
    )
    assert (view.row.agent, view.row.harness, view.row.kind) == (record.agent, record.harness, "message")
    assert view.row.status == "unended"
    assert view.reply is view.usage is view.error is view.ended_at is view.outcome is None


@pytest.mark.req("AUD-01")
@given(record=records())
def test_the_fields_of_an_entry_are_canonical(record: TurnRecord, tmp_path_factory: pytest.TempPathFactory) -> None:
    with Store.open(Home.resolve(tmp_path_factory.mktemp("home"))) as store:
        store.write_sync(lambda tx: record_turn(tx, record))
        with store.read() as connection:
            (fields,) = connection.execute("SELECT fields FROM entries").fetchone()
    again = json.dumps(json.loads(fields), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert again == fields


@pytest.mark.req("AUD-01", "TRN-04")
def test_a_turn_is_told_to_its_end_with_its_tools_and_steers(tmp_path: Path) -> None:
    error = HarnessError("overloaded", "the model is busy", 529, True)
    usage = Usage(100, 20, 80, None)
    with Store.open(Home.resolve(tmp_path)) as store:
        write = store.write_sync
        write(lambda tx: record_turn(tx, turn_record(1)))
        write(lambda tx: record_tool(tx, ToolRecord("turn-000001", NOON, "c1", "mcp__p__t", "p", {"b": 1, "a": [2]})))
        write(lambda tx: record_steer(tx, turn_record(2, steers="turn-000001")))
        write(lambda tx: record_tool(tx, ToolRecord("turn-000001", NOON, "c2", "Skill", None, {}, "found", False)))
        write(
            lambda tx: record_tool(
                tx, ToolRecord("turn-000001", LATER, "c1", "mcp__p__t", "p", {"b": 1, "a": [2]}, "it broke", True)
            )
        )
        write(lambda tx: record_settled(tx, SettledRecord("turn-000002", LATER, "folded")))
        write(lambda tx: record_compacted(tx, "turn-000001", LATER))
        write(lambda tx: record_end(tx, EndRecord("turn-000001", LATER, "failed", "so far", usage, error)))
        view = read(store, "turn-000001")
    assert (view.row.status, view.reply, view.usage) == ("failed", "so far", usage)
    assert view.error is not None
    assert attrs.astuple(view.error) == attrs.astuple(error)
    assert view.ended_at == "2026-11-30T12:01:00.000000Z"
    assert view.compacted == (view.ended_at,)
    first, second = view.tools
    assert (first.call, first.at, first.is_error, first.result, first.bytes) == (
        "c1",
        "2026-11-30T12:00:00.000000Z",
        True,
        "it broke",
        8,
    )
    assert (first.arguments, first.plugin) == ({"a": [2], "b": 1}, "p")
    assert (second.name, second.plugin, second.is_error, second.result) == ("Skill", None, False, "found")
    (steer,) = view.steers
    assert (steer.row.turn, steer.row.kind, steer.row.steers) == ("turn-000002", "steer", "turn-000001")
    assert (steer.row.status, steer.outcome) == ("folded", "folded")
    assert steer.text == turn_record(2).text


@pytest.mark.req("AUD-01", "TRN-04")
@pytest.mark.parametrize("settled_first", [True, False])
def test_a_steer_that_becomes_a_turn_of_its_own_ends_as_one(tmp_path: Path, settled_first: bool) -> None:
    with Store.open(Home.resolve(tmp_path)) as store:
        write = store.write_sync
        write(lambda tx: record_turn(tx, turn_record(1)))
        write(lambda tx: record_steer(tx, turn_record(2, steers="turn-000001")))
        settled = SettledRecord("turn-000002", LATER, "own-turn")
        if settled_first:
            write(lambda tx: record_settled(tx, settled))
            assert read(store, "turn-000002").row.status == "unended"
        write(lambda tx: record_end(tx, EndRecord("turn-000002", LATER, "completed", "done")))
        if not settled_first:
            write(lambda tx: record_settled(tx, settled))
        view = read(store, "turn-000002")
        assert (view.row.status, view.outcome, view.reply) == ("completed", "own-turn", "done")
        with pytest.raises(LedgerError, match="is over already"):
            write(lambda tx: record_settled(tx, SettledRecord("turn-000002", LATER, "returned")))


@pytest.mark.req("INS-11")
def test_each_left_out_instruction_and_each_fault_is_told_with_its_reason(tmp_path: Path) -> None:
    left_out = (
        LeftOut("freeze", "rule", "when-raised", "ValueError: no agent <x>"),
        LeftOut("absent", "*", "plugin-off"),
    )
    record = attrs.evolve(
        turn_record(1, left_out=left_out), faults=(PluginFault("broken", "load", "SyntaxError: line 3", "a traceback"),)
    )
    with Store.open(Home.resolve(tmp_path)) as store:
        store.write_sync(lambda tx: record_turn(tx, record))
        view = read(store, record.turn)
    assert view.left_out == (
        LeftOutView("freeze", "rule", "when-raised", "ValueError: no agent <x>"),
        LeftOutView("absent", "*", "plugin-off", ""),
    )
    assert view.row.plugins == ("absent", "broken", "freeze", "style-guide")
    assert [(fault.plugin, fault.phase, fault.message) for fault in view.faults] == [
        ("broken", "load", "SyntaxError: line 3")
    ]


@pytest.mark.req("AUD-01", "TRN-03")
def test_the_bare_message_of_a_harness_that_carries_no_sections_is_what_is_kept(tmp_path: Path) -> None:
    record = attrs.evolve(turn_record(1), text="message 1", carries_sections=False)
    with Store.open(Home.resolve(tmp_path)) as store:
        store.write_sync(lambda tx: record_turn(tx, record))
        view = read(store, record.turn)
    assert (view.text, view.encoded, view.carries_sections) == ("message 1", True, False)
    assert len(view.sections) == 3


@pytest.mark.req("AUD-03")
def test_what_cannot_be_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with Store.open(Home.resolve(tmp_path)) as store:
        write = store.write_sync
        write(lambda tx: record_turn(tx, turn_record(1)))
        write(lambda tx: record_end(tx, EndRecord("turn-000001", LATER, "completed")))
        refusals = (
            ("has a turn turn-000001 already", lambda tx: record_turn(tx, turn_record(1))),
            ("has ended already", lambda tx: record_end(tx, EndRecord("turn-000001", LATER, "failed"))),
            ("has no turn 'turn-9'", lambda tx: record_end(tx, EndRecord("turn-9", LATER, "failed"))),
            ("has no turn 'turn-9'", lambda tx: record_tool(tx, ToolRecord("turn-9", NOON, "c", "t", None, {}))),
            ("has no turn 'turn-9'", lambda tx: record_compacted(tx, "turn-9", NOON)),
            ("has no turn 'turn-9'", lambda tx: record_settled(tx, SettledRecord("turn-9", NOON, "folded"))),
            ("names no turn that it steers", lambda tx: record_steer(tx, turn_record(2))),
            ("names no turn that it steers", lambda tx: record_steer(tx, turn_record(2, steers="turn-000002"))),
            ("without an id", lambda tx: record_turn(tx, attrs.evolve(turn_record(2), turn=""))),
        )
        for said, work in refusals:
            with pytest.raises(LedgerError, match=said):
                write(work)
        with store.read() as connection:
            assert connection.execute("SELECT count(*) FROM entries").fetchone() == (2,)
            assert list(verify(connection)) == []


@pytest.mark.req("AUD-01")
def test_a_text_of_today_is_read_back_even_if_tomorrow_s_rules_would_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = (instructions("p", "see <context-menu> and <style>"),)
    record = attrs.evolve(turn_record(1), sections=sections, text=render(sections))
    with Store.open(Home.resolve(tmp_path)) as store:
        store.write_sync(lambda tx: record_turn(tx, record))
        monkeypatch.setattr("buzz_author.sections.neutralise", lambda text: text.replace("<", "&lt;"))
        assert read(store, record.turn).text == record.text
