"""The stream in which the events of one turn reach whoever asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from buzz_host.sessions.events import SessionEvent


class EventStream(AsyncIterator[SessionEvent]):
    """Events in the order in which they happened, until the turn and all that was steered into it are at rest.

    Iterating raises what made the turn impossible, if something did. One reader at a time.
    """

    def __init__(self) -> None:
        self._events: asyncio.Queue[SessionEvent | None] = asyncio.Queue()
        self._error: BaseException | None = None
        self._ended = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether nothing more will come; events may still wait to be read."""
        return self._ended.is_set()

    def put(self, event: SessionEvent) -> None:
        """Add an event; for the session's actor."""
        self._events.put_nowait(event)

    def end(self) -> None:
        """Say that nothing more will come; for the session's actor."""
        if not self.ended:
            self._ended.set()
            self._events.put_nowait(None)

    def fail(self, error: BaseException) -> None:
        """End the stream with an error that its reader will see; for the session's actor."""
        if not self.ended:
            self._error = error
            self.end()

    async def at_end(self) -> None:
        """Wait until nothing more will come, reading nothing."""
        await self._ended.wait()

    async def __anext__(self) -> SessionEvent:
        if self.ended and self._events.empty():
            raise StopAsyncIteration
        event = await self._events.get()
        if event is not None:
            return event
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration
