"""The proof of what was sent holds when nothing was touched, and fails for one byte in either witness."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from buzz_author.sections import Section, Source, section
from buzz_host.ledger import TurnRecord, record_turn
from buzz_host.rehearsal.record import Record
from buzz_host.services.proof import Proof, prove
from buzz_host.settings import Home
from buzz_host.store import Store

pytestmark = pytest.mark.req("AUD-03", "HAR-05")
TEXTS = ("Be brief – überall.", "Be brief.", "Be brief – überall.")


def said(text: str) -> tuple[Section, ...]:
    return (
        section("buzz-event", "Hello", attributes=(("type", "message"),)),
        section("plugin-instructions", text, attributes=(("plugin", "style"),), source=Source("style", "one")),
    )


def request(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": content}]}


@pytest.fixture
def witnesses(home: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Three turns in a ledger, and the record of a model server that received them."""
    record_path = tmp_path / "record.jsonl"
    record = Record(record_path, "run")
    with Store.open(Home(home)) as store:
        for number, text in enumerate(TEXTS):
            sections = said(text)
            sent = "\n\n".join(each.rendered for each in sections)
            turn = TurnRecord(f"turn-{number}", "message", "s", "dev", "claude", datetime.now(UTC), sent, sections)
            store.write_sync(lambda tx, turn=turn: record_turn(tx, turn))  # type: ignore[misc]
            octets = json.dumps(request(sent)).encode()
            record.request("POST", "/v1/messages?beta=true", [], octets, json.loads(octets))
            other = json.dumps(request("What is a good title?")).encode()
            record.request("POST", "/v1/messages", [], other, json.loads(other))
    return record_path, Home(home).database


def change_request(path: Path, change: Callable[[str], str], *, mend: bool) -> None:
    """Change the texts of a record; with `mend`, its hashes too, as somebody would who knows the format."""
    lines = []
    for line in path.read_text(encoding="ascii").split("\n")[:-1]:
        fields = json.loads(line)
        fields["raw"] = change(fields["raw"])
        if mend:
            fields["sha256"] = hashlib.sha256(fields["raw"].encode()).hexdigest()
        lines.append(json.dumps(fields) + "\n")
    path.write_text("".join(lines), encoding="ascii")


def change_body(database: Path, before: str, after: str) -> None:
    connection = sqlite3.connect(database)
    with connection:
        changed = connection.execute("UPDATE bodies SET body = ? WHERE body = ?", (after.encode(), before.encode()))
        assert changed.rowcount == 1
    connection.close()


def test_two_untouched_witnesses_agree(witnesses: tuple[Path, Path]) -> None:
    proof = prove(*witnesses)
    assert proof.holds, proof
    assert [(each.turn, each.request, each.difference) for each in proof.turns] == [
        ("turn-0", 1, ""), ("turn-1", 3, ""), ("turn-2", 5, ""),
    ]  # fmt: skip
    for each in proof.turns:
        assert each.kept == each.recorded
        assert each.kept_sha256 == each.recorded_sha256 == hashlib.sha256(each.kept).hexdigest()
    assert proof.entries == 3


def test_one_byte_of_the_record_is_found(witnesses: tuple[Path, Path]) -> None:
    change_request(witnesses[0], lambda raw: raw.replace("Be brief.", "Be brieF."), mend=True)
    proof = prove(*witnesses)
    assert not proof.holds
    assert [each.holds for each in proof.turns] == [True, False, True]
    at = proof.turns[1].kept.index(b"brief") + 4
    assert proof.turns[1].difference.startswith(f"at byte {at}: the ledger has 'f.")
    assert f"request {proof.turns[1].request} has 'F." in proof.turns[1].difference


def test_one_byte_of_a_record_whose_hash_was_not_mended_is_found(witnesses: tuple[Path, Path]) -> None:
    change_request(witnesses[0], lambda raw: raw.replace("Be brief.", "Be brieF."), mend=False)
    proof = prove(*witnesses)
    assert not proof.holds
    (fault,) = proof.faults
    assert f"{witnesses[0]}:3: " in fault
    assert "does not match its sha256" in fault


def test_one_byte_of_a_body_in_the_ledger_is_found(witnesses: tuple[Path, Path]) -> None:
    change_body(witnesses[1], "Be brief.", "Be brieF.")
    proof = prove(*witnesses)
    assert not proof.holds
    assert [each.holds for each in proof.turns] == [True, False, True]
    assert any("body" in each for each in proof.faults), "the chain finds it as well"


def test_the_same_byte_in_both_is_found_by_the_ledger_alone(witnesses: tuple[Path, Path]) -> None:
    change_request(witnesses[0], lambda raw: raw.replace("Be brief.", "Be brieF."), mend=True)
    change_body(witnesses[1], "Be brief.", "Be brieF.")
    proof = prove(*witnesses)
    assert not proof.holds
    assert [each.holds for each in proof.turns] == [True, False, True]
    assert "was changed since it was recorded" in proof.turns[1].difference
    assert any("body" in each for each in proof.faults), "the chain finds it as well"


def _without(number: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        lines = path.read_text(encoding="ascii").split("\n")[:-1]
        path.write_text("".join(f"{line}\n" for n, line in enumerate(lines) if n != number), encoding="ascii")

    return change


@pytest.mark.parametrize(
    "change", [Path.unlink, lambda path: path.write_text(""), lambda path: path.write_text("{}\n"), _without(2)]
)
def test_a_record_that_lacks_something_proves_nothing(
    change: Callable[[Path], object], witnesses: tuple[Path, Path]
) -> None:
    change(witnesses[0])
    assert not prove(*witnesses).holds


def test_requests_in_another_order_prove_nothing(witnesses: tuple[Path, Path]) -> None:
    lines = witnesses[0].read_text(encoding="ascii").split("\n")[:-1]
    witnesses[0].write_text("".join(f"{line}\n" for line in (lines[2], *lines[:2], *lines[3:])), encoding="ascii")
    assert not prove(*witnesses).holds


def test_a_ledger_without_turns_proves_nothing(witnesses: tuple[Path, Path], tmp_path: Path) -> None:
    home = Home(tmp_path / "other")
    with Store.open(home):
        pass
    assert prove(witnesses[0], home.database) == Proof((), 0, ())
    assert not prove(witnesses[0], home.database).holds


def test_a_damaged_database_is_a_fault_and_no_exception(witnesses: tuple[Path, Path], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    proof = prove(witnesses[0], damaged)
    assert not proof.holds
    assert proof.faults


def test_what_a_program_puts_behind_in_its_own_tags_is_named_and_is_not_ours(witnesses: tuple[Path, Path]) -> None:
    record, database = witnesses
    own = r"\n\n<turn-context>\nIt is Monday.\n</turn-context>"
    change_request(record, lambda raw: raw.replace("</plugin-instructions>", f"</plugin-instructions>{own}"), mend=True)
    proof = prove(record, database)
    assert proof.holds, proof
    assert {each.behind for each in proof.turns} == {b"\n\n<turn-context>\nIt is Monday.\n</turn-context>"}
    assert all(each.recorded == each.kept for each in proof.turns)


OTHERS = (
    " And more.",
    r"\n\n<plugin-instructions>x</plugin-instructions>",
    r"\n<turn-context>open",
    "<turn-contexts></turn-contexts>",
)


@pytest.mark.parametrize("behind", OTHERS)
def test_anything_else_behind_a_text_is_a_difference(behind: str, witnesses: tuple[Path, Path]) -> None:
    record, database = witnesses
    end = "</plugin-instructions>"
    change_request(record, lambda raw: raw.replace(end, end + behind), mend=True)
    proof = prove(record, database)
    assert not any(each.holds for each in proof.turns)
    assert "the ledger has its end" in proof.turns[0].difference
