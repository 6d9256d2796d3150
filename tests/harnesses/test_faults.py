"""What can go wrong with a model or a program is one typed error, ends its turn once, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import attrs
import pytest

from buzz_author.events import Retrying, SessionEnded, SteerSettled, TextDelta, TurnEnded, TurnStarted
from buzz_author.harness import HarnessError
from buzz_author.turns import Turn
from buzz_host.processes import launcher as keeper
from tests.conftest import SOAK
from tests.harnesses import hosting
from tests.harnesses.conformance import DEADLINE_S, Stage, Talk, end_of_newest_user_message

pytestmark = pytest.mark.anyio
CYCLES = 50 if SOAK else 3
ROOT = Path(__file__).parents[2]
CLOSED_PORT_URL = "http://127.0.0.1:9"


@pytest.mark.req("HAR-03")
async def test_errors_of_the_model_are_one_typed_error(stage: Stage) -> None:
    talk = await stage.open()
    for status, kind, retryable in (
        (400, "invalid-request", False),
        (401, "authentication", False),
        (403, "authentication", False),
        (429, "rate-limit", True),
        (500, "overloaded", True),
        (529, "overloaded", True),
    ):
        ended = await talk.ask(f"rehearse: fail {status}")
        assert ended.status == "failed"
        assert ended.error is not None
        assert (ended.error.kind, ended.error.status, ended.error.retryable) == (kind, status, retryable)
        assert ended.error.native
        assert ended.reply == ""
        retries = [event for event in talk.of(Retrying) if event.turn == ended.turn]
        assert len(retries) <= 2
        assert {(event.error.kind, event.error.status) for event in retries} <= {(kind, status)}
    assert len(talk.of(Retrying)) > 0
    assert (await talk.ask("rehearse: say Alive.")).reply == "Alive."


@pytest.mark.req("HAR-03")
async def test_a_stream_that_breaks_off_and_a_model_that_is_not_there(stage: Stage) -> None:
    talk = await stage.open()
    ended = await talk.ask("rehearse: drop")
    assert ended.error is not None
    assert (ended.status, ended.error.kind, ended.error.status) == ("failed", "connection", None)
    assert ended.error.retryable
    assert (await talk.ask("rehearse: drop 1 time\nrehearse: say Whole.")).reply == "Whole."
    nowhere = await stage.open(model_url=CLOSED_PORT_URL)
    refused = await nowhere.ask("Hello.")
    assert refused.error is not None
    assert (refused.status, refused.error.kind) == ("failed", "connection")


@pytest.mark.req("HAR-03")
async def test_a_session_is_resumed_in_a_new_process_and_refused_where_it_cannot_be(stage: Stage) -> None:
    first = await stage.open()
    (process,) = stage.programs(first)
    await first.ask("The word is heron.")
    native = first.session.native_id
    await first.close()
    second = await stage.open(resume=native)
    assert stage.programs(second) != [process]
    assert second.session.native_id == native
    turn = second.composed("Which word?")
    assert (await second.ask(turn)).status == "completed"
    assert b"The word is heron." in stage.requests()[-1].raw
    assert end_of_newest_user_message(stage.requests()[-1]) == turn.text

    unknown = str(uuid4())
    with pytest.raises(HarnessError, match=f"No conversation found.*{unknown}") as refused:
        await stage.open(resume=unknown)
    assert (refused.value.kind, refused.value.retryable) == ("invalid-request", False)
    with pytest.raises(HarnessError, match="already in use") as in_use:
        await stage.open(fixed={"new_id": lambda: native})
    assert in_use.value.kind == "invalid-request"
    # A session without a turn has no id to resume by; asked for nevertheless, it is refused in plain words.
    forced = str(uuid4())
    empty = await stage.open(fixed={"new_id": lambda: forced})
    await empty.close()
    assert empty.session.native_id is None
    with pytest.raises(HarnessError, match="No conversation found"):
        await stage.open(resume=forced)
    with pytest.raises(HarnessError, match="directory"):
        await stage.open(cwd=stage.folder / "nowhere")
    assert not list(stage.config_dir.glob("buzz/*"))[1:], "a session that did not start leaves no file"


@pytest.mark.req("HAR-03")
async def test_closing_is_quick_even_when_the_model_hangs(stage: Stage) -> None:
    talk = await stage.open()
    turn = await talk.send("rehearse: hang")
    await talk.until(TurnStarted, turn=turn)
    begun = time.monotonic()
    await talk.close(deadline_s=4.0)
    assert time.monotonic() - begun < 4.0
    assert (await talk.until(TurnEnded, turn=turn)).status == "interrupted"
    assert talk.events[-1] == SessionEnded(None)
    assert stage.programs(talk) == []
    await talk.session.close(deadline_s=4.0)  # again, and no fault
    for late in (talk.session.send, talk.session.steer):
        with pytest.raises(HarnessError, match="has ended"):
            await late(talk.composed("Too late."))
    await talk.session.interrupt()
    # One that must go at once.
    other = await stage.open()
    waiting = await other.send("rehearse: hang")
    await other.until(TurnStarted, turn=waiting)
    begun = time.monotonic()
    await other.close(deadline_s=0.0)
    assert time.monotonic() - begun < 2.5
    assert stage.programs(other) == []


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def echoing(talk: Talk, megabytes: float) -> Turn:
    text = "rehearse: echo\n" + "x" * int(megabytes * 1024 * 1024)
    return attrs.evolve(talk.composed("x"), message=text, text=text)


@pytest.mark.req("HAR-03")
async def test_a_text_that_no_model_takes_is_refused_and_the_session_goes_on(stage: Stage) -> None:
    talk = await stage.open()
    ended = await talk.ask(echoing(talk, 17))
    assert ended.error is not None
    assert (ended.error.kind, ended.error.status, ended.error.retryable) == ("invalid-request", None, False)
    assert (await talk.ask("rehearse: say Alive.")).reply == "Alive."


@pytest.mark.req("HAR-03")
async def test_closing_in_the_middle_of_a_flood_leaves_no_pipe_open(stage: Stage) -> None:
    await (await stage.open()).close()
    before = descriptors()
    for deadline_s in (0.0, 3.0):
        talk = await stage.open()
        await talk.send(echoing(talk, 2))
        await talk.until(TextDelta)
        await talk.close(deadline_s=deadline_s)
        assert descriptors() <= before


@pytest.mark.req("HAR-03")
async def test_a_line_that_is_too_long_ends_the_session_as_a_fault(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    with monkeypatch.context() as patched:
        stage.kind.lower_line_bound(patched, 1024 * 1024)
        talk = await stage.open()
    turn = await talk.send(echoing(talk, 2))
    ended = await talk.until(TurnEnded, turn=turn)
    assert ended.error is not None
    assert (ended.status, ended.error.kind) == ("failed", "unknown")
    assert (await talk.until(SessionEnded)).error == ended.error
    await talk.ended()
    assert stage.programs(talk) == []
    assert descriptors() <= before
    again = await stage.open(resume=talk.session.native_id)
    assert (await again.ask("rehearse: say Back.")).reply == "Back."


@pytest.mark.req("HAR-03", "OPS-03")
async def test_a_program_that_is_killed_ends_its_turn_once_and_gives_back_its_steer(stage: Stage) -> None:
    talk = await stage.open()
    await talk.ask("The word is heron.")
    turn = await talk.send("rehearse: hang")
    await talk.until(TurnStarted, turn=turn)
    steer = await talk.steer("Do not lose me.", turn)
    for pid in stage.programs(talk):
        os.kill(pid, signal.SIGKILL)
    ended = await talk.until(TurnEnded, turn=turn)
    assert ended.error is not None
    assert (ended.status, ended.error.kind, ended.error.retryable) == ("failed", "process-died", True)
    assert "signal 9" in ended.error.native
    assert (await talk.until(SteerSettled, steer=steer)).outcome == "returned"
    last = await talk.until(SessionEnded)
    assert last.error == ended.error
    await talk.ended()
    with pytest.raises(HarnessError) as refused:
        await talk.session.send(talk.composed("Too late."))
    assert refused.value.kind == "process-died"
    again = await stage.open(resume=talk.session.native_id)
    assert (await again.ask("rehearse: say Back.")).reply == "Back."
    assert b"The word is heron." in stage.requests()[-1].raw


@pytest.mark.req("HAR-03", "OPS-03")
async def test_a_program_that_is_killed_before_its_first_answer_has_nothing_to_resume(stage: Stage) -> None:
    talk = await stage.open()
    turn = await talk.send("rehearse: hang")
    await talk.until(TurnStarted, turn=turn)
    for pid in stage.programs(talk):
        os.kill(pid, signal.SIGKILL)
    await talk.until(TurnEnded, turn=turn)
    await talk.ended()
    # Either the program had written the conversation down, or we do not claim that it can be resumed.
    again = await stage.open(resume=talk.session.native_id)
    assert (await again.ask("rehearse: say Back.")).reply == "Back."


def hosted(stage: Stage, session: str) -> subprocess.Popen[str]:
    """A host in a process of its own, in the middle of a turn once it has said `running`."""
    return subprocess.Popen(
        [sys.executable, hosting.__file__, stage.kind.id, stage.rehearsal.url, str(stage.folder), session],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.req("HAR-03", "OPS-01")
async def test_a_program_that_dies_writes_nothing_on_the_terminal_of_its_host(stage: Stage) -> None:
    session = str(uuid4())
    host = hosted(stage, session)
    try:
        assert host.stdout is not None
        assert host.stdout.readline() == "running\n"
        for pid, marked in keeper.environments(keeper.table()).items():
            if marked.get("BUZZ_SESSION") == session and "BUZZ_KEEPER" not in marked:
                os.kill(pid, signal.SIGKILL)
        out, err = host.communicate(timeout=DEADLINE_S)
    finally:
        host.kill()
        host.wait()
    assert (out, err, host.returncode) == ("ended: process-died\n", "", 0)


@pytest.mark.req("HAR-03", "OPS-03")
async def test_a_killed_host_leaves_no_program(stage: Stage) -> None:
    session = str(uuid4())
    host = hosted(stage, session)
    assert host.stdout is not None
    assert host.stderr is not None
    try:
        assert host.stdout.readline() == "running\n", host.stderr.read()
        before = _marked(session)
        assert len(before) >= 2, "the program and its keeper"
    finally:
        host.kill()
        host.wait()
        host.stdout.close()
        host.stderr.close()
    until = time.monotonic() + DEADLINE_S
    while left := _marked(session):
        assert time.monotonic() < until, f"still alive: {left}"
        await asyncio.sleep(0.02)


def _marked(session: str) -> list[int]:
    rows = keeper.table()
    return [
        pid
        for pid, marked in keeper.environments(rows).items()
        if marked.get("BUZZ_SESSION") == session and not rows[pid].zombie
    ]


@pytest.mark.req("HAR-03")
async def test_cycles_of_start_interrupt_and_kill_leave_nothing(stage: Stage) -> None:
    before = 0
    for cycle in range(CYCLES):
        talk = await stage.open()
        turn = await talk.send("rehearse: hang")
        if cycle % 3 != 2:
            await talk.until(TurnStarted, turn=turn)
        if cycle % 3 == 0:
            await talk.session.interrupt()
            await talk.until(TurnEnded, turn=turn)
        elif cycle % 3 == 1:
            for pid in stage.programs(talk):
                os.kill(pid, signal.SIGKILL)
            await talk.ended()
        await talk.close(deadline_s=3.0)
        assert _marked(talk.spec.session) == []
        if cycle == 0:
            before = descriptors()
    assert descriptors() <= before
    assert not list(stage.config_dir.glob("buzz/*"))
