"""The host side of rehearsal: starts the server's process, knows where it listens, always collects it.

The process gets a session of its own and an environment without anybody's credentials. It ends when its standard
input does, so a killed host leaves none behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO

from buzz_host.rehearsal.record import RECORD_NAME, STDERR_NAME, remove_temporary
from buzz_host.rehearsal.recorded import RecordedRequest, RehearsalError, read_record

START_DEADLINE_S = 10.0
STOP_DEADLINE_S = 2.0
READY_LINE_MAX_BYTES = 64 * 1024
STDERR_SHOWN_CHARACTERS = 300
# What an interpreter may need to start and to find its libraries; nothing else of the environment goes along.
KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "TMPDIR", "LANG", "LC_ALL")
PACKAGES = ("buzz_host", "buzz_author", "attr", "attrs")


class Rehearsal:
    """A running rehearsal server (HAR-05). Made by `Rehearsal.start()` only.

    `url` is its base address, `record_path` the file of its record, `pid` its process.
    """

    def __init__(self, url: str, record_path: Path, pid: int, run: str) -> None:
        self.url = url
        self.record_path = record_path
        self.pid = pid
        self._run = run

    @classmethod
    @asynccontextmanager
    async def start(
        cls, record: Path | None = None, script: Path | None = None, folder: Path | None = None
    ) -> AsyncIterator[Rehearsal]:
        """Runs a server for as long as the `async with` block lasts.

        `record` is appended to, and stays; without it the record is a temporary file, gone at the end. `script`
        holds the answers, else the directives in messages do (docs/rehearsal.md). `folder` is where temporary files
        are: it is made, and goes at the end, be it that of the server when its host was killed (the system's
        temporary folder has one otherwise). Raises `RehearsalError` in one line for a file that cannot be used, or a
        server that is not ready within 10 s.
        """
        with _temporary(folder) as place:
            record_path = (record or place / RECORD_NAME).absolute()
            with (place / STDERR_NAME).open("w+b") as stderr:
                process = _spawn(record_path, script.absolute() if script else None, place, stderr)
                starting = asyncio.ensure_future(asyncio.to_thread(_ready, process, stderr))
                try:
                    ready = await asyncio.shield(starting)
                    yield cls(ready["url"], record_path, process.pid, ready["run"])
                finally:
                    await _ended(process, starting)

    def requests(self) -> list[RecordedRequest]:
        """The requests that this server received so far, read from the record on disk.

        Raises `RehearsalError` for a record that was changed, or that was temporary and is gone.
        """
        return read_record(self.record_path, run=self._run)


@contextmanager
def _temporary(folder: Path | None) -> Iterator[Path]:
    """A folder for as long as the block lasts, its owner's alone: what it holds is what was said to a model."""
    try:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="buzz-rehearsal-"))
        else:
            folder.mkdir(mode=0o700)
    except OSError as error:
        raise RehearsalError(f"{error.filename}: the rehearsal's folder cannot be made: {error.strerror}") from None
    try:
        yield folder.absolute()
    finally:
        remove_temporary(folder)


def _spawn(record: Path, script: Path | None, temporary: Path, stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "buzz_host.rehearsal", "--parent", str(os.getpid()), "--record", str(record)]
    command += ["--temporary", str(temporary)]
    if script is not None:
        command += ["--script", str(script)]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd="/",
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise RehearsalError(f"the rehearsal server cannot be started: {error.strerror}: {sys.executable}") from None


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    found = (importlib.util.find_spec(name) for name in PACKAGES)
    folders = dict.fromkeys(str(Path(spec.origin).parent.parent) for spec in found if spec and spec.origin)
    for installed in ("purelib", "platlib"):  # there anyway; named again it would stand before the standard library
        folders.pop(sysconfig.get_path(installed), None)
    return {**kept, "PYTHONPATH": os.pathsep.join(folders), "PYTHONUTF8": "1"}


def _ready(process: subprocess.Popen[bytes], stderr: IO[bytes]) -> dict[str, str]:
    """Waits for the server's one line; runs in a thread, at most for the deadline."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_DEADLINE_S
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise RehearsalError(f"the rehearsal server was not ready within {START_DEADLINE_S:g} s")
        octets = os.read(process.stdout.fileno(), READY_LINE_MAX_BYTES)
        if not octets or len(line) > READY_LINE_MAX_BYTES:
            raise RehearsalError(f"the rehearsal server ended before it was ready: {_last_words(stderr)}")
        line += octets
    said = json.loads(line)
    if "error" in said:
        raise RehearsalError(said["error"])
    return {"url": str(said["url"]), "run": str(said["run"])}


def _last_words(stderr: IO[bytes]) -> str:
    stderr.seek(0)
    lines = stderr.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")[:STDERR_SHOWN_CHARACTERS]


async def _ended(process: subprocess.Popen[bytes], starting: asyncio.Future[dict[str, str]]) -> None:
    """Ends the server and collects it, even when this task is cancelled meanwhile."""
    # the thread that waits for the ready line sees the end of the process; its pipe is closed only after that
    stopping = asyncio.gather(asyncio.to_thread(_stop, process), starting, return_exceptions=True)
    cancelled: asyncio.CancelledError | None = None
    while not stopping.done():
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError as error:
            cancelled = error
    if process.stdout is not None:
        process.stdout.close()
    if cancelled is not None:
        raise cancelled


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
