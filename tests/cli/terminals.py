"""Running `buzz` on a terminal of its own, to see what a person would."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping
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
