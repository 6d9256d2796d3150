"""Guards: only the literal True admits, and nothing that a guard does costs more than its own instruction."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from buzz_author.instructions import AgentHandle
from buzz_host.agents.handle import TurnAgent
from buzz_host.turns.guards import Answers, GuardLimits, GuardRunner, Question

pytestmark = pytest.mark.anyio


def handle() -> AgentHandle:
    return TurnAgent("main", "core", "claude", None, Path("/somewhere"), lambda: ()).for_guard()


def question(when: Callable[..., Any], id: str = "one", revision: str = "r1") -> Question:
    return Question("plugin", id, revision, when)


async def ask(*guards: Callable[..., Any], runner: GuardRunner | None = None) -> Answers:
    questions = [question(guard, f"g{number}") for number, guard in enumerate(guards)]
    return await (runner or GuardRunner()).ask(questions, handle)


def reasons(answers: Answers) -> list[str | None]:
    return [each.reason for each in answers.verdicts]


def yes(_: AgentHandle) -> bool:
    return True


def spin(_: AgentHandle) -> bool:
    while True:
        pass


class UntruthfulError(Exception):
    pass


class Awkward:
    def __bool__(self) -> bool:
        raise UntruthfulError

    def __repr__(self) -> str:
        raise UntruthfulError


def raise_it(error: BaseException) -> Callable[[AgentHandle], bool]:
    def guard(_: AgentHandle) -> bool:
        raise error

    return guard


async def coroutine(_: AgentHandle) -> bool:
    return True


class Later:
    closed = False

    def __await__(self) -> Any:
        raise AssertionError("awaited")

    def close(self) -> None:
        self.closed = True


@pytest.mark.req("INS-04")
async def test_only_the_literal_true_admits() -> None:
    answers = await ask(yes, lambda _: False, lambda _: 1, lambda _: "yes", lambda _: None, lambda _: Awkward())
    assert reasons(answers) == [None, "when-false", *["when-not-true"] * 4]
    assert answers.faults == ()
    assert "int" in answers.verdicts[2].detail


@pytest.mark.req("INS-04")
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Awkward])
async def test_whatever_a_guard_raises_leaves_out_that_one_alone(error: Any) -> None:
    answers = await ask(yes, raise_it(error), yes)
    assert reasons(answers) == [None, "when-raised", None]
    (fault,) = answers.faults
    assert (fault.plugin, fault.phase) == ("plugin", "when")
    assert "raise_it" in fault.traceback or "guard" in fault.traceback


@pytest.mark.req("INS-04")
async def test_an_awaitable_is_closed_and_never_awaited(recwarn: pytest.WarningsRecorder) -> None:
    later = Later()
    answers = await ask(coroutine, lambda _: later, yes)
    assert reasons(answers) == ["when-async", "when-async", None]
    assert later.closed
    assert not recwarn.list


class Stubborn:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __await__(self) -> Any:
        raise AssertionError("awaited")

    def close(self) -> None:
        raise self.error


@pytest.mark.req("INS-04")
@pytest.mark.parametrize("error", [ValueError("not now"), SystemExit(3), GeneratorExit()])
async def test_an_awaitable_that_will_not_be_closed_is_one_all_the_same(error: BaseException) -> None:
    answers = await ask(lambda _: Stubborn(error), yes)
    assert reasons(answers) == ["when-async", None]
    assert answers.faults == ()


@pytest.mark.req("INS-04")
def test_an_async_guard_leaves_nothing_on_stderr() -> None:
    done = run_program(
        """
        async def guard(agent):
            return True

        answers = asyncio.run(GuardRunner().ask([Question("p", "i", "r", guard)], handle))
        print(answers.verdicts[0].reason)
        """
    )
    assert (done.stdout, done.stderr, done.returncode) == ("when-async\n", "", 0)


@pytest.mark.req("INS-14")
async def test_a_guard_that_spins_is_ended_named_left_out_and_suspended() -> None:
    runner = GuardRunner()
    questions = [question(yes, "a"), question(spin, "b"), question(yes, "c")]
    answers = await runner.ask(questions, handle)
    assert reasons(answers) == [None, "when-timeout", None]
    (fault,) = answers.faults
    assert "'b'" in fault.message
    assert "given up" in fault.message
    again = await runner.ask(questions, handle)
    assert reasons(again) == [None, "suspended", None]
    assert again.faults == ()
    changed = await runner.ask([question(yes, "b", revision="r2")], handle)
    assert reasons(changed) == [None]
    assert await gone(lambda: not guard_threads_that_spin())


@pytest.mark.req("INS-14")
async def test_a_guard_that_swallows_its_end_delays_nobody() -> None:
    stop = threading.Event()

    def stubborn(_: AgentHandle) -> bool:
        while not stop.is_set():
            try:
                while not stop.is_set():
                    pass
            except BaseException:
                pass
        return True

    try:
        assert reasons(await ask(yes, stubborn, yes)) == [None, "when-timeout", None]
    finally:
        stop.set()


@pytest.mark.req("INS-14")
async def test_a_guard_that_sleeps_is_left_out_too() -> None:
    done = threading.Event()

    def sleeps(_: AgentHandle) -> bool:
        done.wait(3)
        return True

    assert reasons(await ask(sleeps, yes)) == ["when-timeout", None]
    done.set()


@pytest.mark.req("INS-14")
async def test_a_slow_guard_is_admitted_and_named() -> None:
    def slow(_: AgentHandle) -> bool:
        time.sleep(0.08)
        return True

    answers = await ask(slow)
    assert reasons(answers) == [None]
    assert "took" in answers.faults[0].message


@pytest.mark.req("INS-14")
async def test_together_they_have_a_bound_and_the_rest_is_not_suspended() -> None:
    runner = GuardRunner(GuardLimits(slow_s=1.0, each_s=1.0, together_s=0.05))

    def takes_some_time(_: AgentHandle) -> bool:
        time.sleep(0.06)
        return True

    questions = [question(takes_some_time, "a"), question(yes, "b"), question(yes, "c")]
    answers = await runner.ask(questions, handle)
    assert reasons(answers) == [None, "when-timeout", "when-timeout"]
    assert "not asked" in answers.verdicts[1].detail
    assert reasons(await runner.ask(questions[1:], handle)) == [None, None]


@pytest.mark.req("INS-14")
def test_a_guard_that_spins_for_ever_does_not_hold_up_the_exit() -> None:
    done = run_program(
        """
        def stubborn(agent):
            while True:
                try:
                    while True:
                        pass
                except BaseException:
                    pass

        answers = asyncio.run(GuardRunner().ask([Question("p", "i", "r", stubborn)], handle))
        print(answers.verdicts[0].reason)
        """
    )
    assert (done.stdout, done.returncode) == ("when-timeout\n", 0)
    assert "Traceback" not in done.stderr


@pytest.mark.req("INS-14")
def test_a_call_that_holds_the_interpreter_lock_is_named_by_a_watchdog() -> None:
    # A regular expression that backtracks holds the lock: no thread of ours can run, only the watchdog speaks.
    done = run_program(
        """
        import re

        def holds_the_lock(agent):
            return bool(re.match(r"(a+)+$", "a" * 26 + "b"))

        from buzz_host.turns import guards
        guards.LOCK_WATCHDOG_S = 0.3
        answers = asyncio.run(GuardRunner().ask([Question("p", "i", "r", holds_the_lock)], handle))
        print(answers.verdicts[0].reason)
        """
    )
    assert done.stdout == "when-timeout\n"
    assert "in holds_the_lock" in done.stderr


@pytest.mark.req("INS-09", "INS-14")
async def test_a_guard_cannot_change_what_others_see() -> None:
    def writes(agent: AgentHandle) -> bool:
        for change in (
            lambda: object.__setattr__(agent, "name", "other"),
            lambda: setattr(agent, "name", "other"),
            lambda: agent.__dict__.update(name="other"),
            lambda: agent.__class__.__setattr__(agent, "name", "other"),
        ):
            with pytest.raises((AttributeError, TypeError)):
                change()
        return True

    def becomes_another(agent: AgentHandle) -> bool:
        class Other(TurnAgent):
            __slots__ = ()

            @property
            def name(self) -> str:
                return "other"

        agent.__class__ = Other  # type: ignore[assignment]
        return True

    def sees_main(agent: AgentHandle) -> bool:
        return agent.name == "main"

    assert reasons(await ask(writes, becomes_another, sees_main)) == [None, None, None]


@pytest.mark.req("INS-09")
async def test_a_guard_that_asks_for_the_set_it_decides_on_raises() -> None:
    answers = await ask(lambda agent: bool(agent.instructions()) or True, yes)
    assert reasons(answers) == ["when-raised", None]
    assert "when" in answers.verdicts[0].detail


@pytest.mark.req("INS-14")
async def test_turns_at_the_same_time_do_not_mix_their_verdicts() -> None:
    runner = GuardRunner()

    def only(name: str) -> Awaitable[Answers]:
        guards = [lambda _, mine=mine: mine == name for mine in ("x", "y", "z")]
        return runner.ask([question(guard, f"{name}{at}") for at, guard in enumerate(guards)], handle)

    found = await asyncio.gather(*(only(name) for name in ("x", "y", "z") * 20))
    for answers, name in zip(found, ("x", "y", "z") * 20, strict=True):
        assert reasons(answers) == [None if each == name else "when-false" for each in ("x", "y", "z")]


async def gone(condition: Callable[[], bool], deadline_s: float = 5.0) -> bool:
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.01)
    return True


def guard_threads_that_spin() -> list[str]:
    frames = sys._current_frames()
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.ident in frames and frames[thread.ident].f_code is spin.__code__
    ]


def run_program(text: str) -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(
        """
            import asyncio
            from pathlib import Path
            from buzz_host.agents.handle import TurnAgent
            from buzz_host.turns.guards import GuardRunner, Question

            def handle():
                return TurnAgent("main", "core", "claude", None, Path("/"), lambda: ()).for_guard()
            """
    ) + textwrap.dedent(text)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
