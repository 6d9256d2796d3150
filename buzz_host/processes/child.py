"""One program below its keeper, as the host holds it: streams, signals, its end.

Apart from `Children`, which starts and ends them: this is the `Process` of `buzz_author.harness`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from asyncio.subprocess import Process as AsyncioProcess
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Callable
from typing import Final

from buzz_host.processes import launcher as keeper

# One line of a program may have this many bytes (DESIGN 13); asyncio's own bound is 64 KiB.
LINE_MAX_BYTES: Final = 16 * 1024 * 1024


class Streams(SubprocessStreamProtocol):
    """asyncio's own, which says when the process ends: its `wait` is held up by whoever still holds a pipe open."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_exit: Callable[[], None]) -> None:
        super().__init__(limit=LINE_MAX_BYTES, loop=loop)
        self._on_exit = on_exit

    def process_exited(self) -> None:
        super().process_exited()
        self._on_exit()


class ChildProcess:
    """One program below its keeper: the `Process` of `buzz_author.harness`.

    `pid` is the keeper's; `terminate` reaches the program's process group, `kill` the whole tree. The return code is
    the program's own, negative for a signal.
    """

    def __init__(
        self,
        process: AsyncioProcess,
        transport: asyncio.SubprocessTransport,
        owner: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._process = process
        self._transport = transport
        self._loop = loop
        self._letting_go: asyncio.Task[None] | None = None
        self.owner = owner

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    @property
    def stdin(self) -> asyncio.StreamWriter:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def stderr(self) -> asyncio.StreamReader:
        assert self._process.stderr is not None
        return self._process.stderr

    async def wait(self) -> int:
        return await self._process.wait()

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(keeper.KILL_ALL_SIGNAL)

    async def let_go(self, deadline_s: float) -> None:
        """The program is dead: collect it, then give back the pipes; what was not read is lost."""
        if self._loop is asyncio.get_running_loop():
            await self._collected(deadline_s)
        else:
            with contextlib.suppress(RuntimeError):  # that loop is closed
                self._loop.call_soon_threadsafe(self._let_go_here, deadline_s)

    def _let_go_here(self, deadline_s: float) -> None:
        self._letting_go = self._loop.create_task(self._collected(deadline_s))

    async def _collected(self, deadline_s: float) -> None:
        # Closed before it is collected, a transport takes the exit status away from whoever waits for it.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), deadline_s)
        self._transport.close()

    def _send(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
