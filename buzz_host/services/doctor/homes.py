"""The home folder: whether it is there, whose it is, who may enter it, whether it can be written, and what it is on."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Final

from buzz_host.services.doctor.checks import Check, note, ok, problem
from buzz_host.services.place import RUNTIME_VARIABLE, SOCKET_NAME, SOCKET_PATH_MAX_BYTES
from buzz_host.settings import Home
from buzz_host.settings.filesystems import network_file_system
from buzz_host.settings.home import HOME_VARIABLE

AREA: Final = "home"
FULL_BELOW_BYTES: Final = 16 * 1024**2
NARROW_BELOW_BYTES: Final = 256 * 1024**2
# What is for the person alone, by its path in the home: what was said, what was decided, and where a token stands.
PRIVATE: Final = (
    "buzz.toml", "state.db", "state.db-wal", "state.db-shm", "ledger.head", "plugins.lock", "serve.lock",
    "attach/attachments.json", "agents", "attach", "data", "harnesses", "leases", "logs", "plugins", "run", "skills",
    "store",
)  # fmt: skip
WITH_A_TOKEN: Final = ("attach/endpoint",)


def home_checks(home: Home) -> Iterator[Check]:
    """Everything about the folder and what it stands on; nothing is made."""
    root = home.root
    if not root.exists():
        yield _missing(root)
        return
    found = root.stat()
    yield _owner(root, found.st_uid)
    yield from _modes(root, found.st_mode)
    yield _writable(root)
    kind = network_file_system(root)
    if kind is not None:
        yield problem(
            AREA,
            f"{root} is on a network file system ({kind}), whose locks do not hold, so nothing is written there: "
            f"set {HOME_VARIABLE} to a folder on a local disk",
        )
    else:
        yield ok(AREA, "on a local file system")
    yield _room(root)
    yield from _socket(root)


def _missing(root: Path) -> Check:
    above = next(each for each in root.parents if each.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        return problem(AREA, f"{root} is not there, and cannot be made in {above}: set {HOME_VARIABLE} to a folder")
    return ok(AREA, f"{root} is not there yet: it is made when something is first put into it")


def _owner(root: Path, uid: int) -> Check:
    if uid == os.geteuid():
        return ok(AREA, f"{root} is your own")
    return problem(
        AREA,
        f"{root} belongs to {_user(uid)}, and you are {_user(os.geteuid())}: set {HOME_VARIABLE} to a folder of your "
        f"own, or change its owner (`chown -R {os.geteuid()} {quote(str(root))}`)",
    )


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _modes(root: Path, mode: int) -> Iterator[Check]:
    place = quote(str(root))
    if mode & 0o022:
        yield problem(
            AREA,
            f"{root} may be written by others (mode {_octal(mode)}), who could put plugins there: `chmod 700 {place}`",
        )
    elif mode & 0o077:
        yield note(AREA, f"{root} may be entered by others (mode {_octal(mode)}): `chmod 700 {place}`")
    else:
        yield ok(AREA, f"only you may enter it (mode {_octal(mode)})")
    for name in WITH_A_TOKEN:
        wide = _wide(root / name)
        if wide is not None:
            yield problem(
                AREA,
                f"{root / name} holds a token, and others may read it (mode {wide}): `chmod 600 "
                f"{quote(str(root / name))}`, and start `buzz serve` again",
            )
    wider = [(name, wide) for name in PRIVATE if (wide := _wide(root / name)) is not None]
    if wider:
        named = ", ".join(f"{name} ({wide})" for name, wide in wider)
        paths = " ".join(quote(str(root / name)) for name, _ in wider)
        yield note(AREA, f"wider than for you alone: {named}: `chmod go-rwx {paths}`")


def _wide(path: Path) -> str | None:
    """The mode of what stands at `path`, where others have any right to it; None where not, or where nothing is."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    return _octal(mode) if mode & 0o077 and not stat.S_ISLNK(mode) else None


def _octal(mode: int) -> str:
    return f"{stat.S_IMODE(mode):04o}"


def _writable(root: Path) -> Check:
    if os.access(root, os.R_OK | os.W_OK | os.X_OK):
        return ok(AREA, "it can be read and written")
    if os.statvfs(root).f_flag & os.ST_RDONLY:
        return problem(
            AREA,
            f"{root} is on a file system that is mounted read-only: `buzz audit` and `buzz preview` work, and whatever "
            f"has to be recorded does not; mount it for writing, or set {HOME_VARIABLE} to another folder",
        )
    return problem(AREA, f"{root} may not be written: change its owner or mode, or set {HOME_VARIABLE}")


def _room(root: Path) -> Check:
    disk = os.statvfs(root)
    free = disk.f_bavail * disk.f_frsize
    size = f"{free / 1024**2:,.0f} MiB"
    if disk.f_files and not disk.f_favail:
        return problem(AREA, f"{root}: the disk has no room for another file: remove some")
    if free < FULL_BELOW_BYTES:
        return problem(AREA, f"{root}: the disk is full ({size} left): turns cannot be recorded; free some space")
    if free < NARROW_BELOW_BYTES:
        return note(AREA, f"{root}: the disk has {size} left: free some space")
    return ok(AREA, f"{size} free")


def _socket(root: Path) -> Iterator[Check]:
    inside = root / "run" / SOCKET_NAME
    if len(os.fsencode(inside)) > SOCKET_PATH_MAX_BYTES:
        yield note(
            AREA,
            f"{root} is too long a path for a socket: `buzz serve` puts it into ${RUNTIME_VARIABLE}, else into a "
            "folder of yours in /tmp",
        )
