"""What a session asks a person, from the moment it is asked until it is settled; and it is always settled (PRM-01).

The program's own requests and plugins' tools that the policy `ask` holds back are alike here: one event when it is
asked, one when it is settled, in between a person's answer, or a deadline. Several are open at once. Nobody waits for
the session's actor: an answer reaches whoever asked also while a turn is busy with something else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Final

import attrs

from buzz_author import events as native
from buzz_author.errors import BuzzError
from buzz_author.harness import HarnessError
from buzz_author.tools import GateDecision, ToolRequest
from buzz_host.sessions import events
from buzz_host.sessions.events import Decision, SettledBy
from buzz_host.sessions.program import Program
from buzz_host.sessions.streams import EventStream

# For handing an answer to a program that may not read any more.
HAND_OVER_DEADLINE_S: Final = 10.0
# So many ids are remembered for telling a late answer from a mistaken one.
SETTLED_KEPT: Final = 1000

log = logging.getLogger(__name__)


class NotAsked(BuzzError):
    """An answer that nobody waits for: it comes too late, or to a request that there never was."""


@attrs.define(eq=False)
class Asked:
    """A request. `program` waits for the answer, or the caller of a plugin's tool, by `decided`."""

    id: str
    plugin: str | None = None
    call: ToolRequest | None = None
    """What a plugin's tool is called with; None for a request of the program's."""
    program: Program | None = None
    native_id: str = ""
    questions: bool = False
    decided: asyncio.Future[GateDecision] | None = None
    turn: str | None = None
    stream: EventStream | None = None
    timer: asyncio.TimerHandle | None = None


class Requests:
    """The requests of one session. `answers` says whether anybody can be asked, `deadline_s` how long one waits."""

    def __init__(self, session: str, *, answers: bool, deadline_s: float, now: Callable[[], datetime]) -> None:
        self._session = session
        self._answers = answers
        self._deadline_s = deadline_s
        self._now = now
        self._open: dict[str, Asked] = {}
        self._settled: OrderedDict[str, SettledBy] = OrderedDict()
        self._handing: set[asyncio.Task[None]] = set()

    # Asking.

    def of_tool(self, call: ToolRequest, plugin: str | None) -> Asked:
        """A request for a call that waits in the host; `decided` gets the answer. Its time runs from now on."""
        asked = Asked(self._free(call.call), plugin, call, decided=asyncio.get_running_loop().create_future())
        self._admit(asked)
        return asked

    def tell(self, asked: Asked, stream: EventStream, turn: str) -> None:
        """Show the request of a call in the events of `turn`; nobody to ask: it is denied at once."""
        call = asked.call
        if asked.id not in self._open or call is None:
            return  # the caller gave up before it was told
        asked.stream, asked.turn = stream, turn
        stream.put(
            events.PermissionRequested(
                at=self._now(),
                session=self._session,
                turn=turn,
                request=asked.id,
                tool=call.name,
                plugin=asked.plugin,
                arguments=call.arguments,
                read_only=call.read_only,
            )
        )
        self._deny_if_nobody(asked)

    def of_program(
        self,
        event: native.PermissionRequested | native.QuestionAsked,
        program: Program | None,
        stream: EventStream,
        judged: GateDecision,
        plugin: str | None,
    ) -> None:
        """Take and show a request of the program's. What the policy decides is answered at once."""
        asked = Asked(
            self._free(event.request),
            plugin,
            program=program,
            native_id=event.request,
            questions=isinstance(event, native.QuestionAsked),
            turn=event.turn,
            stream=stream,
        )
        self._admit(asked)
        told = events.from_native(event, at=self._now(), session=self._session)
        match told:
            case events.PermissionRequested():
                stream.put(attrs.evolve(told, request=asked.id, plugin=plugin))
            case events.QuestionAsked():
                stream.put(attrs.evolve(told, request=asked.id))
            case _:
                pass
        if judged.verdict == "ask":
            self._deny_if_nobody(asked)
        else:
            self._settle(asked, judged.verdict, "policy", judged.reason)

    # Settling.

    async def answer(self, request: str, decision: Decision, reason: str | None, reply: str | None) -> None:
        """A person's answer. Raises `NotAsked` where it comes too late, or nothing of that name was asked; `BuzzError`
        for a question that is allowed and not replied to."""
        asked = self._open.get(request)
        if asked is None:
            by = self._settled.get(request)
            raise NotAsked(
                f"nothing is asked under the id {request!r} in this session"
                if by is None
                else f"the request {request!r} was settled already ({by}): the answer came too late"
            )
        if asked.questions and decision == "allow" and reply is None:
            raise BuzzError(f"the request {request!r} is a question: give a reply, or deny it")
        self._take(asked)
        why = reason or ("a person allowed it" if decision == "allow" else "a person denied it")
        if asked.program is None:
            self._finish(asked, decision, "person", why)
            return
        # In a task of its own: whoever answers may be cancelled, and the program still has to be told the whole.
        taken = self._hand(asked, decision, "person", why, reply)
        await asyncio.shield(taken)
        if self._settled.get(request) != "person":
            raise NotAsked(f"the program did not wait for the request {request!r} any more")

    def interrupt(self) -> None:
        """The turn is being stopped: nobody has to answer any more."""
        for asked in list(self._open.values()):
            self._settle(asked, "deny", "interrupt", "the turn was interrupted")

    def withdraw(self, turn: str | None, why: str) -> None:
        """`turn` has ended, or the program (None: all of its requests), with open requests: nobody waits any more."""
        for asked in list(self._open.values()):
            if turn is None or asked.turn == turn:
                self._take(asked)
                self._finish(asked, "deny", "withdrawn", why)

    def give_up(self, asked: Asked, why: str) -> None:
        """Nobody waits for `asked` any more, or nobody can be asked."""
        if self._open.get(asked.id) is asked:
            self._take(asked)
            self._finish(asked, "deny", "withdrawn", why)

    async def close(self) -> None:
        """The session is over: nothing stays open."""
        self.withdraw(None, "the session has ended")
        for task in list(self._handing):
            task.cancel()
        await asyncio.gather(*self._handing, return_exceptions=True)

    def _admit(self, asked: Asked) -> None:
        self._open[asked.id] = asked
        if self._answers:
            asked.timer = asyncio.get_running_loop().call_later(self._deadline_s, self._too_late, asked)

    def _too_late(self, asked: Asked) -> None:
        self._settle(asked, "deny", "deadline", f"nobody answered within {self._deadline_s:g} s")

    def _deny_if_nobody(self, asked: Asked) -> None:
        if not self._answers:
            self._settle(asked, "deny", "nobody", "nobody is there to answer")

    def _settle(self, asked: Asked, decision: Decision, by: SettledBy, reason: str) -> None:
        if self._open.get(asked.id) is not asked:
            return
        self._take(asked)
        if asked.program is None:
            self._finish(asked, decision, by, reason)
        else:
            self._hand(asked, decision, by, reason, None)

    def _take(self, asked: Asked) -> None:
        """From here on nobody else can settle it."""
        del self._open[asked.id]
        if asked.timer is not None:
            asked.timer.cancel()

    def _hand(
        self, asked: Asked, decision: Decision, by: SettledBy, reason: str, reply: str | None
    ) -> asyncio.Task[None]:
        """Give the answer to the program, beside everything else."""
        if by != "person":  # it holds whatever the program says to it, and nobody has to wait for that
            self._finish(asked, decision, by, reason)
        task = asyncio.get_running_loop().create_task(self._handed(asked, decision, by, reason, reply))
        self._handing.add(task)
        task.add_done_callback(self._handing.discard)
        return task

    async def _handed(self, asked: Asked, decision: Decision, by: SettledBy, reason: str, reply: str | None) -> None:
        taken = True
        try:
            if asked.program is not None:
                async with asyncio.timeout(HAND_OVER_DEADLINE_S):
                    await asked.program.answer(asked.native_id, decision, reason, reply)
        except (HarnessError, TimeoutError) as error:  # it withdrew the request meanwhile, or is gone
            log.info("session %s: an answer was not taken: %s", self._session, error)
            taken = False
        if by == "person":
            if taken:
                self._finish(asked, decision, by, reason)
            else:
                self._finish(asked, "deny", "withdrawn", "the program did not wait for it any more")

    def _finish(self, asked: Asked, decision: Decision, by: SettledBy, reason: str) -> None:
        """Tell how it went, and let go whoever waits in the host."""
        self._settled[asked.id] = by
        if len(self._settled) > SETTLED_KEPT:
            self._settled.popitem(last=False)
        if asked.stream is not None:
            asked.stream.put(
                events.PermissionSettled(
                    at=self._now(),
                    session=self._session,
                    turn=asked.turn,
                    request=asked.id,
                    decision=decision,
                    by=by,
                    reason=reason,
                )
            )
        if asked.decided is not None and not asked.decided.done():
            asked.decided.set_result(GateDecision(decision, reason, by))

    def _free(self, wanted: str) -> str:
        """`wanted`, or a name made of it that no request of this session has had."""
        name, number = wanted, 1
        while name in self._open or name in self._settled:
            number += 1
            name = f"{wanted}-{number}"
        return name
