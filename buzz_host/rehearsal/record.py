"""The record: one JSON line for each request, on disk before the request is answered.

Lines are plain ASCII, written by one `write` each under a lock of the file, so that they never interleave, not
even when two servers share a file. `docs/rehearsal.md` gives the format.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

VERSION = 1
RECORD_NAME = "record.jsonl"
STDERR_NAME = "stderr"
REDACTED = "[redacted]"
CREDENTIAL_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"})
CREDENTIAL_ENDINGS = ("-api-key", "-token", "-secret", "-authorization")


class Record:
    """An append-only file of JSON lines; used from all threads of a server."""

    def __init__(self, path: Path | None, run: str) -> None:
        """Opens (or makes, mode 0600) the file; `run` marks the lines of this server. Raises OSError.

        Without a path, requests are numbered and nothing is written.
        """
        self._run = run
        self._lock = threading.Lock()
        self._last = 0
        self._file: int | None = None
        if path is None:
            return
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            os.close(self._file)
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))

    def request(self, method: str, path: str, headers: Iterable[tuple[str, str]], octets: bytes, body: object) -> int:
        """Writes a request down and returns its number, from 1 on; raises OSError, then it is not recorded."""
        line: dict[str, object] = {"method": method, "path": path, "headers": redacted(headers)}
        try:
            line["raw"] = octets.decode("utf-8")
        except UnicodeDecodeError:
            line["raw_base64"] = base64.b64encode(octets).decode("ascii")
        line["sha256"] = hashlib.sha256(octets).hexdigest()
        line["body"] = body
        with self._lock:
            self._append({**self._head(), "n": self._last + 1, **line})
            self._last += 1
            return self._last

    def event(self, event: str, n: int | None, **fields: object) -> None:
        """Writes down what became of request `n` (None: one that was refused before it was a request)."""
        with self._lock:
            self._append({**self._head(), "event": event, "n": n, **fields})

    def _head(self) -> dict[str, object]:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"v": VERSION, "run": self._run, "at": at}

    def _append(self, line: Mapping[str, object]) -> None:
        if self._file is None:
            return
        try:
            written = json.dumps(line, separators=(",", ":"))
        except RecursionError:  # nested deeper than can be written; `raw` has it all
            written = json.dumps({**line, "body": None}, separators=(",", ":"))
        octets = memoryview(written.encode("ascii") + b"\n")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            end = os.lseek(self._file, 0, os.SEEK_END)
            try:
                while octets:
                    octets = octets[os.write(self._file, octets) :]
            except OSError:
                os.ftruncate(self._file, end)  # half a line would spoil the next one
                raise
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def remove_temporary(folder: Path) -> None:
    """Remove the folder of a server's temporary files, and nothing that is not ours; what is gone is no fault."""
    with contextlib.suppress(OSError):
        for name in (RECORD_NAME, STDERR_NAME):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def redacted(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers as received, names in their own spelling, without what could be a credential."""
    kept: dict[str, str] = {}
    for name, value in headers:
        low = name.lower()
        if low in CREDENTIAL_HEADERS or low.endswith(CREDENTIAL_ENDINGS):
            kept[name] = REDACTED
        else:
            kept[name] = f"{kept[name]}, {value}" if name in kept else value
    return kept
