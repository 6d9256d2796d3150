"""The running host, and what those who were killed left behind."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from buzz_host import VERSION
from buzz_host.plugins.install.lockfile import LockFileError, read_lock
from buzz_host.plugins.install.storing import STAGING_NAME
from buzz_host.processes.launcher import host_is_gone
from buzz_host.processes.sweep import left_behind
from buzz_host.services.doctor.checks import Check, note, ok, problem
from buzz_host.services.place import place_of
from buzz_host.settings import Home

HOST: Final = "host"
AREA: Final = "leftovers"
TEMPORARY: Final = ("buzz-rehearsal-*", "buzz-demo-*", "buzz-canary-*", "buzz-reading-*")
# What is younger may belong to a command that runs.
OLD_AFTER_S: Final = 3600.0
_HASH_CHARS: Final = 64


def host_checks(home: Home) -> Iterator[Check]:
    """Whether a host runs, answers, and is of this version. Raises what `reach` raises, which says what to do."""
    place = place_of(home)
    if place is None:
        yield ok(HOST, "no host runs; `buzz serve` keeps one")
        return
    if place.socket is None:
        yield note(HOST, f"process {place.pid} is starting as the host, or was killed while it did")
        return
    from buzz_host.services.remote import reach

    remote = reach(place)
    if remote is None:
        yield note(
            HOST,
            f"{home.root / 'serve.lock'} names process {place.pid} as the host, which is gone: the next `buzz serve` "
            "takes its place",
        )
        return
    remote.close()
    yield ok(HOST, f"process {place.pid} is the running host, Buzz {VERSION}, at {place.socket}")


def leftover_checks(home: Home) -> Iterator[Check]:
    """Folders and processes of hosts, installations and rehearsals that were killed; and reports of crashes."""
    found = False
    for each in _left(home):
        found = True
        yield each
    if not found:
        yield ok(AREA, "nothing was left behind")


def _left(home: Home) -> Iterator[Check]:
    processes = sorted(left_behind())
    if processes:
        yield problem(
            AREA,
            f"processes that a dead host started still run: {', '.join(map(str, processes))}: "
            "the next `buzz serve` or `buzz run` ends them",
        )
    run = [each for each in _entries(home.root / "run") if len(each.name.split(".")) >= 3 and host_is_gone(each.name)]
    yield from _folders(run, "of dead hosts", "the next `buzz serve` or `buzz run` removes them")
    yield from _store(home)
    here = [
        each for pattern in TEMPORARY for each in Path(tempfile.gettempdir()).glob(pattern) if _is_old_and_mine(each)
    ]
    yield from _folders(here, "of commands that were killed", "remove them")
    crashes = [each for each in _entries(home.logs) if each.name.startswith("crash-")]
    if crashes:
        yield note(
            AREA, f"{len(crashes)} reports of bugs in Buzz, the newest {crashes[-1]}: please report and remove them"
        )
    notes = [each for each in _entries(home.root / "attach" / "spool") if each.name.endswith(".unreadable")]
    if notes:
        yield note(AREA, f"{len(notes)} notes of attached sessions could not be understood, such as {notes[0]}")


def _store(home: Home) -> Iterator[Check]:
    remedy = "the next installation, or `buzz serve`, removes them"
    staged = [each for each in _entries(home.store / STAGING_NAME) if _is_old_and_mine(each)]
    yield from _folders(staged, "of installations that were cut off", remedy)
    with suppress(LockFileError):  # told with the plugins
        kept = {each for row in read_lock(home.lock).values() for each in (row.content_hash, row.previous)}
        unnamed = [each for each in _entries(home.store) if len(each.name) == _HASH_CHARS and each.name not in kept]
        yield from _folders(unnamed, "in the store that no plugin uses", remedy)


def _folders(found: list[Path], whose: str, remedy: str) -> Iterator[Check]:
    if found:
        yield note(AREA, f"{len(found)} folders {whose}, such as {found[0]}: {remedy}")


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_old_and_mine(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and time.time() - found.st_mtime > OLD_AFTER_S
