"""Asking the guards (`when`) of standing instructions, so that none of them can cost more than its own instruction.

All guards of a turn run together in one hop to a worker thread, with an index that names the one that is running. One
that takes too long is left out and suspended, its thread is ended by an asynchronous exception, and the rest go on in
a fresh thread; the event loop never runs a guard, and the exit of the process waits for none (INS-04, INS-14).
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import inspect
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

import attrs

from buzz_author.errors import PluginFault
from buzz_author.instructions import AgentHandle, Guard
from buzz_author.turns import LeftOutReason
from buzz_host.plugins.faults import described, exception_fault
from buzz_host.plugins.threads import GivenUp, end_by_force

# A call that holds the interpreter lock keeps every thread of ours from running. The watchdog of `faulthandler` needs
# no lock; past this time it writes on standard error in which line of which plugin the process hangs.
LOCK_WATCHDOG_S: Final = 2.0
# Scheduling noise must not suspend an innocent guard: before one is given up, its thread gets this long to report.
GRACE_S: Final = 0.02
STDERR_FD: Final = 2


@attrs.frozen
class GuardLimits:
    """Seconds: when a guard is called slow, what each may take, and what one turn's together may take (INS-14)."""

    slow_s: float = 0.05
    each_s: float = 0.25
    together_s: float = 1.0


@attrs.frozen
class Question:
    """One guard to ask: whose it is, at which revision of its plugin, and the function."""

    plugin: str
    id: str
    revision: str
    when: Guard


@attrs.frozen
class Verdict:
    """The answer of one guard; `reason` is None exactly when it admitted."""

    reason: LeftOutReason | None
    detail: str = ""


@attrs.frozen
class Answers:
    """The verdicts in the order of the questions, and a fault for each guard that was slow or given up."""

    verdicts: tuple[Verdict, ...]
    faults: tuple[PluginFault, ...]


ADMITTED: Final = Verdict(None)
REFUSED: Final = Verdict("when-false")
SUSPENDED: Final = Verdict("suspended", "its guard took too long; it is asked again at the plugin's next revision")


class GuardRunner:
    """Asks guards for one host, and remembers which are suspended until their plugin's next revision."""

    def __init__(self, limits: GuardLimits | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._limits = limits or GuardLimits()
        self._clock = clock
        self._idle: list[_Worker] = []
        self._suspended: set[tuple[str, str, str]] = set()

    async def ask(self, questions: Sequence[Question], handle: Callable[[], AgentHandle]) -> Answers:
        """The verdict of each guard, in `together_s` plus `each_s` at most, whatever the guards do.

        `handle` makes what the guards are asked about. It must be such that a guard can change nothing of it but its
        class, which Python lets anybody assign; the next guard is then given a new one.
        """
        suspended = self._suspended
        asked = [each for each in questions if not suspended or (each.plugin, each.id, each.revision) not in suspended]
        if not asked:
            return Answers((SUSPENDED,) * len(questions), ())
        faults: list[PluginFault] = []
        verdicts = await self._verdicts(asked, handle, faults)
        if len(asked) == len(questions):
            return Answers(tuple(verdicts), tuple(faults))
        verdict_of = {(each.plugin, each.id): verdict for each, verdict in zip(asked, verdicts, strict=True)}
        return Answers(tuple(verdict_of.get((each.plugin, each.id), SUSPENDED) for each in questions), tuple(faults))

    async def _verdicts(
        self, questions: Sequence[Question], handle: Callable[[], AgentHandle], faults: list[PluginFault]
    ) -> list[Verdict]:
        """Ask `questions` in as many goes as it takes: each go ends with the last one, or with one that is given up."""
        verdicts: list[Verdict] = []
        must_end = self._clock() + self._limits.together_s
        with _watchdog:
            while len(verdicts) < len(questions):
                go = _Go(questions[len(verdicts) :], handle, self._limits, self._clock, must_end)
                worker = self._idle.pop() if self._idle else _Worker()
                worker.begin(go)
                if await go.finished():
                    self._idle.append(worker)
                else:
                    worker.end(go.given_up)
                verdicts += go.verdicts[: go.counted]
                faults += go.faults[: go.counted_faults]
                self._suspended |= go.suspended
        return verdicts


class _Go:
    """Guards on their way through one worker.

    The worker only ever appends its verdicts, so their number is the index of the guard that is running. When the loop
    gives that guard up, it fixes how many verdicts count; what the worker still appends then is never read.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        handle: Callable[[], AgentHandle],
        limits: GuardLimits,
        clock: Callable[[], float],
        must_end: float,
    ) -> None:
        self.verdicts: list[Verdict] = []
        self.faults: list[PluginFault] = []
        self.suspended: set[tuple[str, str, str]] = set()
        self.counted = 0
        self.counted_faults = 0
        self._questions = questions
        self._handle = handle
        self._limits = limits
        self._clock = clock
        self._must_end = must_end
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.Future[bool] = self._loop.create_future()
        self._began: float | None = None  # when the guard that is running was asked
        self._given_up: Guard | None = None

    def run(self) -> None:
        """Ask one guard after the other; on the worker's thread."""
        clock, verdicts, agent = self._clock, self.verdicts, self._handle()
        kind = type(agent)
        slow_s, must_end = self._limits.slow_s, self._must_end
        now = clock()
        for question in self._questions:
            if now > must_end:
                self._leave_out_the_rest()
                break
            self._began = began = now
            verdict, error = _judge(question, agent)
            if self._given_up is not None:
                return
            if type(agent) is not kind:
                agent = self._handle()
            now = clock()
            if error is not None:
                self.faults.append(exception_fault(question.plugin, "when", error))
            if now - began > slow_s:
                verdict = self._slow(question, verdict, now - began)
            verdicts.append(verdict)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for this turn any more
            self._loop.call_soon_threadsafe(self._set, True)

    async def finished(self) -> bool:
        """Whether the worker came to the end; False once the guard that it was at has been given up."""
        patience_s = self._limits.each_s + GRACE_S
        timer = self._loop.call_later(patience_s, self._set, False)
        while not await self._wake:
            self._wake = self._loop.create_future()
            began, index = self._began, len(self.verdicts)
            took_s = self._clock() - began if began is not None else 0.0
            if took_s >= patience_s and self._began == began and index < len(self._questions):
                self._given_up = self._questions[index].when
                self.counted_faults = len(self.faults)
                self.verdicts[index:] = [self._too_long(self._questions[index], took_s, self.suspended)]
                self.counted, self.counted_faults = index + 1, self.counted_faults + 1
                return False
            timer = self._loop.call_later(patience_s - took_s + GRACE_S, self._set, False)
        timer.cancel()
        self.counted, self.counted_faults = len(self.verdicts), len(self.faults)
        return True

    @property
    def given_up(self) -> Guard:
        """The guard that was given up; only after `finished` said False."""
        assert self._given_up is not None
        return self._given_up

    def _set(self, finished: bool) -> None:
        if not self._wake.done():
            self._wake.set_result(finished)

    def _slow(self, question: Question, verdict: Verdict, took_s: float) -> Verdict:
        # It came back after its time, so it held the interpreter lock, and the loop could not give it up.
        if took_s > self._limits.each_s:
            return self._too_long(question, took_s, self.suspended)
        self.faults.append(
            PluginFault(
                question.plugin,
                "when",
                f"the guard of instructions '{question.id}' took {took_s * 1000:.0f} ms: every turn waits for it",
            )
        )
        return verdict

    def _too_long(self, question: Question, took_s: float, suspended: set[tuple[str, str, str]]) -> Verdict:
        allowed = f"{self._limits.each_s * 1000:.0f} ms"
        suspended.add((question.plugin, question.id, question.revision))
        self.faults.append(
            PluginFault(
                question.plugin,
                "when",
                f"the guard of instructions '{question.id}' was given up after {took_s * 1000:.0f} ms ({allowed} are "
                "allowed); the instructions are suspended until the plugin's next revision",
            )
        )
        return Verdict("when-timeout", f"its guard took longer than {allowed}")

    def _leave_out_the_rest(self) -> None:
        verdict = Verdict(
            "when-timeout", f"not asked: the guards of this turn had taken {self._limits.together_s:g} s together"
        )
        self.verdicts += [verdict] * (len(self._questions) - len(self.verdicts))


class _Worker:
    """A daemon thread that runs one go after the other, until it is ended or nobody holds it any more."""

    def __init__(self) -> None:
        self._goes: SimpleQueue[_Go | None] = SimpleQueue()
        self._thread = threading.Thread(target=_work, args=(self._goes,), name="buzz-guards", daemon=True)
        self._thread.start()

    def begin(self, go: _Go) -> None:
        self._goes.put(go)

    def end(self, guard: Guard) -> None:
        """Interrupt `guard`, which is running, and let the thread go; waits for nothing."""
        self._goes.put(None)
        end_by_force(self._thread, getattr(guard, "__module__", None) or "")

    def __del__(self) -> None:
        self._goes.put(None)


def _work(goes: SimpleQueue[_Go | None]) -> None:
    with contextlib.suppress(GivenUp):
        while (go := goes.get()) is not None:
            go.run()
            del go


class _LockWatchdog:
    """Arms `faulthandler`'s watchdog while guards run; there is one in a process, so overlapping turns share it."""

    def __init__(self) -> None:
        self._watched = 0

    def __enter__(self) -> None:
        self._watched += 1
        faulthandler.dump_traceback_later(LOCK_WATCHDOG_S, file=STDERR_FD)

    def __exit__(self, *_: object) -> None:
        self._watched -= 1
        if self._watched == 0:
            faulthandler.cancel_dump_traceback_later()


_watchdog = _LockWatchdog()


def _judge(question: Question, agent: AgentHandle) -> tuple[Verdict, BaseException | None]:
    """What one guard says. Only the literal `True` admits; whatever it raises is a value here (INS-04)."""
    try:
        answer: object = question.when(agent)
        if answer is True:
            return ADMITTED, None
        if answer is False:
            return REFUSED, None
        if inspect.isawaitable(answer):
            _close(answer)
            return Verdict("when-async", "it returned an awaitable; a guard must be a plain function"), None
        return Verdict("when-not-true", f"it returned a value of type {type(answer).__name__}, not True"), None
    except GivenUp:
        raise
    except BaseException as error:
        return Verdict("when-raised", described(question.plugin, error)), error


def _close(awaitable: object) -> None:
    # A coroutine that is closed before it began leaves no warning; a future has no `close`, but can be cancelled.
    try:
        for name in ("close", "cancel"):
            method = getattr(awaitable, name, None)
            if callable(method):
                method()
                return
    except GivenUp:
        raise
    except BaseException:
        # An awaitable of the plugin's own: how it ends does not change the verdict.
        return
