"""`buzz serve` as a process: one a home, ended in order or killed, reached by its person alone (OPS-03, SEC-01)."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from buzz_host import VERSION
from tests.cli.commands import BUZZ, DEADLINE_S, PARROT, PARROT_OPTIONS, ROOT, Buzz
from tests.cli.hosts import Line, serving, wait_until
from tests.cli.test_plugin import put, speaks

NOBODY = 65534
# Started as root: the interpreter may be where nobody else can read it. Says what the host says.
AS_NOBODY = """
import os, socket, sys
line = socket.socket(socket.AF_UNIX)
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
line.connect(sys.argv[1])
sys.stdout.buffer.write(line.makefile("rb").read())
"""


@pytest.fixture
def parrot(home: Path) -> None:
    """The harness of the tests, in the home: a host's own plugins run its turns."""
    put(home, "brief", speaks("Be brief."))
    (home / "plugins" / "parrot.py").write_bytes(PARROT.read_bytes())


def children_of(pid: int) -> set[int]:
    """The processes below `pid`."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            parents[int(entry.name)] = int(fields[1])
    found = {pid}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pids: set[int]) -> set[int]:
    """Those that still run."""
    found = set()
    for pid in pids:
        try:
            state = (
                Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
            )
        except OSError:
            continue
        if state not in "ZX":
            found.add(pid)
    return found


@pytest.mark.req("CLI-01", "OPS-01", "SEC-01")
def test_it_says_that_it_is_ready_and_where(environment: dict[str, str], work: Path, home: Path) -> None:
    with serving(environment, work) as host:
        path = home / "run" / "serve.sock"
        assert host.said == {
            "event": "serving", "home": str(home), "pid": host.process.pid, "socket": str(path), "version": VERSION,
        }  # fmt: skip
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert host.end() == (0, b"")
        assert not path.exists()
        assert (home / "serve.lock").read_bytes() == b""


@pytest.mark.req("OPS-02")
def test_the_version_that_hosts_and_commands_compare_is_the_one_that_is_installed(buzz: Buzz) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == VERSION
    assert buzz("--version").out == f"buzz {VERSION}\n"


@pytest.mark.claude
@pytest.mark.req("CLI-01", "OPS-01")
def test_the_environment_that_counts_is_that_of_the_host(environment: dict[str, str], work: Path, buzz: Buzz) -> None:
    with serving(environment, work) as host:
        done = buzz("run", "Hello", ANTHROPIC_API_KEY="of no use here")
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
        assert all(word in done.err for word in ("ANTHROPIC_API_KEY", "--model-url", "--rehearse"))
        assert f"the environment of the running host, process {host.process.pid})" in done.err


@pytest.mark.req("CLI-01")
def test_for_a_person_it_is_one_line(environment: dict[str, str], work: Path, home: Path) -> None:
    process = subprocess.Popen(
        [*BUZZ, "serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=work, env=environment
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert line == f"serving {home} as process {process.pid}, at {home}/run/serve.sock\n".encode()
    assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.req("CLI-01", "OPS-01")
def test_a_second_one_is_refused_and_names_the_first(
    environment: dict[str, str], work: Path, buzz: Buzz, home: Path
) -> None:
    with serving(environment, work) as host:
        done = buzz("serve")
        assert (done.code, done.out) == (2, "")
        assert done.err == (
            f"buzz: {home}: process {host.process.pid} is its running host already, and serves every command: "
            f"end it first with `kill {host.process.pid}`\n"
        )
        assert buzz("preview", "--json", "x").code == 0


@pytest.mark.req("OPS-03", "CLI-01")
def test_of_two_that_start_at_once_exactly_one_serves(environment: dict[str, str], work: Path, buzz: Buzz) -> None:
    for _ in range(3):
        both = [
            subprocess.Popen(
                [*BUZZ, "serve", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=work, env=environment
            )
            for _ in range(2)
        ]
        try:
            wait_until(lambda: any(each.poll() is not None for each in both), "one of them is refused")  # noqa: B023
            refused, serves = sorted(both, key=lambda each: each.poll() is None)
            _, err = refused.communicate(timeout=DEADLINE_S)
            assert refused.returncode == 2
            assert f"process {serves.pid} is its running host already" in err.decode()
            assert serves.stdout is not None
            assert json.loads(serves.stdout.readline())["pid"] == serves.pid
            serves.terminate()
            assert serves.communicate(timeout=DEADLINE_S)[1] == b""
            assert serves.returncode == 0
        finally:
            for each in both:
                each.kill()
                each.communicate()


@pytest.mark.req("OPS-03")
@pytest.mark.usefixtures("parrot")
def test_killed_in_a_turn_it_starts_again_and_nothing_is_lost(
    environment: dict[str, str], work: Path, buzz: Buzz
) -> None:
    assert buzz("run", "--harness", "parrot", "before").code == 0
    for _ in range(2):
        with serving(environment, work) as host, Line(host.socket) as line:
            line.line()
            opened = line.ask("session.open", here=str(work), harness="parrot")["value"]
            line.request("session.turn", session=opened["session"], message='say "so far"\nhang')
            while (event := line.line()) is not None and event["event"]["event"] != "text_delta":
                pass
            assert host.end(signal.SIGKILL) == (-signal.SIGKILL, b"")
            while line.line() is not None:  # what it had said before
                pass
            # The socket of the dead is there, and nobody is misled by it.
            assert Path(host.socket).exists()
            assert buzz("preview", "--harness", "parrot", "x").code == 0
    with serving(environment, work):
        rows = buzz("audit", "turns", "--json").rows
        assert [row["status"] for row in rows] == ["unended", "unended", "completed"]
        assert buzz("audit", "verify").code == 0
        again = buzz("run", "--resume", rows[0]["session"], "--json", "again")
        assert (again.code, again.rows[-1]["reply"]) == (0, "again")


@pytest.mark.claude
@pytest.mark.req("OPS-03", "HAR-03")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["in order", "killed"])
def test_no_program_survives_its_host(
    environment: dict[str, str], work: Path, buzz: Buzz, number: signal.Signals
) -> None:
    assert buzz("run", *PARROT_OPTIONS, "before").code == 0
    with serving(environment, work) as host:
        client = subprocess.Popen(
            [*BUZZ, "run", "--rehearse", "--json", "rehearse: hang"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=work, env=environment,
        )  # fmt: skip
        assert client.stdout is not None
        assert json.loads(client.stdout.readline())["event"] == "turn_started"
        below = children_of(host.process.pid)
        assert len(below) >= 2  # the keeper with the program, and the model server
        begun = time.monotonic()
        code, _ = host.end(number)
        assert code == (0 if number == signal.SIGTERM else -number)
        assert time.monotonic() - begun < 25
        wait_until(lambda: not alive(below), "all programs end")
        out, err = client.communicate(timeout=DEADLINE_S)
    if number == signal.SIGTERM:
        assert client.returncode in (1, 130)
        assert json.loads(out.decode().split("\n")[-2])["event"] in ("turn_completed", "session_ended")
        assert buzz("audit", "turns", "--json").rows[0]["status"] in ("interrupted", "failed")
    else:
        assert client.returncode == 1
        assert f"the host (process {host.process.pid}) ended before it answered" in err.decode()
        assert [row["status"] for row in buzz("audit", "turns", "--json").rows] == ["unended", "completed"]
    assert buzz("audit", "verify").code == 0


@pytest.mark.req("OPS-03")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_each_signal_that_ends_a_command_ends_it_in_order(
    environment: dict[str, str], work: Path, number: signal.Signals
) -> None:
    with serving(environment, work) as host:
        assert host.end(number) == (0, b"")


@pytest.mark.req("OPS-03")
def test_what_was_ignored_when_it_started_is_ignored(environment: dict[str, str], work: Path, buzz: Buzz) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with serving(environment, work) as host:
            host.process.send_signal(signal.SIGHUP)
            assert buzz("preview", "x").code == 0
            assert host.process.poll() is None
            assert host.end() == (0, b"")
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.req("OPS-03")
@pytest.mark.usefixtures("parrot")
def test_a_second_signal_ends_it_at_once(environment: dict[str, str], work: Path) -> None:
    with serving(environment, work) as host, Line(host.socket) as line:
        line.line()
        opened = line.ask("session.open", here=str(work), harness="parrot")["value"]
        line.request("session.turn", session=opened["session"], message='say "so far"\nhang deaf')
        while (event := line.line()) is not None and event["event"]["event"] != "text_delta":
            pass
        host.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)  # two at once would be one
        begun = time.monotonic()
        assert host.end(signal.SIGTERM)[0] == -signal.SIGTERM
        assert time.monotonic() - begun < 2


@pytest.mark.req("CLI-01", "OPS-03")
@pytest.mark.usefixtures("parrot")
@pytest.mark.parametrize("how", ["ctrl-c", "twice", "killed"])
def test_a_command_that_is_stopped_has_its_turn_interrupted_in_the_host(
    how: str, environment: dict[str, str], work: Path, buzz: Buzz
) -> None:
    with serving(environment, work) as host:
        client = subprocess.Popen(
            [*BUZZ, "run", "--harness", "parrot", f'say "so far"\nhang {"deaf" if how == "twice" else ""}'.strip()],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=work, env=environment,
        )  # fmt: skip
        assert client.stdout is not None
        assert os.read(client.stdout.fileno(), 1) == b"s"
        client.send_signal(signal.SIGKILL if how == "killed" else signal.SIGINT)
        if how == "twice":
            time.sleep(0.5)  # two at once would be one
            client.send_signal(signal.SIGINT)
        _, err = client.communicate(timeout=DEADLINE_S)
        assert client.returncode == (-signal.SIGKILL if how == "killed" else 130)
        assert b"Traceback" not in err
        expected = ("interrupted",) if how != "twice" else ("interrupted", "failed")
        wait_until(lambda: buzz("audit", "turns", "--json").rows[0]["status"] in expected, "it is recorded")
        assert buzz("preview", "--harness", "parrot", "x").code == 0
        if how != "twice":
            assert host.end() == (0, b"")


@pytest.mark.req("OPS-01")
@pytest.mark.usefixtures("parrot")
def test_a_reader_that_leaves_ends_the_turn_in_silence(environment: dict[str, str], work: Path, buzz: Buzz) -> None:
    with serving(environment, work):
        client = subprocess.Popen(
            [*BUZZ, "run", "--harness", "parrot", "-"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=work, env=environment,
        )  # fmt: skip
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stderr is not None
        client.stdin.write(f"say {json.dumps('x' * 300_000)}\nhang".encode())
        client.stdin.close()
        client.stdout.read(10)
        client.stdout.close()
        assert b"Traceback" not in client.stderr.read()
        client.stderr.close()
        assert client.wait(DEADLINE_S) == 141
        # By the time that the command has ended, its turn is recorded.
        assert [row["status"] for row in buzz("audit", "turns", "--json").rows] == ["interrupted"]


@pytest.mark.req("CLI-01")
@pytest.mark.usefixtures("parrot")
def test_fifty_previews_at_once(environment: dict[str, str], work: Path, buzz: Buzz) -> None:
    with serving(environment, work) as host, ThreadPoolExecutor(50) as pool:
        done = list(pool.map(lambda _: buzz("preview", "--harness", "parrot", "Hello"), range(50)))
        assert {(each.code, each.out, each.err) for each in done} == {(0, done[0].out, done[0].err)}
        assert "Be brief." in done[0].out
        assert host.end() == (0, b"")


@pytest.mark.req("CLI-01")
@pytest.mark.usefixtures("parrot")
def test_a_command_that_asks_a_host_imports_neither_a_loop_nor_a_host(environment: dict[str, str], work: Path) -> None:
    asked = "import sys; from buzz_host.cli import buzz; buzz(['preview', '--harness', 'parrot', 'x'], standalone_mode="
    shown = "False); print(*sorted(sys.modules))"
    with serving(environment, work):
        done = subprocess.run(
            [sys.executable, "-c", asked + shown], capture_output=True, cwd=work, env=environment, timeout=DEADLINE_S
        )
    imported = set(done.stdout.decode().split("\n")[-2].split())
    assert {"click", "buzz_host.services.remote"} <= imported
    assert not imported & {
        "asyncio", "rich", "sqlite3", "subprocess", "tomlkit",
        "buzz_host.plugins", "buzz_host.services.calls", "buzz_host.services.host", "buzz_host.services.local",
    }  # fmt: skip


@pytest.mark.req("PLG-06", "CLI-01")
@pytest.mark.usefixtures("parrot")
def test_further_plugins_of_a_command_are_its_own(
    environment: dict[str, str], work: Path, buzz: Buzz, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(f'inject = ("agents",)\ndef apply(ctx):\n    {speaks("Mine.")}\n', encoding="utf-8")
    with serving(environment, work):
        assert "Mine." in buzz("preview", "--harness", "parrot", "--plugin", mine, "Hello").out
        assert "Mine." not in buzz("preview", "--harness", "parrot", "Hello").out
        assert "mine" not in buzz("plugin", "list").out


@pytest.mark.req("SEC-01")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_somebody_else_is_refused_even_where_the_folders_would_let_him_in(
    environment: dict[str, str], work: Path, buzz: Buzz
) -> None:
    with serving(environment, work) as host:
        argv = [sys.executable, "-c", AS_NOBODY, host.socket, str(NOBODY)]
        shut_out = subprocess.run(argv, capture_output=True, timeout=DEADLINE_S)
        assert b"PermissionError" in shut_out.stderr
        temporary = Path(tempfile.gettempdir())
        opened = [path for path in Path(host.socket).parents if path.is_relative_to(temporary) and path != temporary]
        modes = {path: path.stat().st_mode for path in opened}
        try:
            for path in opened:
                path.chmod(0o755)
            Path(host.socket).chmod(0o666)
            refused = subprocess.run(argv, capture_output=True, timeout=DEADLINE_S)
        finally:
            for path, mode in modes.items():
                path.chmod(mode)
        (line,) = refused.stdout.decode().split("\n")[:-1]
        said = json.loads(line)["error"]
        assert said["kind"] == "refused"
        assert f"of uid {NOBODY} is at the other end" in said["message"]
        assert buzz("preview", "x").code == 0


@pytest.mark.req("SEC-01", "OPS-01")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_host_of_somebody_else_is_not_asked(environment: dict[str, str], work: Path, buzz: Buzz, home: Path) -> None:
    """A socket in our lock file behind which another person listens: nothing is sent there."""
    home.mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / "s"))
        child = os.fork()
        if child == 0:
            os.setuid(NOBODY)
            listening.listen()
            time.sleep(DEADLINE_S)
            os._exit(0)
        try:
            (home / "serve.lock").write_text(json.dumps({"pid": child, "socket": str(home / "s")}), encoding="utf-8")
            wait_until(lambda: buzz("preview", "x").code == 2, "it listens")
            done = buzz("preview", "x")
            assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
            assert f"of uid {NOBODY} is at the other end" in done.err
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@pytest.mark.req("OPS-01", "OPS-02")
@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (b'{"v":1,"buzz":"0.0.1","pid":1}\n', f"is Buzz 0.0.1, and this command is {VERSION}: end it with `kill "),
        (b'{"v":2,"buzz":"9"}\n', f"is Buzz 9, and this command is {VERSION}: end it with `kill "),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak as a host of Buzz"),
        (b'{"id":null,"error":{"kind":"refused","message":"no room"}}\n', "buzz: no room\n"),
        (b"", "does not answer within 5 s: wait, or end it with `kill "),
    ],
)
def test_a_host_that_cannot_be_asked_is_one_line(
    greeting: bytes, words: str, environment: dict[str, str], work: Path, buzz: Buzz, home: Path
) -> None:
    home.mkdir()
    with socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor(1) as pool:
        listening.bind(str(home / "s"))
        listening.listen()
        (home / "serve.lock").write_text(json.dumps({"pid": os.getpid(), "socket": str(home / "s")}), encoding="utf-8")
        asked = pool.submit(buzz, "preview", "x")
        connection, _ = listening.accept()
        with connection:
            connection.sendall(greeting)
            done = asked.result()
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert words in done.err


@pytest.mark.req("OPS-03", "SEC-01")
def test_a_home_of_a_long_path_is_served_and_found(
    environment: dict[str, str], work: Path, buzz: Buzz, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 100) / ("y" * 100)
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    put(long, "brief", speaks("Be brief."))
    with serving({**environment, "XDG_RUNTIME_DIR": str(runtime)}, work, "--home", str(long)) as host:
        assert Path(host.socket).parent == runtime / "buzz"
        # A client of another environment finds it as well.
        assert buzz("preview", "--home", long, "x").code == 0
        assert f"process {host.process.pid} is its running host" in buzz("serve", "--home", long).err
        with Line(host.socket) as line:
            assert line.line() == {"v": 1, "buzz": VERSION, "pid": host.process.pid}
        assert host.end() == (0, b"")
        assert not list((runtime / "buzz").iterdir())


@pytest.mark.req("OPS-01", "OPS-03")
def test_a_home_that_cannot_be_served_is_one_line(
    environment: dict[str, str], work: Path, buzz: Buzz, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = buzz("serve", "--home", tmp_path / "file")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    home.mkdir()
    (home / "buzz.toml").write_text("nonsense", encoding="utf-8")
    done = buzz("serve")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    (home / "buzz.toml").unlink()
    (home / "state.db").write_text("this is no database " * 100, encoding="utf-8")
    done = buzz("serve")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert "state.db" in done.err
    (home / "state.db").unlink()
    with serving(environment, work) as host:
        assert host.end() == (0, b"")


@pytest.mark.req("OPS-01", "OPS-03")
@pytest.mark.parametrize("options", ["ro", "size=4k"], ids=["read-only", "full"])
def test_a_disk_that_cannot_be_written_is_one_line(options: str, buzz: Buzz, tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "buzz-test", str(place)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        done = buzz("serve", "--home", place)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert str(place) in done.err


@pytest.mark.req("OPS-03")
@pytest.mark.usefixtures("parrot")
def test_garbage_on_the_socket_hurts_nobody(environment: dict[str, str], work: Path, buzz: Buzz) -> None:
    with serving(environment, work) as host:
        for octets in (
            b"\0" * 100_000,
            os.urandom(100_000),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"{" * 100_000,
            b"\n" * 9,
        ):
            with Line(host.socket) as line:
                line.send(octets)
                assert line.line() is not None
        assert buzz("preview", "--harness", "parrot", "Hello").code == 0
        assert host.end() == (0, b"")
