"""A harness's session as the actor uses it: whatever somebody's code does, what comes out is a `HarnessError`.

A harness is a plugin, and its mistakes cost its own turns only; each is named with the harness, the call, and the line
(HAR-02, PLG-02).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, TypeVar

from buzz_author.events import HarnessEvent, SessionEnded
from buzz_author.harness import Harness, HarnessError, HarnessSession, SessionHost, SessionSpec
from buzz_author.turns import Turn
from buzz_host.sessions.harness_calls import harness_call

T = TypeVar("T")


class Program:
    """One running conversation, opened by `Program.open`. Every call raises `HarnessError` or nothing."""

    def __init__(self, harness: Harness, session: HarnessSession) -> None:
        self._harness = harness
        self._session = session

    @classmethod
    async def open(cls, harness: Harness, spec: SessionSpec, host: SessionHost) -> Program:
        """Start or resume the program."""
        with harness_call(harness, "open"):
            return cls(harness, await harness.open(spec, host))

    @property
    def native_id(self) -> str | None:
        """The program's own name of the conversation."""
        with harness_call(self._harness, "native_id"):
            return self._session.native_id

    async def send(self, turn: Turn) -> None:
        """Start a turn."""
        await self._call("send", lambda: self._session.send(turn))

    async def steer(self, turn: Turn) -> None:
        """Hand a message to the running turn."""
        await self._call("steer", lambda: self._session.steer(turn))

    async def interrupt(self) -> None:
        """Stop the running turn."""
        await self._call("interrupt", lambda: self._session.interrupt())

    async def ask_to_stop(self) -> None:
        """Stop the running turn, if the program can be told to; nothing is raised."""
        with contextlib.suppress(HarnessError):
            await self.interrupt()

    async def answer(
        self, request: str, decision: Literal["allow", "deny"], reason: str, reply: str | None = None
    ) -> None:
        """Answer a request of the program's; `reply` is what a person says to its question."""
        await self._call("answer", lambda: self._session.answer(request, decision, reason=reason, reply=reply))

    async def close(self, deadline_s: float) -> None:
        """End the program."""
        await self._call("close", lambda: self._session.close(deadline_s=deadline_s))

    async def events(self) -> AsyncIterator[HarnessEvent]:
        """Everything that the program says; always ends with `SessionEnded`, also when the harness's stream fails."""
        error: HarnessError | None = None
        try:
            with harness_call(self._harness, "events"):
                async for event in self._session.events():
                    yield event
                    if isinstance(event, SessionEnded):
                        return
        except HarnessError as fault:
            error = fault
        yield SessionEnded(error)

    async def _call(self, call: str, made: Callable[[], Awaitable[T]]) -> T:
        with harness_call(self._harness, call):
            return await made()
