"""Where programs are put together before they are there: a folder of one's own, and a lock for one at a time.

Whatever is fetched is written below `<folder>/.staging/` and moved to its place in one step. Whoever is killed on the
way leaves a staging folder, which the next one takes away as soon as nothing writes into it any more: its lock is
inherited by the program that fetches, and so held until that one has ended too.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

STAGING_NAME: Final = ".staging"
LOCK_NAME: Final = ".change.lock"


@attrs.frozen
class Staging:
    """An empty folder, and the descriptor that holds its lock; whoever is started to write there inherits that."""

    path: Path
    descriptor: int


@contextmanager
def changing(folder: Path, waits: Callable[[], None]) -> Iterator[Staging]:
    """Alone among all processes for changing what is in `folder`, which exists; gives a staging folder in it.

    Where another one changes it, `waits` is called once, and then it is waited for. Raises `OSError`.
    """
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(lock, fcntl.LOCK_EX)
        _sweep(folder)
        with _staging(folder) as staging:
            yield staging
    finally:
        os.close(lock)


def size_of(folder: Path) -> int:
    """The bytes of all files below `folder`; what goes meanwhile counts nothing."""
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(above, name)).st_size  # noqa: PTH118 - ten thousand files a second
            except OSError:
                continue
    return total


@contextmanager
def _staging(folder: Path) -> Iterator[Staging]:
    above = folder / STAGING_NAME
    above.mkdir(mode=0o700, exist_ok=True)
    path = above / secrets.token_hex(8)
    path.mkdir(mode=0o700)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield Staging(path, descriptor)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)
        _remove_if_empty(above)


def _sweep(folder: Path) -> None:
    """Take away what others left who were killed, unless a program that they started still writes there."""
    above = folder / STAGING_NAME
    try:
        left = sorted(above.iterdir())
    except OSError:
        return
    for each in left:
        try:
            descriptor = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(each, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
