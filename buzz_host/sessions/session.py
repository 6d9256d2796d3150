"""The face of a running session for people's code: `turn`, `steer`, `answer`, `interrupt` (API-02)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from buzz_host.rehearsal import Rehearsal
from buzz_host.sessions.actor import SessionActor
from buzz_host.sessions.events import Decision
from buzz_host.sessions.streams import EventStream
from buzz_host.turns.compose import checked_message


class Session:
    """One conversation with an agent. Made by `Host.session`; its program starts with the first turn, or with it.

    `id` is the session's, for `resume`; `rehearsal` is the model server of a rehearsed session, with what it received.
    """

    def __init__(self, id: str, agent: str, harness: str, actor: SessionActor, rehearsal: Rehearsal | None) -> None:
        self.id = id
        self.agent = agent
        self.harness = harness
        self.rehearsal = rehearsal
        self._actor = actor

    @asynccontextmanager
    async def turn(self, message: str) -> AsyncIterator[EventStream]:
        """Send `message` as a turn and yield the stream of its events; turns that are asked for meanwhile wait.

        The stream ends when the turn, and all that was steered into it, is at rest. Leaving the block earlier
        interrupts the turn. Raises `BuzzError` for an empty message; iterating the stream raises what made the turn
        impossible, such as a full disk. A turn that the model or the program failed is no exception: it ends with a
        `turn_completed` event whose status is `failed`.
        """
        job = self._actor.submit(checked_message(message))
        try:
            yield job.stream
        finally:
            await self._actor.abandon(job)

    async def steer(self, message: str) -> str:
        """Hand `message` to the turn that runs; the id that it goes by in events and in the ledger.

        It is never lost: folded into the turn, a turn of its own after it, or sent as the next turn. Where no turn
        runs it becomes the next one.
        """
        return await self._actor.steer(checked_message(message))

    async def answer(
        self, request: str, decision: Decision, *, reason: str | None = None, reply: str | None = None
    ) -> None:
        """Answer a `permission_requested` or `question_asked`; `reply` is the answer to a question, or a JSON object of
        answers by question, and `reason` what the program is told of a denial.

        Raises `NotAsked` in one line for an answer that comes too late, or that nobody asked for; `BuzzError` for a
        question that is allowed without a reply.
        """
        await self._actor.answer(request, decision, reason, reply)

    async def interrupt(self) -> None:
        """Stop the turn that runs; it ends with the status `interrupted`."""
        await self._actor.interrupt()
