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

from buzz_host.processes.launcher import HOST_VARIABLE, environments, host_is_gone, table

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
    ended: set[int] = set()
    deadline = time.monotonic() + deadline_s
    while (left := left_behind()) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        ended |= left
        time.sleep(_PAUSE_S)
    folders = tuple(each for each in sorted(folder.glob("*.*.*")) if each.is_dir() and host_is_gone(each.name))
    for each in folders:
        shutil.rmtree(each, ignore_errors=True)
    return Swept(tuple(sorted(ended - left)), tuple(sorted(left)), folders)


def left_behind() -> set[int]:
    """The processes whose marker names a host that is dead."""
    gone: dict[str, bool] = {}
    found: set[int] = set()
    rows = table()
    for pid, variables in environments(rows).items():
        marker = variables.get(HOST_VARIABLE, "")
        if marker not in gone:
            gone[marker] = host_is_gone(marker)
        if gone[marker] and not rows[pid].zombie:
            found.add(pid)
    return found
