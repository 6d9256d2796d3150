"""A conversation of several turns as a face drives it: the same with a running host and in this process.

`Services.converse` hands a coroutine of the face what opens conversations, as many as it likes at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeVar

from buzz_host.services.session_calls import OpenSession
from buzz_host.sessions.turn_text import Event

T = TypeVar("T")


class Conversation(Protocol):
    """An open session. Every call raises `BuzzError` in one line; `HostGone` where the running host has ended."""

    id: str
    agent: str
    harness: str

    def turn(self, message: str) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Send `message` as a turn; its events, until all is at rest. Leaving it earlier interrupts the turn; what
        can still be told of its end is then in the iterator."""
        ...

    async def steer(self, message: str) -> str:
        """Hand `message` to the turn that runs; the id that it goes by."""
        ...

    async def interrupt(self) -> None:
        """Stop the turn that runs."""
        ...

    async def answer(
        self,
        request: str,
        decision: Literal["allow", "deny"],
        *,
        reason: str | None = None,
        reply: str | None = None,
    ) -> None:
        """Answer what was asked."""
        ...


class Opener(Protocol):
    """Opens conversations."""

    def open(self, opening: OpenSession) -> AbstractAsyncContextManager[Conversation]:
        """A conversation for as long as the block lasts; its program ends with it. Raises `BuzzError` in one line."""
        ...


# What a face does with conversations.
Talk = Callable[[Opener], Awaitable[T]]
