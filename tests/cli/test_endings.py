"""How a command ends: one line for a mistake, one for a bug, none for a closed pipe, and the right exit code."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from buzz_author.errors import BuzzError
from buzz_host.cli import VerbGroup
from buzz_host.cli import buzz as group
from buzz_host.settings import Home
from tests.cli.commands import BUZZ, Buzz
from tests.cli.ledgers import HOSTILE, turn_record, write


@click.command()
@click.argument("what")
def broken(what: str) -> None:
    """Ends in the way that it is told."""
    errors: dict[str, BaseException] = {
        "mistake": BuzzError(f"it is wrong{HOSTILE}\nhere"),
        "bug": ZeroDivisionError("nobody thought of this\nat all"),
        "interrupt": KeyboardInterrupt(),
        "pipe": BrokenPipeError(),
    }
    raise errors[what]


@pytest.fixture
def verbs(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """`buzz` with one verb more, which is broken."""
    original = VerbGroup.get_command
    monkeypatch.setattr(
        VerbGroup, "get_command", lambda self, ctx, name: broken if name == "broken" else original(self, ctx, name)
    )
    monkeypatch.setattr(group, "_verbs", {**group._verbs, "broken": ("broken", "Broken.")})  # type: ignore[attr-defined]
    return CliRunner()


@pytest.mark.req("OPS-01", "SEC-04")
def test_a_mistake_is_one_line_without_a_traceback(verbs: CliRunner, home: Path) -> None:
    done = verbs.invoke(group, ["broken", "mistake"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "buzz: it is wrong\\x1b[31mred\\x9b2J \\u202eback\\x07\\nhere\n"
    assert not home.exists()


@pytest.mark.req("OPS-01")
def test_a_bug_is_one_line_that_says_where_the_traceback_is(verbs: CliRunner, home: Path) -> None:
    done = verbs.invoke(group, ["broken", "bug"])
    assert (done.exit_code, done.stdout) == (70, "")
    (report,) = (home / "logs").iterdir()
    assert done.stderr == (
        "buzz: this is a bug in Buzz, please report it: ZeroDivisionError: nobody thought of this at all; "
        f"its traceback is in {report}\n"
    )
    text = report.read_text(encoding="utf-8")
    assert "Traceback (most recent call last)" in text
    assert "in broken" in text
    assert stat.S_IMODE(report.stat().st_mode) == 0o600


@pytest.mark.req("OPS-01")
def test_a_bug_goes_to_the_home_that_was_named(verbs: CliRunner, home: Path, tmp_path: Path) -> None:
    verbs.invoke(group, ["--home", str(tmp_path / "other"), "broken", "bug"])
    assert len(list((tmp_path / "other" / "logs").iterdir())) == 1
    assert not home.exists()


@pytest.mark.req("OPS-01")
def test_a_bug_in_a_home_that_cannot_be_used_is_kept_elsewhere(verbs: CliRunner, home: Path) -> None:
    home.write_text("a file", encoding="utf-8")
    done = verbs.invoke(group, ["broken", "bug"])
    report = Path(done.stderr.rpartition(" ")[2].strip())
    try:
        assert done.exit_code == 70
        assert "ZeroDivisionError" in report.read_text(encoding="utf-8")
    finally:
        report.unlink()
        report.parent.rmdir()


@pytest.mark.req("OPS-01")
def test_an_interrupt_is_130(verbs: CliRunner) -> None:
    done = verbs.invoke(group, ["broken", "interrupt"])
    assert (done.exit_code, done.stdout, done.stderr.strip()) == (130, "", "")


@pytest.mark.req("OPS-01")
def test_a_closed_pipe_is_silent(verbs: CliRunner) -> None:
    done = verbs.invoke(group, ["broken", "pipe"])
    assert (done.exit_code, done.output) == (141, "")


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize("options", [["--json"], []])
def test_nobody_reading_any_more_is_silent(options: list[str], environment: dict[str, str], opened: Home) -> None:
    write(opened, *(turn_record(number, session="s" * 200) for number in range(3000)))
    process = subprocess.Popen(
        [*BUZZ, "audit", "turns", "--limit", "3000", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait() == 141


@pytest.mark.req("OPS-01")
def test_a_terminal_that_cannot_show_a_character_gets_its_escape(buzz: Buzz, opened: Home) -> None:
    write(opened, turn_record(1, agent="dev"))
    done = buzz("audit", "show", "7u12", PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert done.code == 0, done.err
    assert "\\u2502 message 1" in done.out


@pytest.mark.req("OPS-01")
def test_a_home_that_is_no_folder_is_a_mistake(buzz: Buzz, home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for arguments in (["--home", tmp_path / "file", "audit", "turns"], ["audit", "turns", "--home", tmp_path / "file"]):
        done = buzz(*arguments)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"buzz: {tmp_path / 'file'}: a folder is needed here")


@pytest.mark.req("OPS-01")
def test_the_module_is_the_program(environment: dict[str, str]) -> None:
    script = Path(sys.executable).with_name("buzz")
    if not os.access(script, os.X_OK):
        pytest.skip("Buzz is not installed here, only on the path")
    done = subprocess.run([script, "--version"], env=environment, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
