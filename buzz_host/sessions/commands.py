"""What a session's actor is made to work with: what it is asked, and what it asks of the rest of the host.

Apart from the actor, so that the actor's module is the logic alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol, TypeAlias, TypeVar

import attrs

from buzz_author import events as native
from buzz_author.errors import BuzzError, PluginFault
from buzz_author.turns import Turn
from buzz_host.sessions.program import Program
from buzz_host.sessions.requests import Asked
from buzz_host.sessions.streams import EventStream

T = TypeVar("T")


class SessionClosed(BuzzError):
    """The session has ended and takes nothing more."""


@attrs.frozen
class ComposedTurn:
    """A turn with the faults that its snapshot met. `at` is the time that the ledger and the listeners are told alike;
    `take_back` returns the notes that the turn took, if it is never sent."""

    turn: Turn
    at: datetime
    faults: tuple[PluginFault, ...]
    take_back: Callable[[], None]


class Composer(Protocol):
    """Takes a fresh snapshot and composes a turn from it, with the id that is given."""

    async def __call__(self, *, turn_id: str, message: str, steers: str | None) -> ComposedTurn: ...


class Recorder(Protocol):
    """Writes into the ledger; each call returns once that is durable."""

    async def turn_sent(self, composed: ComposedTurn) -> None: ...
    async def steer_settled(self, event: native.SteerSettled) -> None: ...
    async def tool(self, called: native.ToolCalled, returned: native.ToolReturned) -> None: ...
    async def compacted(self, turn: str) -> None: ...
    async def turn_ended(self, event: native.TurnEnded) -> None: ...
    async def native_id(self, native_id: str) -> None: ...


@attrs.frozen(eq=False)
class Job:
    """A person's message on its way to becoming the turn with the id `turn`, and the stream that tells how it goes."""

    turn: str
    message: str
    stream: EventStream


@attrs.frozen(eq=False)
class Steer:
    """A message for the running turn; `accepted` gets the id that it goes by."""

    message: str
    accepted: asyncio.Future[str]


@attrs.frozen(eq=False)
class Interrupt:
    """Stop what runs; `done` once the program was asked."""

    done: asyncio.Future[None]


@attrs.frozen(eq=False)
class Overdue:
    """The time is over in which the turns that were interrupted should have ended."""

    turns: frozenset[str]


@attrs.frozen(eq=False)
class Abandon:
    """Nobody reads the events of `job` any more."""

    job: Job


@attrs.frozen(eq=False)
class Close:
    """End the program and the actor."""

    deadline_s: float


@attrs.frozen(eq=False)
class Ask:
    """A person is to be asked about the call of a tool that waits in the host."""

    asked: Asked


@attrs.frozen(eq=False)
class FromProgram:
    """What a program said, with the program, so that the words of one that is gone are known as such."""

    program: Program
    event: native.HarnessEvent


Command: TypeAlias = Job | Steer | Interrupt | Overdue | Abandon | Close | Ask | FromProgram


def resolve(future: asyncio.Future[T], value: T) -> None:
    """Give `future` its value, unless whoever waited was cancelled meanwhile."""
    if not future.done():
        future.set_result(value)


def refuse(commands: Iterable[Command], waiting: deque[Job], closed: SessionClosed) -> None:
    """Tell everybody whose command was not carried out, and every job that still waits, that the session is closed."""
    for command in commands:
        match command:
            case Job():
                waiting.append(command)
            case Steer() if not command.accepted.done():
                command.accepted.set_exception(closed)
            case Interrupt():
                resolve(command.done, None)
            case _:  # what a person is to be asked is settled with all requests
                pass
    for job in waiting:
        job.stream.fail(closed)
    waiting.clear()
