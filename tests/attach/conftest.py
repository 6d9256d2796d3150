"""A person with a project, their own Claude Code in a terminal, and a home of Buzz beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from buzz_author.testing.programs import claude_program
from buzz_host.attach.attaching import Target
from buzz_host.rehearsal import Rehearsal
from buzz_host.settings import Home
from tests.attach.terminals import Terminal, person

Opened = Callable[..., Terminal]


@pytest.fixture
def opened(home: Path) -> Home:
    made = Home.resolve(home)
    made.folder()
    return made


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's project; trusted, and theirs is the HOME."""
    folder = (tmp_path / "project").resolve()
    folder.mkdir()
    owner = person(tmp_path / "person", folder)
    monkeypatch.setenv("HOME", str(owner))
    return folder


@pytest.fixture
def target(project: Path) -> Target:
    return Target.of(project, user=False)


@pytest.fixture
async def rehearsal() -> AsyncIterator[Rehearsal]:
    async with Rehearsal.start() as running:
        yield running


@pytest.fixture
def claude(project: Path, tmp_path: Path, rehearsal: Rehearsal) -> Opened:
    """Opens the program in a terminal: `with claude("--continue") as terminal`."""
    program = claude_program()
    assert program is not None
    if shutil.which("tmux") is None:
        reason = "tmux is not here: a terminal cannot be driven without it"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    def opened(*arguments: str) -> Terminal:
        return Terminal(program, tmp_path / "person", project, rehearsal, *arguments)

    return opened
