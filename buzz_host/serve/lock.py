"""One running host a home: a lock of the kernel's, which ends with its holder however that ends (OPS-03).

The lock file also says which process holds it and where its socket is (`services.place`). It is never removed: that
would let two processes lock two files of one name.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from buzz_author.errors import BuzzError
from buzz_host.services.place import LOCK_NAME, Place, place_json, place_of
from buzz_host.settings import Home
from buzz_host.settings.home import FILE_MODE

# How long the holder may take to say who it is.
NAMED_WITHIN_S: Final = 1.0
_PAUSE_S: Final = 0.01


class AlreadyServed(BuzzError):
    """A host runs on this home."""


class ServeLock:
    """The right to be the host of `home`, from `take` until `release`."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path

    @classmethod
    def take(cls, home: Home) -> ServeLock:
        """Take it. Raises `AlreadyServed`, naming the process that holds it; `HomeError`, or another `BuzzError`, where
        the home cannot be written."""
        path = home.writable_root() / LOCK_NAME
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        except OSError as error:
            raise BuzzError(f"{path}: the lock of the host cannot be opened ({error.strerror})") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock = cls(descriptor, path)
            lock.tell(Place(os.getpid(), None))
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyServed(_by_whom(home)) from None
        except OSError as error:
            os.close(descriptor)
            raise BuzzError(f"{path}: cannot be locked ({error.strerror}): set BUZZ_HOME to a local folder") from None
        except BaseException:
            os.close(descriptor)
            raise
        return lock

    def tell(self, place: Place) -> None:
        """Say to clients where this host is. Raises `BuzzError` where that cannot be written."""
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, place_json(place), 0)
        except OSError as error:
            raise BuzzError(f"{self._path}: cannot be written ({error.strerror}): free some space") from None

    def release(self) -> None:
        """Give it back; doing so again does nothing."""
        if self._descriptor >= 0:
            with suppress(OSError):  # a disk that became read-only meanwhile
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _by_whom(home: Home) -> str:
    """The line for the second host. The first may have taken the lock this moment, and its predecessor been killed."""
    until = time.monotonic() + NAMED_WITHIN_S
    while True:
        place = place_of(home)
        if place is not None and _lives(place.pid):
            return (
                f"{home.root}: process {place.pid} is its running host already, and serves every command: "
                f"end it first with `kill {place.pid}`"
            )
        if time.monotonic() > until:
            return f"{home.root}: another process is its running host already: end it first"
        time.sleep(_PAUSE_S)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
