"""A program with its pipes: JSON lines in and out, the last words of its standard error, and its end.

One task reads; whoever writes is told when the program no longer reads. Nothing here knows a protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from buzz_author.framing import LINE_MAX_BYTES, LineFramer, LineTooLong, NotJson, decode_line, encode_line
from buzz_author.harness import HarnessError, Process, SessionHost
from buzz_author.json_values import JsonValue
from harnesses.stdio import faults

READ_BYTES: Final = 256 * 1024
WRITE_DEADLINE_S: Final = 30.0
STDERR_LINES: Final = 40
STDERR_LINE_BYTES: Final = 500
TAIL_CHARACTERS: Final = 2000
# The program's last words may come after its end.
_LAST_WORDS_S: Final = 0.2
# At its end of input a program finishes what it does; it is not waited for longer than this.
GRACE_S: Final = 1.5
_GRACE_SHARE: Final = 0.4
_LAST_WAIT_S: Final = 1.0


class LineChannel:
    """A running program that speaks JSON lines; made by `start`."""

    def __init__(self, title: str, process: Process, host: SessionHost, limit_bytes: int, log: logging.Logger) -> None:
        self.title: Final = title
        self._process = process
        self._host = host
        self._log = log
        self._framer = LineFramer(limit_bytes)
        self._writing = asyncio.Lock()
        self._last_words: deque[bytes] = deque(maxlen=STDERR_LINES)
        self._listening = asyncio.create_task(self._listen(), name=f"standard error of {title}")

    @classmethod
    async def start(
        cls,
        title: str,
        argv: Sequence[str],
        *,
        host: SessionHost,
        env: Mapping[str, str],
        cwd: Path,
        log: logging.Logger,
        limit_bytes: int = LINE_MAX_BYTES,
    ) -> LineChannel:
        """Start the program; `title` is its name for people. Raises `HarnessError` where it cannot be started."""
        try:
            process = await host.spawn(argv, env=env, cwd=cwd)
        except OSError as error:
            where = cwd if not cwd.is_dir() else argv[0]
            raise faults.refused(f"{title} cannot be started: {where}: {error.strerror or error}") from error
        return cls(title, process, host, limit_bytes, log)

    async def send(self, message: Mapping[str, object]) -> None:
        """Write one message. Raises `HarnessError` when the program is gone, or does not read for 30 s."""
        line = encode_line(message)
        async with self._writing:
            try:
                async with asyncio.timeout(WRITE_DEADLINE_S):
                    self._process.stdin.write(line)
                    await self._process.stdin.drain()
            except TimeoutError as error:
                # Half a line may be written: nothing that follows could be read.
                self._process.kill()
                raise HarnessError("timeout", f"{self.title} does not read its input") from error
            except (OSError, RuntimeError) as error:
                raise await self.died() from error

    async def messages(self) -> AsyncIterator[JsonValue]:
        """What the program says, until it closes its output; for one reader.

        A line that is no JSON is passed over. Raises `HarnessError` for a line that is too long.
        """
        while octets := await self._process.stdout.read(READ_BYTES):
            try:
                lines = self._framer.feed(octets)
            except LineTooLong as error:
                raise HarnessError("unknown", f"{self.title} sent what is not taken: {error}") from error
            for line in lines:
                try:
                    yield decode_line(line).value
                except NotJson as error:
                    self._log.debug("%s: a line was passed over: %s", self.title, error)

    async def died(self) -> HarnessError:
        """The fault of a program that is gone, with its last words."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WAIT_S):
                await self._process.wait()
        await asyncio.wait({self._listening}, timeout=_LAST_WORDS_S)
        return faults.died(self.title, self._process.returncode, self.last_words)

    @property
    def last_words(self) -> str:
        """The end of what the program wrote to standard error, at most 2,000 characters."""
        lines = (line.decode("utf-8", "replace").rstrip() for line in self._last_words)
        return "\n".join(line for line in lines if line)[-TAIL_CHARACTERS:]

    async def close(self, *, deadline_s: float) -> None:
        """End of input, a moment to finish, then the whole tree by force; all within `deadline_s` seconds."""
        begun = time.monotonic()
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.close()
        waiting = asyncio.ensure_future(self._process.wait())
        await asyncio.wait({waiting}, timeout=min(GRACE_S, deadline_s * _GRACE_SHARE))
        await self._host.end(deadline_s=max(deadline_s - (time.monotonic() - begun), 0.0))
        await asyncio.wait({waiting}, timeout=_LAST_WAIT_S)
        waiting.cancel()
        await asyncio.wait({self._listening}, timeout=_LAST_WORDS_S)
        self._listening.cancel()

    async def _listen(self) -> None:
        """Keep the end of standard error; a line of any length is read, and its beginning kept."""
        unfinished = b""
        with contextlib.suppress(OSError):
            while octets := await self._process.stderr.read(READ_BYTES):
                *lines, unfinished = (unfinished + octets).split(b"\n")
                self._last_words.extend(line[:STDERR_LINE_BYTES] for line in lines)
                unfinished = unfinished[:STDERR_LINE_BYTES]
        self._last_words.append(unfinished)
