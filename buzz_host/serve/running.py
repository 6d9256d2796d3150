"""`serve`: a host from its start to its end, everything in order (DESIGN, the home and its lock).

Started: the lock, the host with its plugins, the other faces, the socket, and then it is ready. Ended the other way
round, by SIGTERM, SIGINT or SIGHUP: turns are interrupted and recorded. A second signal, or a time that is over, ends
the process at once; the keepers of its programs then end those, and the next start finds the ledger whole.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_host import VERSION
from buzz_host.plugins.install.storing import sweep as sweep_installations
from buzz_host.serve.faces import Face, faces
from buzz_host.serve.listening import Listening
from buzz_host.serve.lock import ServeLock
from buzz_host.services.host import Host
from buzz_host.services.place import Place, socket_path
from buzz_host.settings import Home

# For the turns that run to come to their end; plugins, programs and the database have their own deadlines after that.
TURNS_DEADLINE_S: Final = 8.0
STOP_DEADLINE_S: Final = 25.0
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@attrs.frozen
class Serving:
    """A host that is ready."""

    home: Path
    pid: int
    socket: Path
    version: str = VERSION


def serve(home: Path | None, ready: Callable[[Serving], None], others: Sequence[Face] | None = None) -> None:
    """Run the host of `home` in the foreground, until a signal ends it; `ready` is called once it answers.

    `others` are faces beside the socket (None: those of every host). Raises `BuzzError` in one line where a host runs
    already, or the home cannot be used.
    """
    resolved = Home.resolve(home)
    resolved.writable_root()
    last_end = threading.Timer(STOP_DEADLINE_S, _end_at_once)
    last_end.daemon = True
    with ServeLock.take(resolved) as lock:
        try:
            asyncio.run(_serve(resolved, lock, ready, faces() if others is None else others, last_end.start))
        finally:
            last_end.cancel()


async def _serve(
    home: Home,
    lock: ServeLock,
    ready: Callable[[Serving], None],
    others: Sequence[Face],
    stops: Callable[[], None],
) -> None:
    stopping = _signals()
    path = socket_path(home)
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(Host(home.root))
        await host.sweep()
        await asyncio.to_thread(sweep_installations, host.home)
        _ = host.store  # a database that cannot be used is told now, not in the first turn
        for face in others:
            await _started(face, host)
            stack.push_async_callback(face.stop)
        listening = Listening(path, host)
        await listening.start()
        stack.push_async_callback(listening.stop, TURNS_DEADLINE_S)
        lock.tell(Place(os.getpid(), path))
        ready(Serving(home.root, os.getpid(), path))
        await stopping.wait()
        stops()


async def _started(face: Face, host: Host) -> None:
    try:
        await face.start(host)
    except OSError as error:
        raise BuzzError(f"{type(face).__name__} cannot listen ({error.strerror or error})") from None


def _signals() -> asyncio.Event:
    """Set by the first signal that ends a host; the second one ends the process as it would any other."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping.set()
        for number in handled:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    # What was ignored when we were started stays so: `nohup buzz serve &` outlives its terminal.
    handled = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, stop)
    return stopping


def _end_at_once() -> None:
    seconds = f"{STOP_DEADLINE_S:g}"
    print(f"buzz: the host did not come to its end within {seconds} s: it is ended at once", file=sys.stderr)
    os._exit(1)
