"""Children die as a tree: with their program, with their owner, with the host. Real trees, real signals."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from buzz_host.processes import Children, ProcessesClosed, ProgramHost
from tests.conftest import SOAK
from tests.host.processes.trees import STUBBORN, STUBBORN_SIZE, tagged, wait_for_size, wait_until_gone, zombies_of

pytestmark = pytest.mark.anyio
CYCLES = 50 if SOAK else 3


@pytest.fixture
async def children(tmp_path: Path) -> AsyncIterator[Children]:
    made = Children(tmp_path / "run")
    yield made
    assert await made.close() == ()
    assert zombies_of(os.getpid()) == []
    assert list((tmp_path / "run").glob("*")) == []


@pytest.mark.req("SEC-02", "HAR-03")
async def test_a_program_gets_the_environment_that_is_given_and_the_marker(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_HOST", "hidden")
    env = {"GIVEN": "yes", "PATH": os.environ["PATH"]}
    process = await children.spawn(["env"], env=env, cwd=tmp_path, owner="s-1")
    told = dict(line.split("=", 1) for line in (await process.stdout.read()).decode().splitlines())
    assert await process.wait() == 0
    assert told == {**env, "BUZZ_HOST": children.marker, "BUZZ_SESSION": "s-1"}


@pytest.mark.req("HAR-03")
async def test_streams_are_the_programs_own(children: Children, tmp_path: Path) -> None:
    _, env = tagged()
    process = await children.spawn(["sh", "-c", "cat; echo end >&2; exit 7"], env=env, cwd=tmp_path, owner="s-1")
    long_line = "x\N{LINE SEPARATOR}" * 1_000_000 + "\n"
    process.stdin.write(long_line.encode())
    reading = asyncio.create_task(process.stdout.readuntil(b"\n"))
    await process.stdin.drain()
    assert (await reading).decode() == long_line
    held = {os.readlink(link) for link in Path(f"/proc/{process.pid}/fd").iterdir()}  # noqa: PTH115
    assert held == {"/dev/null"}
    process.stdin.close()
    assert await process.stderr.read() == b"end\n"
    assert await process.wait() == 7


@pytest.mark.req("HAR-03")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
async def test_a_program_that_a_signal_ended_is_told_as_such(
    children: Children, tmp_path: Path, number: signal.Signals
) -> None:
    _, env = tagged()
    process = await children.spawn(["sh", "-c", f"kill -{number.value} $$"], env=env, cwd=tmp_path, owner="s-1")
    assert await process.wait() == -number


@pytest.mark.req("HAR-03")
async def test_what_cannot_be_started_is_refused_at_once(children: Children, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        await children.spawn(["no-such-program"], env={}, cwd=tmp_path, owner="s-1")
    with pytest.raises(FileNotFoundError):
        await children.spawn(["true"], env=tagged()[1], cwd=tmp_path / "nowhere", owner="s-1")
    with pytest.raises(ValueError, match="not an owner"):
        await children.spawn(["true"], env=tagged()[1], cwd=tmp_path, owner="a b")
    with pytest.raises(ValueError, match="not names"):
        children.launcher(Path("/bin/true"), "s-1", keep={"A,B"})
    await children.close()
    with pytest.raises(ProcessesClosed):
        await children.spawn(["true"], env=tagged()[1], cwd=tmp_path, owner="s-1")


@pytest.mark.req("HAR-03")
async def test_when_a_program_ends_nothing_of_it_stays_and_its_streams_close(
    children: Children, tmp_path: Path
) -> None:
    tag, env = tagged()
    script = "sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo begun; exit 3"
    process = await children.spawn(["sh", "-c", script], env=env, cwd=tmp_path, owner="s-1")
    async with asyncio.timeout(10):
        assert await process.stdout.read() == b"begun\n"  # and its end, though the orphans held it open
        assert await process.wait() == 3
    wait_until_gone(tag)


@pytest.mark.req("HAR-03")
async def test_terminate_reaches_the_group_and_kill_the_whole_tree(children: Children, tmp_path: Path) -> None:
    tag, env = tagged()
    polite = "trap 'echo asked; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    process = await children.spawn(["sh", "-c", polite], env=env, cwd=tmp_path, owner="s-1")
    await process.stdout.readline()
    process.terminate()
    assert await process.stdout.read() == b"asked\n"
    assert await process.wait() == 5
    process.terminate()  # too late, and no fault
    stubborn = await children.spawn(["sh", "-c", STUBBORN], env=env, cwd=tmp_path, owner="s-1")
    await stubborn.stdout.readline()
    wait_for_size(tag, STUBBORN_SIZE)
    stubborn.kill()
    assert await stubborn.wait() == -signal.SIGKILL
    wait_until_gone(tag)


@pytest.mark.req("HAR-03")
async def test_ending_an_owner_ends_its_trees_and_no_others(children: Children, tmp_path: Path) -> None:
    mine, env = tagged()
    other, other_env = tagged()
    first = await children.spawn(["sh", "-c", STUBBORN], env=env, cwd=tmp_path, owner="mine")
    launcher = children.launcher(Path("/bin/sh"), "mine", keep=env)
    second = await asyncio.create_subprocess_exec(
        launcher, "-c", STUBBORN, env={**os.environ, **env}, stdout=asyncio.subprocess.PIPE
    )
    assert second.stdout is not None
    neighbour = await children.spawn(["sh", "-c", STUBBORN], env=other_env, cwd=tmp_path, owner="other")
    for stream in (first.stdout, second.stdout, neighbour.stdout):
        await stream.readline()
    wait_for_size(mine, 2 * STUBBORN_SIZE)
    wait_for_size(other, STUBBORN_SIZE)
    begun = time.monotonic()
    assert await ProgramHost(children, "mine").end(deadline_s=1.0) is None
    assert time.monotonic() - begun < 3.0
    wait_until_gone(mine)
    assert first.returncode == -signal.SIGKILL
    assert await second.wait() == -signal.SIGKILL
    assert len(wait_for_size(other, STUBBORN_SIZE)) >= STUBBORN_SIZE
    assert await children.end("other", deadline_s=0.0) == ()
    wait_until_gone(other)


@pytest.mark.req("HAR-03")
async def test_a_killed_keeper_takes_its_program_along_and_no_exit_status_is_stolen(
    children: Children, tmp_path: Path
) -> None:
    tag, env = tagged()
    process = await children.spawn(["sh", "-c", STUBBORN], env=env, cwd=tmp_path, owner="s-1")
    await process.stdout.readline()
    wait_for_size(tag, STUBBORN_SIZE)
    # Children of the embedding program, one of them dead and not yet asked for.
    dead = subprocess.Popen(["sh", "-c", "exit 42"])  # noqa: ASYNC220  # the very thing that must not be disturbed
    slow = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.3; exit 43")
    os.kill(process.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        assert await process.wait() == -signal.SIGKILL
        wait_until_gone(tag)
        assert await children.end("s-1", deadline_s=2.0) == ()
    assert dead.wait() == 42
    assert await slow.wait() == 43
    assert zombies_of(os.getpid()) == []


@pytest.mark.req("HAR-03")
async def test_a_keeper_that_does_nothing_is_ended_with_its_tree(children: Children, tmp_path: Path) -> None:
    tag, env = tagged()
    process = await children.spawn(["sh", "-c", STUBBORN], env=env, cwd=tmp_path, owner="s-1")
    await process.stdout.readline()
    wait_for_size(tag, STUBBORN_SIZE)
    os.kill(process.pid, signal.SIGSTOP)
    assert await children.end("s-1", deadline_s=0.2) == ()
    wait_until_gone(tag)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.req("HAR-03")
async def test_another_set_of_children_and_another_loop_do_not_disturb(children: Children, tmp_path: Path) -> None:
    tag, env = tagged()
    other_tag, other_env = tagged()
    mine = await children.spawn(["sh", "-c", STUBBORN], env=env, cwd=tmp_path, owner="same")
    await mine.stdout.readline()
    other = Children(tmp_path / "run")

    async def elsewhere() -> None:
        process = await other.spawn(["sh", "-c", STUBBORN], env=other_env, cwd=tmp_path, owner="same")
        await process.stdout.readline()
        started.set()
        assert await process.wait() == -signal.SIGKILL

    started = threading.Event()
    running = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
    await asyncio.to_thread(started.wait, 10)
    assert await other.close(deadline_s=0.0) == ()
    await asyncio.wait_for(running, 10)
    wait_until_gone(other_tag)
    assert len(wait_for_size(tag, STUBBORN_SIZE)) >= STUBBORN_SIZE
    assert mine.returncode is None
    assert children.launcher(Path("/bin/true"), "same", keep={"PATH"}).is_file()
    assert await children.end("same", deadline_s=0.0) == ()


@pytest.mark.req("HAR-03")
async def test_a_cancelled_ending_still_kills(children: Children, tmp_path: Path) -> None:
    tag, env = tagged()
    process = await children.spawn(["sh", "-c", STUBBORN], env=env, cwd=tmp_path, owner="s-1")
    await process.stdout.readline()
    ending = asyncio.create_task(children.end("s-1", deadline_s=60.0))
    await asyncio.sleep(0)  # it has asked, and waits
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    wait_until_gone(tag)
    assert await process.wait() == -signal.SIGKILL


@pytest.mark.req("SEC-02", "HAR-03")
async def test_a_launcher_passes_on_what_is_kept_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_HOST", "hidden")
    children = Children(tmp_path / 'it\'s a $(folder) with "quotes"')
    program = tmp_path / "a program's name"
    program.write_text('#!/bin/sh\nenv\nprintf "<%s>" "$@"\nexit 9\n', encoding="utf-8")
    program.chmod(0o700)
    launcher = children.launcher(program, "s-1", keep={"KEPT", "PATH"})
    assert launcher.stat().st_mode & 0o777 == 0o700
    assert launcher.parent.stat().st_mode & 0o777 == 0o700
    kept = "two\nlines, 'quoted' $(not run)"
    running = await asyncio.create_subprocess_exec(
        launcher, "a b", "$HOME", "", env={**os.environ, "KEPT": kept}, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await running.communicate()
    assert running.returncode == 9
    assert told.endswith(b"<a b><$HOME><>")
    assert f"KEPT={kept}\n".encode() in told
    assert f"BUZZ_HOST={children.marker}\n".encode() in told
    assert b"BUZZ_SESSION=s-1\n" in told
    assert b"BUZZ_KEEPER" not in told
    assert b"hidden" not in told
    assert await children.close() == ()


@pytest.mark.req("HAR-03")
async def test_cycles_leave_no_process_no_descriptor_and_no_file(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = 0
    for cycle in range(CYCLES):
        tag, env = tagged()
        children = Children(tmp_path / "run")
        process = await children.spawn(["sh", "-c", STUBBORN], env=env, cwd=tmp_path, owner="s-1")
        await process.stdout.readline()
        if cycle % 3 == 1:
            os.kill(process.pid, signal.SIGKILL)
        elif cycle % 3 == 2:
            process.kill()
        assert await children.close(deadline_s=0.5) == ()
        wait_until_gone(tag)
        await asyncio.sleep(0)
        if cycle == 0:
            before = descriptors()
    assert descriptors() <= before
    assert zombies_of(os.getpid()) == []
    assert list((tmp_path / "run").iterdir()) == []
