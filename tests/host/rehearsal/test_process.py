"""The server's process: how it starts, how its faults are told, and that nothing can leave it behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from buzz_author.errors import BuzzError
from buzz_host.rehearsal import Rehearsal, RehearsalError
from tests.host.rehearsal.asking import ask, until, user

pytestmark = [pytest.mark.anyio, pytest.mark.req("HAR-05")]

ROOT = Path(__file__).parents[3]
END_DEADLINE_S = 10.0


def runs(pid: int) -> bool:
    """Whether a process lives; a zombie does not (nothing collects orphans in some containers)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def ends(pid: int) -> bool:
    deadline = time.monotonic() + END_DEADLINE_S
    while runs(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def running(command: list[str], stdin: int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end, so that a test that fails does not wait for it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, cwd=ROOT, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def server(*arguments: str) -> list[str]:
    """The server as a person would start it."""
    return [sys.executable, "-m", "buzz_host.rehearsal", *arguments]


def parent_of_a_server(server_stdin: str) -> list[str]:
    """A process that starts a server and then does nothing. It says the server's pid; the server says its url."""
    code = (
        "import os, subprocess, sys, time\n"
        "server = subprocess.Popen([sys.executable, '-m', 'buzz_host.rehearsal', '--parent', str(os.getpid())],"
        f" stdin={server_stdin}, start_new_session=True)\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(3600)\n"
    )
    return [sys.executable, "-c", code]


async def test_it_runs_for_as_long_as_the_block_and_is_collected() -> None:
    async with Rehearsal.start() as rehearsal:
        assert rehearsal.url.startswith("http://127.0.0.1:")
        assert runs(rehearsal.pid)
        assert rehearsal.requests() == []
        assert os.getsid(rehearsal.pid) == os.getpgid(rehearsal.pid) == rehearsal.pid
        record = rehearsal.record_path
    assert not Path(f"/proc/{rehearsal.pid}").exists()
    assert not record.exists()
    with pytest.raises(RehearsalError, match="the record cannot be read"):
        rehearsal.requests()


async def test_a_record_that_was_asked_for_stays_and_is_appended_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        async with Rehearsal.start(record=Path("record.jsonl")) as rehearsal:
            assert rehearsal.record_path == tmp_path / "record.jsonl"
            await asyncio.to_thread(ask, rehearsal.url, user(f"turn {number}"))
            assert [request.newest_user_text for request in rehearsal.requests()] == [f"turn {number}"]
    assert (tmp_path / "record.jsonl").read_text(encoding="utf-8").count('"raw":') == 2


async def test_it_inherits_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "HOME", "HTTP_PROXY", "BUZZ_HOME"):
        monkeypatch.setenv(name, "sk-inherited")
    async with Rehearsal.start() as rehearsal:
        environment = Path(f"/proc/{rehearsal.pid}/environ").read_bytes()
    assert b"sk-inherited" not in environment
    assert b"PYTHONPATH=" in environment


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda folder: {"record": folder / "no" / "record.jsonl"},
            "no/record.jsonl: the record cannot be written: No such file",
        ),
        (lambda folder: {"record": folder}, ": the record cannot be written: Is a directory"),
        (
            lambda folder: {"record": Path("/dev/null")},
            "/dev/null: the record cannot be written: it is not a regular file",
        ),
        (lambda folder: {"script": folder / "none.json"}, "none.json: the script cannot be read: No such file"),
        (lambda folder: {"script": folder / "bad.json"}, 'bad.json: answer 1 "shout": unknown directive; there are '),
    ],
)
async def test_a_file_that_cannot_be_used_is_told_in_one_line(tmp_path: Path, make: object, told: str) -> None:
    (tmp_path / "bad.json").write_text('["shout"]', encoding="utf-8")
    assert callable(make)
    with pytest.raises(BuzzError) as raised:
        async with Rehearsal.start(**make(tmp_path)):
            pytest.fail("it started")
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_a_server_that_cannot_start_is_told_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(RehearsalError, match="ended before it was ready: "):
        async with Rehearsal.start():
            pytest.fail("it started")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(RehearsalError, match="cannot be started: No such file or directory: /nowhere/python"):
        async with Rehearsal.start():
            pytest.fail("it started")


async def test_a_server_that_does_not_get_ready_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mute = tmp_path / "python"
    mute.write_text(
        "#!/bin/sh\necho $$ > " + str(tmp_path / "pid") + "\ntrap '' TERM\nwhile :; do sleep 1; done\n",
        encoding="utf-8",
    )
    mute.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(mute))
    monkeypatch.setattr("buzz_host.rehearsal.process.START_DEADLINE_S", 0.5)
    with pytest.raises(RehearsalError, match=r"not ready within 0\.5 s"):
        async with Rehearsal.start():
            pytest.fail("it started")
    assert ends(int((tmp_path / "pid").read_text(encoding="utf-8")))


async def test_a_cancelled_start_and_a_cancelled_block_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(started: asyncio.Event) -> None:
        async with Rehearsal.start():
            started.set()
            await asyncio.sleep(3600)

    spawned = []
    popen = subprocess.Popen

    def remembered(*arguments: object, **more: object) -> object:
        spawned.append(popen(*arguments, **more))  # type: ignore[call-overload]
        return spawned[-1]

    monkeypatch.setattr(subprocess, "Popen", remembered)
    early = asyncio.create_task(run(asyncio.Event()))
    await asyncio.to_thread(until, lambda: spawned)
    early.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await early
    started = asyncio.Event()
    late = asyncio.create_task(run(started))
    await started.wait()
    late.cancel()
    await asyncio.sleep(0)
    late.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await late
    assert len(spawned) == 2
    assert all(process.returncode is not None and process.stdout.closed for process in spawned)


async def test_it_ends_with_its_standard_input_even_while_it_hangs() -> None:
    with running(server()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        hanging = asyncio.ensure_future(asyncio.to_thread(ask, url, user("rehearse: hang")))
        assert (await asyncio.to_thread(ask, url, user("hello"))).status == 200
        process.stdin.close()
        assert process.wait(END_DEADLINE_S) == 0
    assert (await hanging).dropped


@pytest.mark.parametrize("by", ["standard input", "the parent's death"])
async def test_a_killed_parent_leaves_no_server(by: str) -> None:
    # either the parent holds the only writing end of the server's input, or we hold it open beyond its death
    server_stdin = "subprocess.PIPE" if by == "standard input" else "None"
    with running(parent_of_a_server(server_stdin)) as parent:
        assert parent.stdout is not None
        said = [parent.stdout.readline(), parent.stdout.readline()]
        pid = int(next(line for line in said if not line.startswith(b"{")))
        url = json.loads(next(line for line in said if line.startswith(b"{")))["url"]
        assert (await asyncio.to_thread(ask, url, user("hello"))).status == 200
        assert runs(pid)
        parent.send_signal(signal.SIGKILL)
        assert ends(pid)


def test_a_mistake_on_the_command_line_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    with running(server("--record", str(tmp_path / "no" / "record.jsonl"))) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["error"].endswith("no/record.jsonl: the record cannot be written: No such file or directory")
        assert process.wait(END_DEADLINE_S) == 2


def test_it_starts_on_the_standard_library_alone() -> None:
    code = (
        "import sys, buzz_host.rehearsal.__main__\n"
        "foreign = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names\n"
        "print(sorted(foreign - {'__main__', 'buzz_host', '__mp_main__'}))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=False
    )
    assert (ran.stdout, ran.stderr) == (b"[]\n", b"")


@pytest.mark.req("SEC-02", "OPS-03")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
async def test_what_was_said_does_not_outlive_a_host_that_was_killed(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "run" / "rehearsal"
    folder.parent.mkdir()
    code = (
        "import asyncio, pathlib, sys\n"
        "from buzz_host.rehearsal import Rehearsal\n"
        "async def main():\n"
        "    async with Rehearsal.start(folder=pathlib.Path(sys.argv[1])) as rehearsal:\n"
        "        print(rehearsal.url, flush=True)\n"
        "        await asyncio.sleep(3600)\n"
        "asyncio.run(main())\n"
    )
    with running([sys.executable, "-c", code, str(folder)]) as host:
        assert host.stdout is not None
        url = host.stdout.readline().decode().strip()
        await asyncio.to_thread(ask, url, user("a secret"))
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert b"a secret" in (folder / "record.jsonl").read_bytes()
        host.send_signal(number)
        host.wait()
        deadline = time.monotonic() + END_DEADLINE_S
        while folder.exists():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)


async def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RehearsalError, match=r"the rehearsal's folder cannot be made: No such file or directory$"):
        async with Rehearsal.start(folder=tmp_path / "no" / "folder"):
            pytest.fail("it started")


async def test_a_server_removes_no_file_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept", encoding="utf-8")
    with running(server("--temporary", str(tmp_path), "--record", str(tmp_path / "record.jsonl"))) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        process.stdin.close()
        process.wait(END_DEADLINE_S)
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
