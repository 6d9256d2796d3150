"""`buzz attach`, `buzz detach` and what other verbs do for attached sessions, as people and programs type them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from buzz_host.attach.registry import Places
from buzz_host.settings import Home
from tests.cli.commands import Buzz
from tests.cli.hosts import serving
from tests.host.attach.conftest import hook_input, hooks_of, write_plugin

pytestmark = pytest.mark.req("AUT-03", "CLI-01")

SETTINGS = Path(".claude", "settings.local.json")


@pytest.fixture(autouse=True)
def _own_settings(environment: dict[str, str], tmp_path: Path) -> None:
    environment["CLAUDE_CONFIG_DIR"] = str(tmp_path / "claude")


def rows(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.split("\n") if line]


def prompt(settings: Path, **said: Any) -> str:
    """What all hooks of a settings file print for one prompt."""
    octets = hook_input(**said)
    done = [subprocess.run(each, input=octets, capture_output=True, check=True) for each in hooks_of(settings)]
    assert [each.stderr for each in done] == [b""] * len(done)
    return "".join(each.stdout.decode() for each in done)


def test_from_attach_to_detach(buzz: Buzz, work: Path, opened: Home) -> None:
    write_plugin(opened, "style", "Write short.")
    done = buzz("attach", "claude")
    assert (done.code, done.err) == (0, "")
    assert f"for the default agent: project {work}" in done.out
    assert f"buzz detach --project {work}" in done.out
    assert "Write short." in prompt(work / SETTINGS)
    again = buzz("attach", "claude")
    assert "was attached already" in again.out
    listed = buzz("attach", "status")
    assert listed.code == 0
    assert str(work / SETTINGS) in listed.out
    assert "host: none runs" in listed.out
    gone = buzz("detach")
    assert gone.code == 0
    assert list(work.iterdir()) == []
    assert buzz("attach", "status").out == "nothing is attached: buzz attach claude\n"


def test_switching_a_plugin_holds_for_the_next_prompt_without_a_host(buzz: Buzz, work: Path, opened: Home) -> None:
    write_plugin(opened, "style", "Write short.")
    buzz("attach", "claude", "--agent", "dev")
    for verb, there in (("disable", False), ("enable", True)):
        assert buzz("plugin", verb, "style", "--agent", "dev").code == 0
        assert ("Write short." in prompt(work / SETTINGS)) == there
    linked = work / "other.py"
    shutil.copy(opened.plugins / "style.py", linked)
    assert buzz("plugin", "install", "--link", linked).code == 0
    assert prompt(work / SETTINGS).count("Write short.") == 2
    assert buzz("plugin", "remove", "other").code == 0
    assert prompt(work / SETTINGS).count("Write short.") == 1


def test_the_audit_brings_in_what_was_handed_over_and_says_what_it_cannot_know(
    buzz: Buzz, work: Path, opened: Home
) -> None:
    write_plugin(opened, "style", "Write short.")
    write_plugin(opened, "never", "No.", when="lambda agent: False")
    buzz("attach", "claude")
    prompt(work / SETTINGS, session="5f9b2c1e-0000-4000-8000-000000000001", cwd=work)
    (row,) = rows(buzz("audit", "turns", "--json").out)
    assert (row["harness"], row["status"], row["plugins"]) == ("claude (attached)", "handed over", ["never", "style"])
    turn = row["turn"]
    shown = buzz("audit", "show", turn)
    assert "handed over to a program that the person runs" in shown.out
    assert "from the last set on disk, since no host ran" in shown.out
    assert "whether the program used it, what the person wrote, and what came back are not known here" in shown.out
    assert "│ Write short." in shown.out
    as_json = json.loads(buzz("audit", "show", turn, "--json").out)
    assert as_json["handed_over"]["by"] == "client"
    assert as_json["handed_over"]["cwd"] == str(work)
    assert as_json["handed_over"]["entries"] == [as_json["text"]]
    assert (as_json["reply"], as_json["usage"], as_json["error"]) == (None, None, None)
    why = buzz("audit", "why", turn).out
    assert "✓ style/one" in why
    assert "✗ never/one" in why
    assert "told style/one" in buzz("audit", "plugin", "style").out
    assert rows(buzz("audit", "turns", "--session", "5f9b2c1e", "--json").out) == [row]
    assert buzz("audit", "verify").code == 0
    assert rows(buzz("audit", "turns", "--json").out) == [row]


def test_a_running_host_answers_and_its_end_leaves_the_last_set(
    buzz: Buzz, work: Path, opened: Home, environment: dict[str, str]
) -> None:
    write_plugin(opened, "style", "Write short.")
    with serving(environment, work) as host:
        done = buzz("attach", "claude", "--json")
        assert rows(done.out)[0]["host"] == host.process.pid
        assert "Write short." in prompt(work / SETTINGS)
        assert buzz("plugin", "disable", "style").code == 0
        assert prompt(work / SETTINGS) == ""
        assert f"host: process {host.process.pid} answers" in buzz("attach", "status").out
        assert [row["status"] for row in rows(buzz("audit", "turns", "--json").out)] == ["handed over"] * 2
        assert buzz("plugin", "enable", "style").code == 0
        assert host.end() == (0, b"")
    assert not Places(opened).endpoint.exists()
    assert "Write short." in prompt(work / SETTINGS)
    turns = rows(buzz("audit", "turns", "--json").out)
    handed = [json.loads(buzz("audit", "show", row["turn"], "--json").out)["handed_over"]["by"] for row in turns]
    assert handed == ["client", "host", "host"]


def test_an_attached_session_is_not_one_that_buzz_resumes(buzz: Buzz, work: Path, opened: Home) -> None:
    write_plugin(opened, "style", "Write short.")
    buzz("attach", "claude")
    prompt(work / SETTINGS, session="5f9b2c1e-0000-4000-8000-000000000001")
    buzz("audit", "turns")
    done = buzz("run", "--rehearse", "--resume", "5f9b2c1e", "hello")
    assert done.code == 2
    assert "is one of a program that the person runs: go on with it there" in done.err


def test_the_json_of_each_verb(buzz: Buzz, work: Path, opened: Home) -> None:
    (made,) = rows(buzz("attach", "claude", "--agent", "dev", "--entries", "3", "--json").out)
    assert made == {
        "attachment": made["attachment"], "scope": "project", "project": str(work), "file": str(work / SETTINGS),
        "agent": "dev", "entries": 3, "already": False, "warnings": [], "host": None, "from": "the next prompt",
    }  # fmt: skip
    found = rows(buzz("attach", "status", "--json").out)
    assert [row["event"] for row in found] == ["attachment", "finding", "status"]
    assert (found[0]["in_place"], found[0]["for_agent"], found[0]["characters"]) == (True, "dev", 0)
    (gone,) = rows(buzz("detach", "claude", "--json").out)
    assert gone["removed"] == [str(work / SETTINGS), str(work / SETTINGS.parent)]


def test_the_persons_own_settings(buzz: Buzz, tmp_path: Path, opened: Home) -> None:
    write_plugin(opened, "style", "Write short.")
    assert buzz("attach", "claude", "--user").code == 0
    settings = tmp_path / "claude" / "settings.json"
    assert "Write short." in prompt(settings)
    assert "all projects of this person" in buzz("attach", "status").out
    assert buzz("detach", "--user").code == 0
    assert not settings.exists()
    assert not settings.parent.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("detach",), "nothing is attached here or anywhere else"),
        (("attach", "claude", "--user", "--project", "."), "give either --project or --user, not both"),
        (("attach", "claude", "--project", "gone"), "no such folder"),
        (("attach", "claude", "--agent", "nobody"), "nobody"),
        (("attach", "claude", "--entries", "9"), "9 is not in the range"),
        (("detach", "codex"), "'codex' is not 'claude'"),
    ],
)
def test_a_mistake_is_one_line(buzz: Buzz, work: Path, arguments: tuple[str, ...], says: str) -> None:
    done = buzz(*arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("\n") == 1
    assert list(work.iterdir()) == []


def test_broken_settings_are_one_line_and_stay(buzz: Buzz, work: Path) -> None:
    (work / SETTINGS).parent.mkdir()
    (work / SETTINGS).write_text('{"hooks": 7}', encoding="utf-8")
    done = buzz("attach", "claude")
    assert done.code == 2
    assert f"{work / SETTINGS}: line 1: `hooks` is no object; nothing was changed" in done.err
    assert (work / SETTINGS).read_text(encoding="utf-8") == '{"hooks": 7}'


def test_status_fails_where_something_is_wrong(buzz: Buzz, work: Path) -> None:
    buzz("attach", "claude")
    (work / SETTINGS).write_text("{}", encoding="utf-8")
    done = buzz("attach", "status")
    assert done.code == 1
    assert "(not in it)" in done.out
    assert "no longer has our entries" in done.err
    assert buzz("detach").out.startswith("detached: project")


def test_a_set_that_cannot_be_written_is_told_and_stops_no_switch(buzz: Buzz, work: Path, opened: Home) -> None:
    write_plugin(opened, "style", "Write short.")
    buzz("attach", "claude")
    Places(opened).registry.write_text("{", encoding="utf-8")
    done = buzz("plugin", "disable", "style")
    assert done.code == 0
    assert "attached sessions still get the set of before" in done.err


@pytest.mark.claude
@pytest.mark.req("HAR-06")
def test_doctor_proves_by_canary_where_the_text_arrives(buzz: Buzz, work: Path) -> None:
    done = buzz("harness", "doctor", "claude", "--attached")
    assert (done.code, done.err) == (0, "")
    assert "arrived   in a system message, 2 of 2, behind what the person wrote" in done.out
    assert "to the byte" in done.out
    (row,) = rows(buzz("harness", "doctor", "claude", "--attached", "--json").out)
    assert (row["arrived"], row["role"], row["verbatim"], row["holds"], row["fault"]) == (
        True,
        "system",
        True,
        True,
        "",
    )
    assert list(work.iterdir()) == []


@pytest.mark.req("HAR-06")
@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("exit 3", "the program ended with 3"),
        ("true", "the program asked no model"),
    ],
)
def test_doctor_says_that_a_program_does_not_do_it(
    buzz: Buzz, tmp_path: Path, environment: dict[str, str], program: str, says: str
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    fake = folder / "claude"
    fake.write_text(
        f'#!/bin/bash\nif [ "$1" = --version ]; then echo "9.9 (fake)"; exit 0; fi\n{program}\n', encoding="utf-8"
    )
    fake.chmod(0o755)
    done = buzz("harness", "doctor", "claude", "--attached", PATH=f"{folder}:{environment['PATH']}")
    assert done.code == 1
    assert "9.9 (fake)" in done.out
    assert f"arrived   no: {says}" in done.out
