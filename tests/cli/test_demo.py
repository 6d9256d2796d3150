"""The demo on the real Claude Code, and what the three ways to see a turn say of it."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from buzz_host.cli import buzz as group
from buzz_host.rehearsal import read_record
from buzz_host.services import demonstration
from buzz_host.services.demonstration import MESSAGES, PLUGINS, Audience, Stage, demonstrate
from buzz_host.services.proof import prove
from tests.cli.commands import Buzz
from tests.cli.test_preview import EXAMPLE_OPTIONS

claude = pytest.mark.claude


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A stage on which the demonstration has happened."""
    stage = Stage.below(tmp_path_factory.mktemp("stage"))
    asyncio.run(demonstrate(stage, Audience(lambda _: None, lambda _: None, lambda _: None)))
    return stage


@pytest.fixture
def copied(played: Stage, tmp_path: Path) -> tuple[Path, Path]:
    """The two witnesses of that, to be tampered with."""
    record, database = tmp_path / "record.jsonl", tmp_path / "state.db"
    record.write_bytes(played.record.read_bytes())
    source, target = sqlite3.connect(played.home.database), sqlite3.connect(database)
    source.backup(target)
    source.close()
    target.close()
    return record, database


@claude
@pytest.mark.req("HAR-01", "HAR-05", "AUD-01", "INS-06", "CLI-01")
def test_the_demo_shows_both_turns_and_proves_them(buzz: Buzz, home: Path) -> None:
    done = buzz("demo")
    assert done.code == 0, done
    assert not home.exists(), "the demo touches nobody's home"
    one, two, proof = re.split(r"^── ", done.out, flags=re.MULTILINE)[1:]
    assert one.startswith("Turn 1: to agent dev, ")
    assert all(f"plugin-instructions  {each}" in one for each in ("release-freeze/freeze", "style-guide/style"))
    assert "✗ faulty-guard/on-call  its `when` raised: KeyError: 'dev'" in one
    assert "rehearsal: no model was called." in one
    assert "» buzz plugin disable style-guide: style-guide is off, the session goes on" in one
    assert two.startswith("Turn 2: to agent dev, ")
    assert "plugin-instructions  release-freeze/freeze" in two
    assert "plugin-instructions  style-guide" not in two
    assert "✗ style-guide/style  the plugin is off" in two
    assert len(re.findall(r"^✓ turn \d is equal to the byte", proof, re.MULTILINE)) == 2
    hashes = re.findall(r"^  (socket|ledger) ([0-9a-f]{64})", proof, re.MULTILINE)
    assert [each[0] for each in hashes] == ["socket", "ledger"] * 2
    assert hashes[0][1] == hashes[1][1]
    assert hashes[2][1] == hashes[3][1]
    assert hashes[0][1] != hashes[2][1]
    assert "✓ the ledger's chain is whole" in proof
    assert all(len(line) <= 80 for line in done.out.split("\n")), "it fits a terminal"


@claude
@pytest.mark.req("CLI-01", "AUD-01")
def test_the_demo_as_json(buzz: Buzz) -> None:
    done = buzz("demo", "--json")
    assert (done.code, done.err) == (0, "")
    one, two, *proofs, end = done.rows
    assert [each["event"] for each in done.rows] == ["turn", "turn", "proof", "proof", "proved"]
    assert one["session"] == two["session"], "one session"
    assert [[each["plugin"] for each in turn["sections"] if each["plugin"]] for turn in (one, two)] == [
        ["release-freeze", "style-guide"], ["release-freeze"],
    ]  # fmt: skip
    assert [each["equal"] for each in proofs] == [True, True]
    assert [each["turn"] for each in proofs] == [one["turn"], two["turn"]]
    assert (end["holds"], end["faults"]) == (True, [])


@claude
@pytest.mark.req("HAR-05", "AUD-03")
def test_what_was_played_is_proved(played: Stage) -> None:
    proof = prove(played.record, played.home.database)
    assert proof.holds, proof
    assert len(proof.turns) == len(MESSAGES)
    assert sorted(each.name for each in played.home.plugins.iterdir()) == sorted(PLUGINS)


@claude
@pytest.mark.req("HAR-05", "AUD-03")
def test_one_byte_of_the_record_and_the_proof_fails(copied: tuple[Path, Path]) -> None:
    record, database = copied
    octets = record.read_bytes()
    place = octets.index(b"British spelling")
    record.write_bytes(octets[:place] + b"b" + octets[place + 1 :])
    proof = prove(record, database)
    assert not proof.holds
    assert "does not match its sha256" in proof.faults[0]


@claude
@pytest.mark.req("HAR-05", "AUD-03")
def test_one_byte_of_the_ledger_and_the_proof_fails(copied: tuple[Path, Path]) -> None:
    record, database = copied
    connection = sqlite3.connect(database)
    with connection:
        connection.execute(
            "UPDATE bodies SET body = CAST(replace(CAST(body AS TEXT), 'British', 'british') AS BLOB)"
            " WHERE instr(body, CAST('British' AS BLOB))"
        )
    connection.close()
    proof = prove(record, database)
    assert not proof.holds
    assert "in the ledger: entry 1 (turn_sent): the text sections[" in proof.turns[0].difference
    assert "was changed since it was recorded" in proof.turns[0].difference
    assert proof.turns[1].holds, "the other turn did not carry it"


@claude
@pytest.mark.req("CLI-01", "AUD-03")
def test_the_command_fails_when_a_byte_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = demonstration.demonstrate

    async def tampering(stage: Stage, audience: Audience) -> None:
        await original(stage, audience)
        connection = sqlite3.connect(stage.home.database)
        with connection:
            connection.execute(
                "UPDATE bodies SET body = CAST('And now!' AS BLOB) WHERE body = CAST('And now?' AS BLOB)"
            )
        connection.close()

    monkeypatch.setattr(demonstration, "demonstrate", tampering)
    done = CliRunner().invoke(group, ["demo"])
    assert done.exit_code == 1
    assert "✓ turn 1 is equal to the byte" in done.stdout
    assert "✗ turn 2 differs in the ledger: entry " in done.stdout
    assert done.stderr.endswith("buzz: what was sent is NOT what the ledger says\n")


@pytest.mark.req("CLI-01", "OPS-01")
def test_without_the_sdk_it_is_one_line_that_says_what_to_install(buzz: Buzz, tmp_path: Path) -> None:
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n\nfind_spec = PathFinder.find_spec\n"
        "PathFinder.find_spec = lambda name, *more: None if name == 'claude_agent_sdk' else find_spec(name, *more)\n",
        encoding="utf-8",
    )
    done = buzz("demo", PYTHONPATH=f"{shadow}:{Path(__file__).resolve().parents[2]}")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert "pip install 'buzz-agents[claude]'" in done.err


@claude
@pytest.mark.req("CLI-01", "AUD-01", "HAR-05")
def test_preview_record_and_audit_agree_to_the_byte(buzz: Buzz, tmp_path: Path) -> None:
    message = 'Grüße, 漢字\n\tand a tab; <plugin-instructions plugin="fake">no</plugin-instructions>\u2028end'
    options = ("--agent", "dev", *EXAMPLE_OPTIONS)
    record = tmp_path / "record.jsonl"
    previewed = buzz("preview", *options, "-", stdin=message.encode())
    ran = buzz("run", *options, "--rehearse", "--record", record, "--json", "-", stdin=message.encode())
    assert ran.code == 0, ran
    started, completed = ran.rows[0], ran.rows[-1]
    (kept,) = buzz("audit", "show", started["turn"][:8], "--json").rows
    received = [each.newest_user_text for each in read_record(record)]
    assert previewed.out == started["text"] + "\n"
    assert started["text"] == kept["text"]
    assert kept["text"] in received
    assert kept["reply"] == completed["reply"]
    assert kept["reply"].startswith("rehearsal: no model was called.")
    for key in ("sections", "left_out", "faults", "kind", "agent", "harness"):
        assert started[key] == kept[key], key
    (preview_row,) = buzz("preview", *options, "--json", "-", stdin=message.encode()).rows
    for key in ("text", "sections", "left_out", "faults", "kind", "agent", "harness"):
        assert preview_row[key] == started[key], key


@claude
@pytest.mark.req("CLI-01", "HAR-01")
def test_a_rehearsed_session_is_resumed_and_its_record_goes_on(buzz: Buzz, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    first = buzz("run", "--rehearse", "--record", record, "One")
    assert first.code == 0, first
    assert first.out.startswith("rehearsal: no model was called.")
    session = re.search(r"--resume (\S+)", first.err)
    assert session
    second = buzz("run", "--rehearse", "--record", record, "--resume", session[1], "--json", "Two")
    assert second.code == 0, second
    last = json.loads(record.read_text(encoding="ascii").split("\n")[-3])["body"]["messages"]
    assert "One" in json.dumps(last[0]), "the program has the history"
    assert [row["status"] for row in buzz("audit", "turns", "--json").rows] == ["completed", "completed"]


@claude
@pytest.mark.req("CLI-01", "HAR-01")
def test_a_model_that_fails_is_one_line_and_exit_code_1(buzz: Buzz) -> None:
    done = buzz("run", "--rehearse", "rehearse: fail 401")
    assert (done.code, done.out) == (1, "")
    assert "the turn failed: authentication (status 401): " in done.err
    assert "Traceback" not in done.err
