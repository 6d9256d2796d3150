"""Running `buzz serve` beside the commands of a test, and talking to its socket as any program could."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from tests.cli.commands import BUZZ, DEADLINE_S

READY_DEADLINE_S = 30.0


@attrs.frozen
class RunningHost:
    """A host that said that it is ready, and what it said."""

    process: subprocess.Popen[bytes]
    said: dict[str, Any]

    @property
    def socket(self) -> str:
        """Where it listens."""
        return str(self.said["socket"])

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, bytes]:
        """End it by a signal: its exit code, and what it wrote to stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, err


@contextmanager
def serving(environment: Mapping[str, str], work: Path, *options: str) -> Iterator[RunningHost]:
    """A host for as long as the block lasts; killed if the test does not end it."""
    process = subprocess.Popen(
        [*BUZZ, "serve", "--json", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=work,
        env=environment,
    )
    try:
        yield RunningHost(process, json.loads(_first_line(process)))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    assert process.stderr is not None
    line = b""
    until = time.monotonic() + READY_DEADLINE_S
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
        octets = os.read(process.stdout.fileno(), 65536) if readable else b""
        if not octets:
            process.kill()
            raise AssertionError(f"the host is not ready: {line!r}, {process.stderr.read().decode()}")
        line += octets
    return line


class Line:
    """A connection to a host, without any client of ours."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(path)
        self._read = self.socket.makefile("rb")

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Vanish."""
        with suppress(OSError):
            self._read.close()
        self.socket.close()

    def send(self, octets: bytes) -> None:
        """Bytes, as they are."""
        self.socket.sendall(octets)

    def request(self, call: str, id: object = 1, **arguments: object) -> None:
        """One request in good order."""
        self.send(json.dumps({"v": 1, "id": id, "call": call, "arguments": arguments}).encode() + b"\n")

    def line(self) -> dict[str, Any] | None:
        """The next line of the host; None where it has hung up."""
        try:
            octets = self._read.readline()
        except ConnectionResetError:
            return None
        return json.loads(octets) if octets else None

    def answer(self, id: object = 1) -> dict[str, Any]:
        """The line that ends the call `id`."""
        while (line := self.line()) is not None:
            if line.get("id") == id and "event" not in line:
                return line
        raise AssertionError(f"the host hung up before it answered {id}")

    def ask(self, call: str, **arguments: object) -> dict[str, Any]:
        """Request and answer."""
        self.request(call, **arguments)
        return self.answer()


def wait_until(true: Any, what: str, deadline_s: float = DEADLINE_S) -> None:
    """Fails when `true()` does not become so within the deadline."""
    until = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < until, f"never: {what}"
        time.sleep(0.02)
