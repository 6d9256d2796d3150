"""However a session ends, it ends in time, and nothing of it is left: no process, descriptor, or temporary file."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

import pytest

from buzz_author.errors import BuzzError
from buzz_author.events import SessionEnded, TextDelta, TurnStarted
from buzz_author.testing.frame import SOAK, Frame
from buzz_author.testing.hosting import WORD
from buzz_author.testing.stage import Stage, descriptors, marked, programs_of
from buzz_author.testing.talk import DEADLINE_S
from buzz_author.testing.wires import contains_text

CYCLES: Final = 50 if SOAK else 3
CLOSE_S: Final = 4.0
AT_ONCE_S: Final = 2.5


class Endings(Frame):
    """Closing, killing, and many sessions after another."""

    @pytest.mark.req("HAR-03")
    async def test_closing_is_quick_even_when_the_model_hangs(self, stage: Stage) -> None:
        talk = await stage.open()
        turn = await talk.send("rehearse: hang")
        await talk.until(TurnStarted, turn=turn)
        begun = time.monotonic()
        await talk.close(deadline_s=CLOSE_S)
        assert time.monotonic() - begun < CLOSE_S + 0.5
        assert (await talk.until_ended(turn)).status == "interrupted"
        assert talk.events[-1] == SessionEnded(None)
        assert stage.programs(talk) == []
        await talk.session.close(deadline_s=CLOSE_S)  # again, and no fault
        for late in (talk.session.send, talk.session.steer):
            with pytest.raises((BuzzError, NotImplementedError)):
                await late(talk.composed("Too late."))
        await talk.session.interrupt()
        # One that must go at once.
        other = await stage.open()
        waiting = await other.send("rehearse: hang")
        await other.until(TurnStarted, turn=waiting)
        begun = time.monotonic()
        await other.close(deadline_s=0.0)
        assert time.monotonic() - begun < AT_ONCE_S
        assert stage.programs(other) == []

    @pytest.mark.req("HAR-03")
    async def test_closing_in_the_middle_of_a_flood_leaves_nothing_open(self, stage: Stage) -> None:
        await (await stage.open()).close()
        before = descriptors()
        for deadline_s in (0.0, 3.0) if SOAK else (0.0,):
            talk = await stage.open()
            await talk.send(talk.raw("rehearse: echo\n" + "x" * self.kind.fitting(2 * 1024 * 1024)))
            await talk.until(TextDelta)
            await talk.close(deadline_s=deadline_s)
            assert descriptors() <= before

    @contextmanager
    def _hosted(self, stage: Stage, session: str) -> Iterator[tuple[subprocess.Popen[str], str | None]]:
        """A host in a process of its own, in the middle of its second turn; the native id of its conversation."""
        host = subprocess.Popen(
            [sys.executable, "-m", "buzz_author.testing.hosting", inspect.getfile(type(self)), type(self).__qualname__,
             stage.rehearsal.url, str(stage.folder), session],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each or "." for each in sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert host.stdout is not None
        assert host.stderr is not None
        try:
            native: str | None = json.loads(host.stdout.readline() or "null")
            assert host.stdout.readline() == "running\n", host.stderr.read()
            yield host, native
        finally:
            host.kill()
            host.wait()
            host.stdout.close()
            host.stderr.close()

    @pytest.mark.req("HAR-03", "OPS-01")
    async def test_a_program_that_dies_writes_nothing_on_the_terminal_of_its_host(self, stage: Stage) -> None:
        if not self.kind.runs_program:
            return
        session = str(uuid4())
        with self._hosted(stage, session) as (host, _):
            for pid in programs_of(session):
                os.kill(pid, signal.SIGKILL)
            out, err = await asyncio.to_thread(host.communicate, timeout=DEADLINE_S)
        assert (out, err, host.returncode) == ("ended: process-died\n", "", 0)

    @pytest.mark.req("HAR-03", "OPS-03")
    async def test_a_killed_host_leaves_no_program_and_its_conversation_goes_on(self, stage: Stage) -> None:
        session = str(uuid4())
        with self._hosted(stage, session) as (host, native):
            assert bool(marked(session)) == self.kind.runs_program
            host.kill()
        until = time.monotonic() + DEADLINE_S
        while left := marked(session):
            assert time.monotonic() < until, f"still alive: {left}"
            await asyncio.sleep(0.02)
        assert (native is not None) == self.kind.make().capabilities.resume
        again = await stage.open(resume=native)
        turn = again.composed("rehearse: say Back.")
        assert (await again.ask(turn)).reply == "Back."
        request = stage.requests()[-1]
        assert contains_text(request, turn.text)
        assert contains_text(request, WORD) == self.kind.make().capabilities.resume
        await asyncio.to_thread(_swept, stage)

    @pytest.mark.req("HAR-03")
    async def test_cycles_of_start_interrupt_and_kill_leave_nothing(self, stage: Stage) -> None:
        before, files = 0, set[str]()
        for cycle in range(CYCLES):
            talk = await stage.open()
            turn = await talk.send("rehearse: hang")
            if cycle % 3 != 2:
                await talk.until(TurnStarted, turn=turn)
            if cycle % 3 == 0:
                await talk.session.interrupt()
                await talk.until_ended(turn)
            elif cycle % 3 == 1 and self.kind.runs_program:
                for pid in stage.programs(talk):
                    os.kill(pid, signal.SIGKILL)
                await talk.ended()
            await talk.close(deadline_s=3.0)
            assert marked(talk.spec.session) == []
            if cycle == 0:
                before, files = descriptors(), _temporary(stage)
        assert descriptors() <= before
        assert _temporary(stage) <= files
        assert not stage.leftovers()


def _temporary(stage: Stage) -> set[str]:
    """Names in the folders for temporary files that a program has."""
    return {str(path) for folder in stage.config_dir.rglob("tmp") if folder.is_dir() for path in folder.iterdir()}


def _swept(stage: Stage) -> None:
    """A killed host cannot tidy up: what it left is not held against the harness."""
    for path in stage.leftovers():
        path.unlink(missing_ok=True)
