"""Where the running host of a home is reached: what `buzz serve` writes into the home, and every client reads.

The lock file says it, so that a client with another environment (a cron job, another login) finds the same socket. The
socket stands in the home's `run/`; where that path is too long for a socket, in the person's runtime folder.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_host.settings import Home

LOCK_NAME: Final = "serve.lock"
SOCKET_NAME: Final = "serve.sock"
RUNTIME_VARIABLE: Final = "XDG_RUNTIME_DIR"
SOCKET_PATH_MAX_BYTES: Final = 107  # `sun_path` has 108, and a zero at the end
PLACE_MAX_BYTES: Final = 64 * 1024


@attrs.frozen
class Place:
    """The process of a host, and its socket; None before it listens."""

    pid: int
    socket: Path | None


def place_of(home: Home) -> Place | None:
    """What the lock file of `home` says; None where no host ever ran, or the last one ended in order.

    A host that was killed leaves its place behind: only connecting tells whether it lives.
    """
    try:
        with (home.root / LOCK_NAME).open("rb") as file:
            said = json.loads(file.read(PLACE_MAX_BYTES))
        return Place(int(said["pid"]), Path(said["socket"]) if said["socket"] is not None else None)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def place_json(place: Place) -> bytes:
    """What stands in the lock file for `place`."""
    return json.dumps({"pid": place.pid, "socket": None if place.socket is None else str(place.socket)}).encode("ascii")


def socket_path(home: Home) -> Path:
    """Where the socket of `home` is to be made, in a folder that only this person may enter; makes the folder.

    Raises `BuzzError` where there is no such folder with a path short enough.
    """
    inside = home.root / "run" / SOCKET_NAME
    if _fits(inside):
        private_folder(home.folder(inside.parent))
        return inside
    from hashlib import sha256

    name = f"{sha256(os.fsencode(home.root.resolve())).hexdigest()[:16]}.sock"
    for folder in _runtime_folders():
        if _fits(folder / name):
            private_folder(folder)
            return folder / name
    raise BuzzError(f"{home.root}: is too long a path for a socket: set {RUNTIME_VARIABLE} to a folder of a short one")


def private_folder(folder: Path) -> None:
    """Make `folder` where it is missing, and see to it that nobody else may enter it.

    Raises `BuzzError` where it is a link, no folder, or somebody else's: its owner could put another socket there.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise BuzzError(f"{folder}: is no folder of your own: remove it, or set {RUNTIME_VARIABLE} to one")
        if found.st_mode & 0o077:
            folder.chmod(0o700)
    except FileExistsError:
        raise BuzzError(f"{folder}: a folder is needed here, and this is none: move it away") from None
    except OSError as error:
        raise BuzzError(f"{folder}: the folder for the socket cannot be made ({error.strerror})") from None


def _runtime_folders() -> list[Path]:
    named = os.environ.get(RUNTIME_VARIABLE, "")
    folders = [Path(named) / "buzz"] if named.startswith("/") and Path(named).is_dir() else []
    import tempfile

    return [*folders, *(Path(each) / f"buzz-{os.geteuid()}" for each in dict.fromkeys((tempfile.gettempdir(), "/tmp")))]


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= SOCKET_PATH_MAX_BYTES
