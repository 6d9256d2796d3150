"""Files that survive: a lock between processes, and a replacement that a crash leaves whole or undone.

Both stand on what the kernel promises: `flock` ends with its process, and `rename` is all or nothing. They do not
cover network file systems, where neither holds. And what a disk, or an owner's mode, does to a file of ours is told in
one line that names the file (OPS-01): `surroundings`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from buzz_host.settings.home import FILE_MODE

# What a file may be refused for by the disk, the mount, the owner or the limits of the machine.
_ADVICE: Final = {
    errno.ENOSPC: "free some space and try again",
    errno.EDQUOT: "free some space and try again",
    errno.EFBIG: "free some space and try again",
    errno.EROFS: "mount it for writing, or name another place",
    errno.EACCES: "check the owner and the mode of it and of its folder",
    errno.EPERM: "check the owner and the mode of it and of its folder",
    errno.EIO: "the disk failed; look at the system's log",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENOMEM: "free some memory and try again",
}
_ON_WRITING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


def surroundings(error: OSError) -> str | None:
    """The line for what the surroundings did to a file of ours: which file, why, what to do; None for any other error.

    An error counts by the file that it names, or by a reason that only disks, mounts and limits have.
    """
    if error.errno is None or isinstance(error, ConnectionError | BlockingIOError):
        return None
    if error.filename is None and error.errno not in _ADVICE:
        return None
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "a file"
    verb = "written" if error.errno in _ON_WRITING else "used"
    advice = _ADVICE.get(error.errno, "put that right and try again")
    return f"{path}: cannot be {verb} ({error.strerror}): {advice}"


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """What fails inside is told of `path`: a write that meets a full disk does not say by itself which file it was."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """The content of the regular file at `path`, of `max_bytes` at most. A link is followed.

    A pipe or a device would give nothing, or never end. Raises `OSError`; `ValueError`, in words, for what is no
    regular file or is larger.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise ValueError("is no regular file")
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"is larger than {max_bytes // 1024} KiB")
    return content


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the file at `path`, shared by all processes, through a file `<path>.lock` beside it.

    Waits for whoever holds it. The lock file stays: to remove it would let two processes lock two files of one name.
    The folder must exist. Raises `OSError` where the lock file cannot be made.
    """
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Put `content` in the place of the file at `path`, mode 0600: readers find the old content or the new, whole.

    One writer at a time: hold `locked(path)`, or another lock that keeps the others out. With `durable` it is on disk
    when this returns; without, a loss of power may undo it. Raises `OSError`; the old content is then still there.
    """
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        with naming(path), os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
