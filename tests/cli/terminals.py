"""Running `buzz` on a terminal of its own, to see what a person would."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.cli.commands import BUZZ, DEADLINE_S


def on_a_terminal(*arguments: str, environment: Mapping[str, str], work: Path, columns: int = 80) -> tuple[int, str]:
    """The exit code, and all that the command wrote to a terminal of `columns` columns, its line ends as `\\n`."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        process = subprocess.Popen(
            [*BUZZ, *arguments], stdin=follower, stdout=follower, stderr=follower, cwd=work, env=environment
        )
        os.close(follower)
        shown = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # nobody has the terminal open any more
                break
            if not piece:
                break
            shown += piece
        return process.wait(DEADLINE_S), shown.decode("utf-8").replace("\r\n", "\n")
    finally:
        os.close(leader)


# Shorter than the limit of a test, so that a failure shows the screen.
SHOWN_DEADLINE_S = 30.0


class Typing:
    """A command in front of somebody who types, and sees what is on the screen."""

    def __init__(self, process: subprocess.Popen[bytes], leader: int) -> None:
        self.process = process
        self.seen = ""
        """All that was shown so far, what was typed included, its line ends as `\\n`."""
        self._leader = leader
        self._octets = b""
        self._read_to = 0

    def type(self, text: str) -> None:
        """Press keys; `\\x03` is Ctrl-C, `\\x04` Ctrl-D."""
        os.write(self._leader, text.encode())

    def until(self, text: str) -> str:
        """Wait until `text` is shown behind what was waited for before; what was shown since then."""
        end = time.monotonic() + SHOWN_DEADLINE_S
        while (found := self.seen.find(text, self._read_to)) < 0:
            assert self._more(end), f"it ended without {text!r}: {self.seen!r}"
        begun, self._read_to = self._read_to, found + len(text)
        return self.seen[begun : self._read_to]

    def end(self) -> int:
        """Wait until it ends; its exit code. Everything that it still shows is in `seen`."""
        end = time.monotonic() + SHOWN_DEADLINE_S
        while self._more(end):
            pass
        return self.process.wait(DEADLINE_S)

    def _more(self, end: float) -> bool:
        readable, _, _ = select.select([self._leader], [], [], max(0.0, end - time.monotonic()))
        assert readable, f"nothing more is shown: {self.seen!r}"
        try:
            piece = os.read(self._leader, 65536)
        except OSError:  # nobody has the terminal open any more
            return False
        self._octets += piece
        self.seen = self._octets.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(piece)


@contextmanager
def typing(*arguments: str, environment: Mapping[str, str], work: Path) -> Iterator[Typing]:
    """The command on a terminal that it is in charge of, so that Ctrl-C is its signal; killed if the test fails."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    process = subprocess.Popen(
        [*BUZZ, *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=work,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(follower)
    try:
        yield Typing(process, leader)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(DEADLINE_S)
        os.close(leader)
