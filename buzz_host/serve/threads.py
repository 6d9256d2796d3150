"""Work that may block, on a thread of its own for as long as it takes.

Not on the loop's pool: its few threads are shared with what the plugins need, and one client that reads slowly must not
hold up the turns of all others. The threads are daemons: a stuck disk does not keep the host from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def on_a_thread(work: Callable[[], T]) -> T:
    """What `work` gives, or raises. Where the waiting is cancelled the work goes on, and what it gives is lost."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="call", daemon=True).start()
    return await answer
