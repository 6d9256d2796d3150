"""Files that survive: a lock between processes, and a replacement that a crash leaves whole or undone.

Both stand on what the kernel promises: `flock` ends with its process, and `rename` is all or nothing. They do not
cover network file systems, where neither holds.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from buzz_host.settings.home import FILE_MODE


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
        with os.fdopen(descriptor, "wb") as file:
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
