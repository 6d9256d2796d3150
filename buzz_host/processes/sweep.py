"""What a killed host left behind: found by the marker in its environment, never by a program's name (DESIGN 12).

The keepers end their trees when the host dies. This is for what slips through: a keeper that was killed in the same
moment, a machine that was suspended in between.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final

import attrs

from buzz_host.processes.launcher import HOST_VARIABLE, environments, host_is_gone, process, table

SWEEP_DEADLINE_S: Final = 5.0
_PAUSE_S: Final = 0.02


@attrs.frozen
class Swept:
    """What was found: the pids that were ended, those that would not end in time, and folders of dead hosts removed."""

    ended: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    folders: tuple[Path, ...] = ()


def sweep(folder: Path, *, deadline_s: float = SWEEP_DEADLINE_S) -> Swept:
    """End every process whose marker names a host that is dead, and remove the folders of such hosts below `folder`.

    A host counts as dead when no process has its pid and start time; hosts of another pid namespace are never judged.
    Blocks for `deadline_s` seconds at most. Called once when a host starts.
    """
    gone: dict[str, bool] = {}
    started: dict[int, str] = {}
    rows = table()
    for pid, variables in environments(rows).items():
        marker = variables.get(HOST_VARIABLE, "")
        if marker not in gone:
            gone[marker] = host_is_gone(marker)
        if gone[marker] and not rows[pid].zombie:
            started[pid] = rows[pid].started
    left = _kill(started, deadline_s)
    folders = tuple(each for each in sorted(folder.glob("*.*.*")) if each.is_dir() and host_is_gone(each.name))
    for each in folders:
        shutil.rmtree(each, ignore_errors=True)
    return Swept(tuple(sorted(set(started) - left)), tuple(sorted(left)), folders)


def _kill(started: dict[int, str], deadline_s: float) -> set[int]:
    deadline = time.monotonic() + deadline_s
    left = set(started)
    while left:
        for pid in sorted(left):
            row = process(pid)
            if row is None or row.zombie or row.started != started[pid]:
                left.discard(pid)
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_S)
    return left
