"""One driver a session: a lease that ends with its holder, however that ends.

Claude Code would let two processes resume one conversation and write over each other. A lease is a lock of the kernel's
on a file in the home: it needs no clean-up after a crash, and holds between processes as well as inside one.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from buzz_author.errors import BuzzError
from buzz_host.settings import Home


class SessionInUse(BuzzError):
    """Somebody else drives this session now."""


class Lease:
    """The right to drive one session, from `Lease.take` until `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, home: Home, session: str) -> Lease:
        """Take the lease of `session`. Raises `SessionInUse`, naming the process that holds it; `HomeError`, or another
        `BuzzError`, where the home cannot be written."""
        path = home.folder(home.writable_root() / "leases") / f"{session}.lock"
        try:
            return cls._taken(path, session)
        except OSError as error:
            raise BuzzError(
                f"{path}: the lease of the session cannot be written ({error.strerror}): nothing was started"
            ) from None

    @classmethod
    def _taken(cls, path: Path, session: str) -> Lease:
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(descriptor, path):
                    os.truncate(descriptor, 0)
                    os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
                    return cls(path, descriptor)
            except BlockingIOError:
                holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
                os.close(descriptor)
                raise SessionInUse(
                    f"session {session} is in use by process {holder}: wait until it ends, or start a new session"
                ) from None
            except BaseException:
                os.close(descriptor)
                raise
            # Its holder released it, and removed the file, between our opening and our locking.
            os.close(descriptor)

    def release(self) -> None:
        """Give the lease back; doing so again does nothing."""
        if self._descriptor >= 0:
            # Removed while still locked: whoever opened it meanwhile sees that the path is no longer this file.
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
