"""How a command ends: one line for a mistake, one for a bug, none for a closed pipe, and the right exit code."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from buzz_author.errors import BuzzError
from buzz_host.cli import VerbGroup
from buzz_host.cli import buzz as group
from buzz_host.settings import Home
from tests.cli.commands import BUZZ, PARROT_OPTIONS, Buzz
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
    monkeypatch.setattr(group, "_verbs", {**group._verbs, "broken": ("broken", "Broken.")})
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


@pytest.mark.req("OPS-01", "OPS-03")
@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/srv/x/run/start-1"),
            "/srv/x/run/start-1: cannot be written (No space left on device): free some space and try again",
        ),
        (
            PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/srv/x/leases"),
            "/srv/x/leases: cannot be used (Permission denied): check the owner and the mode of it and of its folder",
        ),
        (
            OSError(errno.EROFS, os.strerror(errno.EROFS), b"/srv/x/logs"),
            "/srv/x/logs: cannot be written (Read-only file system): mount it for writing, or name another place",
        ),
        (
            FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/srv/x/run"),
            "/srv/x/run: cannot be used (No such file or directory): put that right and try again",
        ),
    ],
)
def test_what_the_disk_does_to_a_file_is_no_bug(
    verbs: CliRunner, home: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, line: str
) -> None:
    def refused(what: str) -> None:
        raise error

    monkeypatch.setattr(broken, "callback", refused)
    done = verbs.invoke(group, ["broken", "x"])
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"buzz: {line}\n")
    assert not home.exists()


@pytest.mark.req("OPS-01")
def test_an_error_of_the_system_without_a_file_is_still_a_bug(
    verbs: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(what: str) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(broken, "callback", refused)
    done = verbs.invoke(group, ["broken", "x"])
    assert done.exit_code == 70
    assert "this is a bug in Buzz" in done.stderr


@pytest.mark.req("OPS-01", "OPS-03")
@pytest.mark.parametrize(
    "command",
    [
        ("preview", "hi"),
        ("preview", "--json", "hi"),
        ("plugin", "list"),
        ("--help",),
        ("--version",),
        ("run", *PARROT_OPTIONS, "hi"),
        ("run", "--json", *PARROT_OPTIONS, "hi"),
    ],
)
def test_an_output_that_takes_nothing_is_one_line(
    command: tuple[str, ...], environment: dict[str, str], work: Path
) -> None:
    full = "buzz: standard output: cannot be written (No space left on device): free some space and try again"
    closed = "buzz: standard output is closed: lead it somewhere, such as >/dev/null"
    for where, line in ((">/dev/full", full), (">&-", closed), (">&- <&-", closed)):
        shell = f'exec "$@" {where}'
        done = subprocess.run(
            ["sh", "-c", shell, "sh", *BUZZ, *command], env=environment, cwd=work, capture_output=True, text=True
        )
        assert done.returncode == 2, (where, done)
        assert done.stderr.split("\n")[-2] == line
        assert len([each for each in done.stderr.split("\n") if each.startswith("buzz: ")]) == 1


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize("where", ["<&-", "2>&-", "<&- 2>&-"])
def test_other_streams_may_be_closed(where: str, environment: dict[str, str], work: Path) -> None:
    command = ["sh", "-c", f'exec "$@" {where}', "sh", *BUZZ, "run", *PARROT_OPTIONS, "hi"]
    done = subprocess.run(command, env=environment, cwd=work, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "hi\n")
    empty = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *BUZZ, "preview", "-"], env=environment, capture_output=True, text=True
    )
    assert (empty.returncode, empty.stdout, empty.stderr.count("\n")) == (2, "", 1)
    assert "the message is empty" in empty.stderr


@pytest.mark.req("OPS-01", "OPS-03")
@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.06, 0.1, 0.2, 0.4])
def test_an_early_ctrl_c_is_silent(after_s: float, environment: dict[str, str], work: Path) -> None:
    # It says when `main` has begun: before that, Ctrl-C is the interpreter's own affair.
    code = "import gc; from buzz_host.cli import main\ngc.set_threshold = lambda *_: print('here', flush=True)\nmain()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "preview", *PARROT_OPTIONS, "hi"],
        env=environment, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    # Before it could be asked, the system ends it: a shell says 130 for both.
    assert process.returncode in (130, -signal.SIGINT, 0)
    assert b"Traceback" not in said
    if process.returncode:
        assert said.strip().count(b"\n") == 0


@pytest.mark.req("OPS-01", "OPS-03")
def test_a_full_disk_is_told_with_the_file_by_every_verb_and_all_goes_on_after(
    environment: dict[str, str], work: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "buzz-test", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        buzz = [*BUZZ, "--home", str(disk / "home")]
        run = [*buzz, "run", *PARROT_OPTIONS, "hi"]

        def done(command: list[str]) -> subprocess.CompletedProcess[str]:
            return subprocess.run(command, env=environment, cwd=work, capture_output=True, text=True)

        assert done(run).returncode == 0
        with suppress(OSError), (disk / "fill").open("wb", buffering=0) as fill:
            while fill.write(b"\0" * 4096):
                pass
        for command in (run, [*buzz, "plugin", "disable", "claude"], [*buzz, "run", "--json", *PARROT_OPTIONS, "hi"]):
            full = done(command)
            assert full.returncode == 2, full
            assert f"buzz: {disk}" in full.stderr
            assert "No space left on device" in full.stderr or "disk is full" in full.stderr
            assert "bug in Buzz" not in full.stderr
        (disk / "fill").unlink()
        assert done(run).returncode == 0
        assert done([*buzz, "audit", "verify"]).returncode == 0
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
