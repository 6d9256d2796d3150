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
    stage = Stage.below(tmp_path_factory.mktemp("stage"), "claude")
    asyncio.run(demonstrate(stage, Audience(lambda _: None, lambda _: None)))
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
@pytest.mark.req("HAR-01", "HAR-04", "HAR-05", "AUD-01", "INS-06", "CLI-01")
def test_the_demo_shows_both_turns_in_each_harness_and_proves_them(buzz: Buzz, home: Path) -> None:
    views = buzz("harness", "list", "--json").rows
    here = [row["title"] for row in views if row["fault"] is None]
    missing = [row for row in views if row["fault"] is not None]
    assert {"Claude Code", "direct"} <= set(here)
    done = buzz("demo")
    assert done.code == 0, done
    assert not home.exists(), "the demo touches nobody's home"
    for row in missing:
        assert f"{row['title']} is not shown: {row['fault']}" in done.err
    parts = re.split(r"^── ", done.out, flags=re.MULTILINE)[1:]
    assert len(parts) == 3 * len(here)
    for title, one, two, proof in zip(here, parts[0::3], parts[1::3], parts[2::3], strict=True):
        assert one.startswith(f"{title}, turn 1: to agent dev, ")
        assert all(f"plugin-instructions  {each}" in one for each in ("release-freeze/freeze", "style-guide/style"))
        assert "✗ faulty-guard/on-call  its `when` raised: KeyError: 'dev'" in one
        assert "rehearsal: no model was called." in one
        assert "» buzz plugin disable style-guide: style-guide is off, the session goes on" in one
        assert two.startswith(f"{title}, turn 2: to agent dev, ")
        assert "plugin-instructions  release-freeze/freeze" in two
        assert "plugin-instructions  style-guide" not in two
        assert "✗ style-guide/style  the plugin is off" in two
        assert proof.startswith(f"{title}, proof: ")
        assert len(re.findall(r"^✓ turn \d is equal to the byte", proof, re.MULTILINE)) == 2
        hashes = re.findall(r"^  (socket|ledger) ([0-9a-f]{64})", proof, re.MULTILINE)
        assert [each[0] for each in hashes] == ["socket", "ledger"] * 2
        assert hashes[0][1] == hashes[1][1]
        assert hashes[2][1] == hashes[3][1]
        assert hashes[0][1] != hashes[2][1]
        assert "✓ the ledger's chain is whole" in proof
        assert ("of its own behind it" in proof) == (title == "goose")
    assert all(len(line) <= 80 for part in parts for line in part.split("\n")), "it fits a terminal"


@claude
@pytest.mark.req("CLI-01", "AUD-01")
def test_the_demo_as_json(buzz: Buzz) -> None:
    done = buzz("demo", "--json", BUZZ_PROGRAMS="/nonexistent", PATH="/usr/bin:/bin")
    assert (done.code, done.err) == (0, "")
    rows = [row for row in done.rows if row["event"] != "missing"]
    assert {row["harness"] for row in done.rows if row["event"] == "missing"} == {"codex", "goose", "pi"}
    shown = list(dict.fromkeys(row["harness"] for row in rows))
    assert {"claude", "direct"} <= set(shown)
    for harness in shown:
        one, two, *proofs, end = own = [row for row in rows if row["harness"] == harness]
        assert [each["event"] for each in own] == ["turn", "turn", "proof", "proof", "proved"]
        assert one["session"] == two["session"], "one session"
        assert [[each["plugin"] for each in turn["sections"] if each["plugin"]] for turn in (one, two)] == [
            ["release-freeze", "style-guide"], ["release-freeze"],
        ]  # fmt: skip
        assert [each["equal"] for each in proofs] == [True, True]
        assert [each["turn"] for each in proofs] == [one["turn"], two["turn"]]
        assert (end["holds"], end["faults"]) == (True, [])
        assert {each["behind_bytes"] > 0 for each in proofs} == {harness == "goose"}


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
        if stage.harness != "claude":
            return
        connection = sqlite3.connect(stage.home.database)
        with connection:
            connection.execute(
                "UPDATE bodies SET body = CAST('And now!' AS BLOB) WHERE body = CAST('And now?' AS BLOB)"
            )
        connection.close()

    monkeypatch.setattr(demonstration, "demonstrate", tampering)
    monkeypatch.setenv("BUZZ_PROGRAMS", "/nonexistent")
    done = CliRunner().invoke(group, ["demo"])
    assert done.exit_code == 1
    assert "✓ turn 1 is equal to the byte" in done.stdout
    assert "✗ turn 2 differs in the ledger: entry " in done.stdout
    assert done.stderr.endswith("buzz: Claude Code: what was sent is NOT what the ledger says\n")


@pytest.mark.req("CLI-01", "OPS-01")
def test_without_any_program_it_is_one_line_that_says_what_to_install(buzz: Buzz, tmp_path: Path) -> None:
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n\nfind_spec = PathFinder.find_spec\n"
        "gone = ('claude_agent_sdk', 'openai')\n"
        "PathFinder.find_spec = lambda name, *more: None if name in gone else find_spec(name, *more)\n",
        encoding="utf-8",
    )
    path = f"{shadow}:{Path(__file__).resolve().parents[2]}"
    done = buzz("demo", PYTHONPATH=path, BUZZ_PROGRAMS="/nonexistent", PATH="/usr/bin:/bin")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert all(
        each in done.err for each in ("buzz-agents[claude]", "buzz-agents[direct]", "buzz harness install goose")
    )


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
