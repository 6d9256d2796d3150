"""The actor of a session: one task owns the program; everybody else posts commands and reads events.

Turns are serialised here. A message that is steered into a running turn is followed until it is settled, and one that
comes back unread is sent as the next turn, so that nothing a person said is lost (TRN-04, HAR-01, DESIGN 7). Each turn
stands in the ledger before it is sent, and each of its effects before anybody is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final
from uuid import uuid4

import attrs

from buzz_author import events as native
from buzz_author.errors import BuzzError
from buzz_author.harness import Harness, HarnessError, SessionSpec
from buzz_author.tools import GateDecision, ToolRequest
from buzz_host.sessions import events
from buzz_host.sessions.access import SessionAccess
from buzz_host.sessions.commands import (
    Abandon,
    Ask,
    Close,
    Command,
    Composer,
    FromProgram,
    Interrupt,
    Job,
    Overdue,
    Recorder,
    SessionClosed,
    Steer,
    refuse,
    resolve,
)
from buzz_host.sessions.events import Decision
from buzz_host.sessions.inbox import Inbox, Running
from buzz_host.sessions.program import Program
from buzz_host.sessions.requests import Requests
from buzz_host.sessions.slot import FORCE_DEADLINE_S, ProgramSlot
from buzz_host.sessions.streams import EventStream
from buzz_host.sessions.telling import started

CLOSE_DEADLINE_S: Final = 10.0
# A program that was asked to stop, and has not within this time, is ended: it is stopped itself, or hangs.
INTERRUPT_DEADLINE_S: Final = 5.0
# How long a request waits for a person's answer before it is denied.
PERMISSION_DEADLINE_S: Final = 120.0
# How long a consumer that leaves early waits for its interrupted turn to come to rest.
ABANDON_DEADLINE_S: Final = 15.0

log = logging.getLogger(__name__)


class SessionActor:
    """Runs one session. Make it, `start` it, post to it; `close` ends its program and its task."""

    def __init__(
        self,
        spec: SessionSpec,
        *,
        harness: Harness,
        access: SessionAccess,
        compose: Composer,
        record: Recorder,
        now: Callable[[], datetime],
        answers: bool = True,
        permission_deadline_s: float = PERMISSION_DEADLINE_S,
    ) -> None:
        self._spec = spec
        self._harness = harness
        self._access = access
        self._compose = compose
        self._record = record
        self._now = now
        self._carries_sections = harness.capabilities.carries_sections
        self._inbox = Inbox(self._shown_at_once)
        self._waiting: deque[Job] = deque()
        self._slot = ProgramSlot(spec, harness, access, self._said, record.native_id)
        self._requests = Requests(spec.session, answers=answers, deadline_s=permission_deadline_s, now=now)
        self._running: Running | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing: float | None = None
        self._last_turn: str | None = None

    # What others may ask.

    def start(self, *, program: bool = False) -> None:
        """Start the actor's task; the program itself starts with the first turn, or now, beside everything else."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"session {self._spec.session}")
        if program:
            self._slot.begin()

    def submit(self, message: str) -> Job:
        """Queue a person's message as a turn of its own."""
        job = Job(str(uuid4()), message, EventStream())
        self._post(job)
        return job

    async def steer(self, message: str) -> str:
        """Hand a message to the running turn, or queue it as the next one if none runs; the id that it goes by."""
        accepted: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._post(Steer(message, accepted))
        return await accepted

    async def interrupt(self) -> None:
        """Ask the program to stop what it does; the turn then ends as `interrupted`. Nothing runs: nothing happens."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._post(Interrupt(done))
        await done

    async def answer(self, request: str, decision: Decision, reason: str | None, reply: str | None) -> None:
        """A person's answer to a request. Raises `NotAsked` for one that is not open, or not any more."""
        await self._requests.answer(request, decision, reason, reply)

    async def ask(self, call: ToolRequest, plugin: str | None) -> GateDecision:
        """Ask a person about a call that waits in the host; asked by its task, which may be cancelled meanwhile.

        It waits for nothing but the answer: whatever the actor is busy with, the deadline runs.
        """
        asked = self._requests.of_tool(call, plugin)
        assert asked.decided is not None
        try:
            # What the program said before it called is told before this: its words are on their way to the inbox.
            await asyncio.sleep(0)
            try:
                self._post(Ask(asked))
            except SessionClosed as closed:
                self._requests.give_up(asked, str(closed))
            return await asked.decided
        finally:
            self._requests.give_up(asked, "the call was cancelled")

    async def abandon(self, job: Job) -> None:
        """Nobody reads this job's events any more: take it back, or interrupt it and wait until it is at rest."""
        if job.stream.ended or self._task is None or self._task.done():
            return
        self._post(Abandon(job))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(job.stream.at_end(), ABANDON_DEADLINE_S)

    async def close(self, deadline_s: float = CLOSE_DEADLINE_S) -> None:
        """End the program and the task. A turn that runs is ended with it and recorded so."""
        if self._task is None:
            return
        if not self._task.done():
            self._inbox.post(Close(deadline_s))
        await self._task

    def _post(self, command: Command) -> None:
        if self._task is None or self._task.done() or self._closing is not None:
            raise SessionClosed(f"session {self._spec.session} has ended: start or resume a session for the message")
        self._inbox.post(command)

    # The task.

    async def _run(self) -> None:
        try:
            while self._closing is None:
                if self._waiting:
                    await self._do(self._waiting.popleft())
                else:
                    await self._idle(await self._inbox.next())
        finally:
            await self._end_program(self._closing if self._closing is not None else CLOSE_DEADLINE_S)
            refuse(self._inbox.take_all(), self._waiting, SessionClosed(f"session {self._spec.session} has ended"))
            await self._requests.close()

    async def _idle(self, command: Command) -> None:
        match command:
            case Job():
                self._waiting.append(command)
            case Steer():
                # No turn is there to join. The message becomes the next one; its events are for whoever listens then.
                job = Job(str(uuid4()), command.message, EventStream())
                self._waiting.append(job)
                resolve(command.accepted, job.turn)
            case Interrupt():
                resolve(command.done, None)
            case Close():
                self._closing = command.deadline_s
            case FromProgram():
                await self._between_turns(command)
            case Ask():
                self._requests.give_up(command.asked, "no turn is running")
            case Abandon() | Overdue():
                pass

    async def _do(self, job: Job) -> None:
        """Carry one job to its end: its turn, what was steered into it, and what came back unread from that."""
        messages = deque([(job.turn, job.message)])
        running: Running | None = None
        try:
            while messages and self._closing is None:
                running = self._running = Running(job, messages[0][0])
                await self._begin(running, *messages.popleft())
                while not running.at_rest:
                    await self._during(running, await self._inbox.next())
                await self._stop_asking(running)
                messages.extend(running.returned if not running.abandoned else ())
        except Exception as error:
            # The ledger could not be written, or worse. The program may be in the middle of the turn, and its state is
            # not known any more: it is ended, and the next turn resumes the conversation.
            if not isinstance(error, BuzzError | OSError):
                log.exception("session %s: the turn could not be carried on", self._spec.session)
            await self._end_program(CLOSE_DEADLINE_S)
            if running is not None:
                await self._stop_asking(running)
                with contextlib.suppress(Exception):  # the ledger may be what failed
                    await self._after_the_end(running, HarnessError("unknown", f"the turn was given up: {error}"))
            job.stream.fail(error)
        else:
            job.stream.end()
        finally:
            self._running = None

    async def _begin(self, running: Running, turn_id: str, message: str) -> None:
        failure = await self._open_program(running)
        composed = await self._compose(turn_id=turn_id, message=message, steers=None)
        try:
            await self._record.turn_sent(composed)
        except BuzzError:
            composed.take_back()
            raise
        self._last_turn = turn_id
        running.open_turns.add(turn_id)
        # Before it is told: whoever is told may look at the program at once.
        sending = (
            asyncio.ensure_future(self._slot.program.send(composed.turn)) if self._slot.program is not None else None
        )
        running.job.stream.put(started(composed, self._spec.session, carries_sections=self._carries_sections))
        if sending is not None:
            try:
                stops = await self._inbox.unless_stopped(running.job, sending, INTERRUPT_DEADLINE_S)
            except HarnessError as error:
                failure = error
            else:
                if stops:  # half of it may be written: nothing that follows could be read
                    self._stopped(running, stops)
                    await self._end_by_force(running)
        if failure is not None:
            await self._happened(running, native.TurnEnded(turn_id, "failed", error=failure))
        elif self._slot.program is None and turn_id in running.open_turns:
            await self._happened(running, native.TurnEnded(turn_id, "interrupted"))

    async def _during(self, running: Running, command: Command) -> None:
        match command:
            case Job():
                self._waiting.append(command)
            case Steer():
                await self._steer_now(running, command)
            case Interrupt():
                self._interrupt_now(running)
                if running.asking is not None:
                    running.asking.add_done_callback(lambda _: resolve(command.done, None))
                else:
                    resolve(command.done, None)
            case Overdue():
                if command.turns & running.open_turns:
                    log.warning("session %s: the program did not stop in time, and is ended", self._spec.session)
                    await self._end_by_force(running)
            case Abandon():
                if command.job is running.job:
                    running.abandoned = True
                    if running.stopping:  # it was asked already: nobody waits any longer
                        await self._end_by_force(running)
                    else:
                        self._interrupt_now(running)
                elif command.job in self._waiting:
                    self._waiting.remove(command.job)
                    command.job.stream.end()
            case Close():
                self._closing = command.deadline_s
                await self._end_program(command.deadline_s, running)
            case Ask():
                self._requests.tell(command.asked, running.job.stream, running.turn)
            case FromProgram():
                if command.program is self._slot.program:
                    await self._happened(running, command.event)

    async def _steer_now(self, running: Running, command: Steer) -> None:
        """A steered message: a fresh snapshot, durable, then handed over; unsettled from here on (DESIGN 4, 7)."""
        turn_id = str(uuid4())
        if self._harness.capabilities.steer == "none":
            running.returned.append((turn_id, command.message))
            resolve(command.accepted, turn_id)
            return
        try:
            composed = await self._compose(turn_id=turn_id, message=command.message, steers=running.turn)
            await self._record.turn_sent(composed)
        except BuzzError as error:
            if not command.accepted.done():
                command.accepted.set_exception(error)
            return
        running.unsettled[turn_id] = command.message
        steering = (
            asyncio.ensure_future(self._slot.program.steer(composed.turn)) if self._slot.program is not None else None
        )
        resolve(command.accepted, turn_id)
        running.job.stream.put(started(composed, self._spec.session, carries_sections=self._carries_sections))
        try:
            if steering is None:
                raise HarnessError("process-died", "the program is gone")
            if stops := await self._inbox.unless_stopped(running.job, steering, INTERRUPT_DEADLINE_S):
                self._stopped(running, stops)
                await self._end_by_force(running)
        except HarnessError as error:
            log.info("session %s: a steer was not taken: %s", self._spec.session, error)
            await self._happened(running, native.SteerSettled(running.turn, turn_id, "returned"))

    def _interrupt_now(self, running: Running) -> None:
        """Ask the program to stop, beside everything else, and see to it that the turn ends in any case."""
        loop = asyncio.get_running_loop()
        if asked := frozenset(running.open_turns - running.stopping):
            running.stopping |= asked
            loop.call_later(INTERRUPT_DEADLINE_S, self._inbox.post, Overdue(asked))
        if self._slot.program is not None and (running.asking is None or running.asking.done()):
            running.asking = loop.create_task(self._slot.program.ask_to_stop())
        # Behind that: the program is to learn of the interrupt before it is refused what it asked for.
        self._requests.interrupt()

    async def _stop_asking(self, running: Running) -> None:
        """The turn is at rest: nothing of its interrupt may reach the next one."""
        if running.asking is not None:
            await asyncio.wait({running.asking}, timeout=INTERRUPT_DEADLINE_S if self._slot.program is not None else 0)
            running.asking.cancel()

    async def _end_by_force(self, running: Running) -> None:
        """End the program now; what it leaves open has been interrupted. The next turn resumes the conversation."""
        running.cut_off = "interrupted"
        await self._end_program(FORCE_DEADLINE_S, running)

    # What the program says.

    async def _happened(self, running: Running, event: native.HarnessEvent) -> None:
        """One event of the program: into the ledger where it belongs there, then told."""
        match event:
            case native.TurnStarted():
                running.open_turns.add(event.turn)
                await self._slot.keep_native_id()
                return
            case native.ToolCalled():
                event = called_tool = attrs.evolve(event, plugin=self._access.plugin_of(event.name) or event.plugin)
                running.calls[called_tool.call] = called_tool
            case native.ToolReturned():
                if called := running.calls.pop(event.call, None):
                    await self._record.tool(called, event)
            case native.SteerSettled():
                await self._settle(running, event)
            case native.Compacted():
                await self._record.compacted(event.turn or running.turn)
            case native.TurnEnded():
                if event.turn not in running.open_turns:
                    log.warning("session %s: a turn ended twice: %s", self._spec.session, event.turn)
                    return
                await self._slot.keep_native_id()
                await self._record.turn_ended(event)
                running.open_turns.discard(event.turn)
                self._requests.withdraw(event.turn, "the turn has ended")
            case native.PermissionRequested() | native.QuestionAsked():
                self._requested(running, event)
                return
            case native.SessionEnded():
                await self._after_the_end(running, event.error)
            case _:
                pass
        if told := events.from_native(event, at=self._now(), session=self._spec.session):
            running.job.stream.put(told)

    async def _settle(self, running: Running, event: native.SteerSettled) -> None:
        message = running.unsettled.pop(event.steer, None)
        if message is None:
            log.warning("session %s: a steer was settled twice: %s", self._spec.session, event.steer)
            return
        await self._record.steer_settled(event)
        if event.outcome == "own-turn" and event.turn == event.steer:
            running.open_turns.add(event.steer)
        elif event.outcome == "returned":
            # Under a new id: a program drops a message whose id it has seen.
            running.returned.append((str(uuid4()), message))

    def _requested(self, running: Running, event: native.PermissionRequested | native.QuestionAsked) -> None:
        """A request of the program's. Always answered: one that waited for ever would hold the turn (PRM-01)."""
        judged = GateDecision("ask", "a question is for a person", "policy")
        plugin = None
        if isinstance(event, native.PermissionRequested):
            plugin = self._access.plugin_of(event.tool)
            judged = self._access.judged(
                ToolRequest(event.request, event.tool, event.arguments, read_only=event.read_only)
            )
        self._requests.of_program(event, self._slot.program, running.job.stream, judged, plugin)

    async def _after_the_end(self, running: Running, error: HarnessError | None) -> None:
        """The program is gone. Whatever it left open is closed here, even if the harness broke its word."""
        self._slot.program = None
        self._requests.withdraw(None, "the program has ended")
        if running.cut_off == "interrupted":
            error = None
        elif error is None:
            error = HarnessError("process-died", "the program ended in the middle of a turn")
        for steer in list(running.unsettled):
            await self._happened(running, native.SteerSettled(running.turn, steer, "returned"))
        for turn in sorted(running.open_turns):
            await self._happened(running, native.TurnEnded(turn, running.cut_off, error=error))

    async def _between_turns(self, command: FromProgram) -> None:
        if command.program is not self._slot.program:
            return
        match command.event:
            case native.SessionEnded():
                self._slot.program = None
            case native.PermissionRequested() | native.QuestionAsked():
                await self._refuse(command.program, command.event.request)
            case native.Compacted() if self._last_turn is not None:
                await self._record.compacted(self._last_turn)
            case _:
                log.info("session %s: outside of a turn: %r", self._spec.session, command.event)

    async def _refuse(self, program: Program, request: str) -> None:
        with contextlib.suppress(HarnessError):
            await program.answer(request, "deny", "nobody is there to answer: no turn is running")

    # The program.

    async def _open_program(self, running: Running) -> HarnessError | None:
        """Start or resume the program if it is not there; the reason if that cannot be done.

        None without a program: somebody stopped the turn before there was one.
        """
        if self._slot.program is not None:
            return None
        try:
            self._stopped(running, await self._inbox.unless_stopped(running.job, self._slot.open(), 0.0))
        except HarnessError as error:
            return error
        return None

    def _stopped(self, running: Running, stops: Sequence[Interrupt | Abandon | Close]) -> None:
        """Take what stopped the turn before the program had it as carried out."""
        for each in stops:
            match each:
                case Interrupt():
                    resolve(each.done, None)
                case Abandon():
                    running.abandoned = True
                case Close():
                    self._closing = each.deadline_s

    def _said(self, program: Program, event: native.HarnessEvent) -> None:
        self._inbox.post(FromProgram(program, event))

    def _shown_at_once(self, command: Command) -> bool:
        """Whether `command` is a request for a person, which is shown although the actor waits for the program."""
        if isinstance(command, Ask) and self._running is not None:
            self._requests.tell(command.asked, self._running.job.stream, self._running.turn)
            return True
        return False

    async def _end_program(self, deadline_s: float, running: Running | None = None) -> None:
        self._requests.withdraw(None, "the program is being ended")  # it might wait for them before it ends
        program = await self._slot.end(deadline_s)
        if program is not None and running is not None and not running.at_rest:
            for event in self._inbox.take_events(program):
                await self._happened(running, event)
            if not running.at_rest:
                await self._after_the_end(running, HarnessError("process-died", "the session was closed"))
        self._slot.program = None
