"""The calls of a session: opened on a connection, and ended with it.

They are apart from the other calls because they are not answered alone: a session lasts from its opening to its end,
and turns, steering and interruptions mean the one that was opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, Literal

import attrs

if TYPE_CHECKING:
    from buzz_host.services.host import Host
    from buzz_host.sessions.session import Session


class SessionCall:
    """What the calls of a session share. `name` is the call's on the socket."""

    __slots__ = ()
    name: ClassVar[str]


@attrs.frozen(kw_only=True)
class OpenSession(SessionCall):
    """Open a session; its arguments are those of `Host.session`. The answer is an `OpenedSession`.

    `here` is the folder that the person is in: the working directory where neither the session to be resumed nor the
    agent's file names one. `record` is an absolute path. `answers` says whether the client answers what is asked:
    where it does not, requests are denied at once. `start` starts the program at once, and not with the first turn.
    """

    name = "session.open"
    here: str
    agent: str | None = None
    harness: str | None = None
    model_url: str | None = None
    rehearse: bool = False
    record: str | None = None
    resume: str | None = None
    answers: bool = True
    start: bool = False

    def opened(self, host: Host) -> AbstractAsyncContextManager[Session]:
        """The session, open on `host` for as long as the context lasts."""
        return host.session(
            agent=self.agent,
            harness=self.harness,
            model_url=self.model_url,
            rehearse=self.rehearse,
            record=self.record,
            resume=self.resume,
            here=self.here,
            answers=self.answers,
            start=self.start,
        )


@attrs.frozen
class OpenedSession:
    """A session that is open: its id, its agent, its harness."""

    session: str
    agent: str
    harness: str


@attrs.frozen(kw_only=True)
class TakeTurn(SessionCall):
    """Send a message as a turn; its events are told, and the answer, null, comes when all is at rest."""

    name = "session.turn"
    session: str
    message: str


@attrs.frozen(kw_only=True)
class SteerSession(SessionCall):
    """Hand a message to the turn that runs; the answer is the id that it goes by."""

    name = "session.steer"
    session: str
    message: str


@attrs.frozen(kw_only=True)
class AnswerRequest(SessionCall):
    """Answer a `permission_requested` or `question_asked` of the session; the answer is null."""

    name = "session.answer"
    session: str
    request: str
    decision: Literal["allow", "deny"]
    reason: str | None = None
    reply: str | None = None


@attrs.frozen(kw_only=True)
class InterruptSession(SessionCall):
    """Stop the turn that runs; the answer is null."""

    name = "session.interrupt"
    session: str


@attrs.frozen(kw_only=True)
class CloseSession(SessionCall):
    """End the session and its program; the answer is null. A session that is not open is no fault."""

    name = "session.close"
    session: str


_ALL: Final[tuple[type[SessionCall], ...]] = (
    OpenSession,
    TakeTurn,
    SteerSession,
    AnswerRequest,
    InterruptSession,
    CloseSession,
)
SESSION_CALLS: Final[Mapping[str, type[SessionCall]]] = MappingProxyType({each.name: each for each in _ALL})

# What a command does while its turn can be stopped: it is given two functions, one that interrupts the turn and one
# that leaves it, and calls them, from a signal handler if it likes, until the context ends.
Interruptible = Callable[[Callable[[], None], Callable[[], None]], AbstractContextManager[None]]
