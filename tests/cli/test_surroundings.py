"""Homes that cannot be written: read-only, full, on a network, a file, somebody else's. Every verb says so in one line,
and nothing that was there is lost or changed.

The mounts are made in a namespace of their own, which ends with the command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import BUZZ, EXAMPLES, PARROT_OPTIONS, Buzz, Done
from tests.cli.mounts import DEADLINE_S, Surrounded, as_root, contents, full, on_a_network, read_only

READING = (
    ("audit", "turns"),
    ("audit", "search", "walrus"),
    ("audit", "verify"),
    ("preview", "hi"),
    ("plugin", "list"),
    ("plugin", "info", "claude"),
    ("plugin", "errors"),
    ("plugin", "verify"),
    ("harness", "list"),
    ("attach", "status"),
)
# Each of these would have to write something new into the home.
WRITING = (
    ("plugin", "disable", "claude"),
    ("plugin", "install", str(EXAMPLES / "style-guide")),
    ("attach", "claude"),
    ("serve",),
    ("run", *PARROT_OPTIONS, "hi"),
)
LINKING = ("plugin", "install", "--link", str(EXAMPLES / "style-guide"))


def named(arguments: tuple[str, ...]) -> str:
    return " ".join(each for each in arguments[:2] if "/" not in each)


@pytest.fixture
def lived_in(buzz: Buzz, home: Path) -> Path:
    """A home with a turn in its ledger that is indexed."""
    assert buzz("run", *PARROT_OPTIONS, "hello walrus").code == 0
    assert "walrus" in buzz("audit", "search", "walrus").out
    return home


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that everybody can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="buzz-open-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def is_one_line(done: Done) -> bool:
    line = done.err.removesuffix("\n").rpartition("\n")[2]
    others = [each for each in done.err.split("\n")[:-2] if not each.startswith("warning: ")]
    return done.code == 2 and not others and line.startswith("buzz: ") and "bug in Buzz" not in line


@pytest.mark.req("OPS-01", "AUD-02")
@pytest.mark.parametrize("arguments", READING, ids=named)
def test_a_home_on_a_read_only_mount_can_be_read(
    arguments: tuple[str, ...], lived_in: Path, surrounded: Surrounded
) -> None:
    before = contents(lived_in)
    done = surrounded(read_only(lived_in), *arguments)
    assert (done.code, done.err if arguments[0] == "audit" else "") == (0, "")
    if arguments[:2] in (("audit", "turns"), ("audit", "search")):
        assert "walrus" in done.out or "parrot" in done.out
    assert contents(lived_in) == before


@pytest.mark.req("OPS-01", "OPS-03")
@pytest.mark.parametrize("arguments", [*WRITING, LINKING, ("detach",)], ids=named)
def test_a_home_on_a_read_only_mount_is_not_written_and_says_so(
    arguments: tuple[str, ...], lived_in: Path, surrounded: Surrounded
) -> None:
    before = contents(lived_in)
    done = surrounded(read_only(lived_in), *arguments)
    assert is_one_line(done), done
    assert "mounted read-only" in done.err
    assert contents(lived_in) == before


@pytest.mark.req("OPS-01", "OPS-03")
@pytest.mark.parametrize("arguments", [*WRITING, LINKING, ("detach",)], ids=named)
def test_a_home_on_a_network_file_system_is_not_written_and_says_so(
    arguments: tuple[str, ...], lived_in: Path, surrounded: Surrounded, tmp_path: Path
) -> None:
    before = contents(lived_in)
    done = surrounded(on_a_network(lived_in, tmp_path / "mountinfo"), *arguments)
    assert is_one_line(done), done
    assert "is on a network file system (nfs4), whose locks do not hold: set BUZZ_HOME" in done.err
    assert contents(lived_in) == before


@pytest.mark.req("OPS-01", "AUD-02")
@pytest.mark.parametrize("arguments", READING, ids=named)
def test_a_home_on_a_network_file_system_can_be_read(
    arguments: tuple[str, ...], lived_in: Path, surrounded: Surrounded, tmp_path: Path
) -> None:
    done = surrounded(on_a_network(lived_in, tmp_path / "mountinfo"), *arguments)
    assert done.code == 0, done


@pytest.mark.req("OPS-01", "OPS-03")
@pytest.mark.parametrize("arguments", WRITING, ids=named)
def test_a_full_disk_is_one_line_and_loses_nothing(
    arguments: tuple[str, ...], lived_in: Path, surrounded: Surrounded, tmp_path: Path
) -> None:
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    # What is on the disk afterwards is copied out of the namespace before it ends.
    prepare = full(lived_in, disk) + f'; trap \'cp -a "{disk}/home" "{kept}"\' EXIT; set +e; "$@"; exit'
    done = surrounded(prepare, *arguments, BUZZ_HOME=str(disk / "home"))
    assert is_one_line(done), done
    assert "No space left" in done.err or "disk is full" in done.err
    after, before = contents(kept), contents(lived_in)
    assert {name: after.get(name) for name in before} == before


@pytest.mark.req("OPS-01", "AUD-02")
@pytest.mark.parametrize("arguments", READING, ids=named)
def test_a_home_on_a_full_disk_can_be_read(
    arguments: tuple[str, ...], lived_in: Path, surrounded: Surrounded, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    done = surrounded(full(lived_in, disk), *arguments, BUZZ_HOME=str(disk / "home"))
    assert done.code == 0, done


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize("arguments", [*READING, *WRITING, LINKING, ("detach",)], ids=named)
def test_a_home_that_is_a_file_is_one_line(arguments: tuple[str, ...], buzz: Buzz, home: Path) -> None:
    home.write_text("precious", encoding="utf-8")
    done = buzz(*arguments)
    assert is_one_line(done), done
    assert f"{home}: a folder is needed here, and this is none" in done.err
    assert home.read_text(encoding="utf-8") == "precious"


@pytest.mark.req("OPS-01", "OPS-03")
@pytest.mark.parametrize("arguments", [*WRITING, LINKING, ("audit", "turns"), ("audit", "search", "x")], ids=named)
def test_a_home_of_somebody_else_is_one_line(
    arguments: tuple[str, ...], lived_in: Path, open_place: Path, environment: dict[str, str]
) -> None:
    as_root()
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv, to run a command as somebody else")
    theirs = open_place / "home"
    shutil.copytree(lived_in, theirs)
    for each in (theirs, *theirs.rglob("*")):
        os.chown(each, 12345, 12345)
    theirs.chmod(0o755)
    before = contents(theirs)
    done = subprocess.run(
        ["setpriv", "--reuid", "65534", "--clear-groups", *BUZZ, *arguments],
        capture_output=True,
        cwd=open_place,
        env={**environment, "HOME": "/nonexistent", "BUZZ_HOME": str(theirs)},
        timeout=DEADLINE_S,
        check=False,
    )
    ended = Done(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))
    if "Permission denied: '" in ended.err or ended.code == 1:
        pytest.skip(f"another user may not run {sys.executable} here")
    assert is_one_line(ended), ended
    assert contents(theirs) == before
