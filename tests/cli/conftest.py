"""What tests of the command line stand on: the real program in a process of its own, in a home of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from buzz_host.settings import Home
from tests.cli.commands import BUZZ, DEADLINE_S, ROOT, Buzz, Done
from tests.cli.mounts import Surrounded, surrounded_by

NOT_PASSED_ON = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONUNBUFFERED")


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """The environment of a command: a home of its own, no terminal's settings, nobody's credentials."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    return {**kept, "BUZZ_HOME": str(home), "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The empty folder that commands run in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def buzz(environment: dict[str, str], work: Path) -> Buzz:
    """Runs `buzz` with the arguments, and gives what it did. What it printed must be UTF-8."""

    def run(*arguments: str | Path, stdin: bytes = b"", **more: str) -> Done:
        done = subprocess.run(
            [*BUZZ, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            cwd=work,
            env={**environment, **more},
            timeout=DEADLINE_S,
        )
        return Done(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))

    return run


@pytest.fixture
def opened(home: Path) -> Home:
    """The home of this test, as the host sees it."""
    return Home(home)


@pytest.fixture
def surrounded(environment: dict[str, str], work: Path) -> Surrounded:
    """Runs shell commands that mount, and then `buzz`, in a namespace of mounts of its own."""
    return surrounded_by(environment, work)
