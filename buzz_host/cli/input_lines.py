"""Standard input, line by line, for a loop: read only when somebody waits for a line, so that nothing is taken away
from whoever comes afterwards, and without a thread that could outlive the command.

On a terminal the kernel edits the line and shows what is typed; a line is here once Enter was pressed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import termios
from typing import Final

from buzz_author.errors import BuzzError

STDIN: Final = 0
CHUNK_BYTES: Final = 64 * 1024
# As long as a request to a running host may be.
LINE_MAX_BYTES: Final = 16 * 1024 * 1024


class InputLines:
    """The lines of standard input. One reader at a time; waiting may be cancelled, and loses nothing."""

    def __init__(self) -> None:
        self._octets = bytearray()
        self._ended = False
        self._read = 0

    async def next(self) -> str | None:
        """The next line without its line end; None at the end. Raises `BuzzError` for what is no UTF-8, or no line."""
        while (end := self._octets.find(b"\n")) < 0 and not self._ended:
            if len(self._octets) > LINE_MAX_BYTES:
                raise BuzzError(f"a line of standard input has more than {LINE_MAX_BYTES:,} bytes")
            await _readable()
            octets = os.read(STDIN, CHUNK_BYTES)
            self._ended = not octets
            self._octets += octets
        if end < 0 and not self._octets:
            return None
        line = bytes(self._octets[:end] if end >= 0 else self._octets)
        del self._octets[: end + 1 if end >= 0 else len(self._octets)]
        self._read += 1
        try:
            return line.decode("utf-8-sig" if self._read == 1 else "utf-8").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise BuzzError(
                f"line {self._read} of standard input is not UTF-8 (byte {error.start} is 0x{line[error.start]:02x})"
            ) from None

    def forget_typed(self) -> None:
        """Drop what was typed before it was asked for: it answers nothing."""
        self._octets.clear()
        with contextlib.suppress(termios.error):
            termios.tcflush(STDIN, termios.TCIFLUSH)


async def _readable() -> None:
    """Wait until standard input has something, or its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def notice() -> None:
        loop.remove_reader(STDIN)
        if not ready.done():
            ready.set_result(None)

    try:
        loop.add_reader(STDIN, notice)
    except PermissionError:  # a file, which is always ready
        return
    try:
        await ready
    finally:
        loop.remove_reader(STDIN)
