"""The installation itself: Python, the package, what it offers, and whether processes can be told apart here."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Final

from buzz_host import VERSION
from buzz_host.plugins.entry_points import GROUP
from buzz_host.processes.launcher import LINUX, process
from buzz_host.services.doctor.checks import Check, note, ok, problem

AREA: Final = "installation"
PACKAGE: Final = "buzz-agents"
OLDEST_PYTHON: Final = (3, 11)


def installation_checks() -> Iterator[Check]:
    """Python, the package and its entry points, and the table of processes."""
    running = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield problem(AREA, f"Python {running} at {sys.executable} is too old: install Buzz with {oldest} or newer")
    else:
        yield ok(AREA, f"Python {running} at {sys.executable}")
    yield from _package()
    yield _processes()


def _package() -> Iterator[Check]:
    try:
        installed = version(PACKAGE)
    except PackageNotFoundError:
        yield problem(AREA, f"the package {PACKAGE} is not installed, so no harness is found: pip install {PACKAGE}")
        return
    if installed != VERSION:
        yield problem(
            AREA, f"{PACKAGE} is installed as {installed}, and its code is {VERSION}: pip install --force-reinstall"
        )
    else:
        yield ok(AREA, f"Buzz {VERSION}")
    offered = sorted(entry_points(group=GROUP), key=lambda each: each.name)
    ours = [each for each in offered if each.dist is not None and each.dist.name == PACKAGE]
    if not ours:
        yield problem(AREA, f"{PACKAGE} offers no plugin as entry point: install it again")
    else:
        yield ok(AREA, f"plugins offered by packages: {', '.join(each.name for each in offered)}")
    if shutil.which("buzz") is None:
        beside = Path(sys.executable).with_name("buzz")
        instead = beside if beside.exists() else f"{sys.executable} -m buzz_host.cli"
        yield note(AREA, f"no `buzz` is on the PATH: run {instead}, or put its folder on the PATH")


def _processes() -> Check:
    me = process(os.getpid())
    parent = process(me.parent) if me is not None and me.parent else me
    if me is None or parent is None:
        return note(
            AREA,
            "this system does not show the processes above this one: who started a command cannot be known here, "
            "so a program that an agent runs cannot be told from a person",
        )
    return ok(AREA, f"which process started which can be read here ({'/proc' if LINUX else 'ps'})")
