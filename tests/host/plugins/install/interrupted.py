"""A program: changes what is installed in a copy of a home, once for each step of it, and is killed at that step.

    python -m tests.host.plugins.install.interrupted first|upgrade|repair|remove BASE WORK SOURCE

A step is whatever changes the disk, as the interpreter's own audit events tell: no step can be forgotten. Prints one
JSON object a step: what a host finds afterwards, what the next sweep leaves, and what doing it again gives.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from buzz_author.errors import BuzzError
from buzz_host.plugins.discovery import discover
from buzz_host.plugins.install.installing import uninstall
from buzz_host.plugins.install.lockfile import read_lock
from buzz_host.plugins.install.storing import STAGING_NAME, sweep
from buzz_host.plugins.loading import load, unload
from buzz_host.settings import Home
from tests.host.plugins.install.making import put

STEPS_MAX = 500
_CHANGES = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate", "shutil.rmtree"})


def _die_at(step: int) -> None:
    done = 0

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        writes = event == "open" and len(arguments) > 2 and bool(int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR))
        if event in _CHANGES or writes or event == "fcntl.flock":
            done += 1
            if done == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)


def change(what: str, home: Home, source: str) -> None:
    if what == "remove":
        uninstall(home, "honest")
    else:
        put(home, source, agreed=True)


def state(home: Home) -> dict[str, Any]:
    """What a host finds: the version that loads, or the faults."""
    found = discover(home, entry_points=False)
    versions = []
    for source in found.sources:
        unload(load(source).package)
        versions.append(source.version)
    return {"versions": versions, "faults": [fault.message for fault in found.faults]}


def left(home: Home) -> list[str]:
    """What is in the store and in no row of the lock."""
    rows = read_lock(home.lock).values()
    known = {each for row in rows for each in (row.content_hash, row.previous)}
    there = [each.name for each in home.store.iterdir()] if home.store.is_dir() else []
    staging = home.store / STAGING_NAME
    staged = [f"{STAGING_NAME}/{each.name}" for each in staging.iterdir()] if staging.is_dir() else []
    return [name for name in there if not name.startswith(".") and name not in known] + staged


def main(what: str, base: str, work: str, source: str) -> None:
    for step in range(1, STEPS_MAX):
        home = Home(Path(work) / f"{step}")
        if Path(base).exists():
            shutil.copytree(base, home.root, symlinks=True)
        child = os.fork()
        if child == 0:
            _die_at(step)
            try:
                change(what, home, source)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status)
        row: dict[str, Any] = {"step": step, "killed": killed, **state(home)}
        sweep(home)
        row["left"] = left(home)
        try:
            change(what, home, source)
        except BuzzError as error:
            row["again"] = str(error)
        else:
            row["again"] = state(home)["versions"]
        row["left_again"] = left(home)
        print(json.dumps(row), flush=True)
        for folder, _, _ in os.walk(home.root):
            Path(folder).chmod(0o700)
        shutil.rmtree(home.root)
        if not killed:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
