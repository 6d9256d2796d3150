"""The services of a home, answered in this process: a host from the first call that needs one to the end.

Plugins are so started once for a command, however much it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from buzz_host.services.call import HomeCall, HostCall, TellingCall

if TYPE_CHECKING:
    from buzz_host.services.conversation import Talk
    from buzz_host.services.host import Host
    from buzz_host.services.session_calls import Interruptible, OpenSession
    from buzz_host.sessions.session import Session
    from buzz_host.sessions.streams import EventStream
    from buzz_host.sessions.turn_text import Event
    from buzz_host.settings import Home

T = TypeVar("T")
E = TypeVar("E")


class Local:
    """`Services` without a running host."""

    def __init__(self, home: Home, plugins: Sequence[Path | str] = ()) -> None:
        self._home = home
        self._plugins = plugins
        self._runner = asyncio.Runner()
        self._host: Host | None = None

    def ask(self, call: HostCall[T] | HomeCall[T]) -> T:
        """The answer to `call`."""
        return call.answer(self._home) if isinstance(call, HomeCall) else self._runner.run(self._asked(call))

    def follow(self, call: TellingCall[T, E], take: Callable[[E], None]) -> T:
        """The answer to `call`; `take` gets what it tells on the way."""
        return call.answer(self._home, take)

    def run(self, opening: OpenSession, message: str, take: Callable[[Event], None], stoppable: Interruptible) -> str:
        """One turn in a session of its own."""
        try:
            return self._runner.run(self._ran(opening, message, take, stoppable))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    def converse(self, talk: Talk[T]) -> T:
        """Sessions of several turns."""

        async def conversed() -> T:
            return await talk(_LocalOpener(await self._started()))

        try:
            return self._runner.run(conversed())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._runner:
            if self._host is not None:
                self._runner.run(self._host.__aexit__(None, None, None))

    async def _asked(self, call: HostCall[T]) -> T:
        return await call.answer(await self._started())

    async def _started(self) -> Host:
        from buzz_host.services.host import Host

        if self._host is None:
            host = Host(self._home.root, plugins=self._plugins)
            await host.__aenter__()
            self._host = host
        return self._host

    async def _ran(
        self, opening: OpenSession, message: str, take: Callable[[Event], None], stoppable: Interruptible
    ) -> str:
        async with opening.opened(await self._started()) as session:
            with stoppable(*_ways_to_stop(session)):
                events: EventStream | None = None
                try:
                    async with session.turn(message) as events:
                        async for event in events:
                            take(event)
                except asyncio.CancelledError:
                    # The turn was left, and is at rest now: how it ended is told all the same.
                    if events is not None and events.ended:
                        async for event in events:
                            take(event)
                    raise
            return session.id


class _LocalOpener:
    """Opens sessions of a host in this process."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def open(self, opening: OpenSession) -> AbstractAsyncContextManager[Session]:
        """As `Opener.open`."""
        return opening.opened(self._host)


def _ways_to_stop(session: Session) -> tuple[Callable[[], None], Callable[[], None]]:
    """Interrupt the turn of `session`, or leave it: cancel this task. Both may be called from a signal handler."""
    loop = asyncio.get_running_loop()
    command = asyncio.current_task()
    interrupting: list[asyncio.Task[None]] = []

    def interrupt() -> None:
        loop.call_soon_threadsafe(lambda: interrupting.append(loop.create_task(session.interrupt())))

    def leave() -> None:
        if command is not None:
            loop.call_soon_threadsafe(command.cancel)

    return interrupt, leave
