"""The keeper: starts one program and takes its whole tree along when the program, or the host, ends (DESIGN 12).

It runs as a file, `python -I -S launcher.py KEEP PROGRAM ARGS…`, on the standard library alone: an SDK starts
it in place of its program. Standard input and output are the program's own: the keeper holds none of them. What
differs between platforms (parent-death signal, sub-reaper, table of processes) is here and nowhere else.
"""

# pathlib would cost more than all the rest: a keeper is started for every program.
# ruff: noqa: PTH108, PTH115, PTH116, PTH123, PTH208

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import Final, NamedTuple, NoReturn

LINUX: Final = sys.platform.startswith("linux")
_ON_A_MAC: Final = sys.platform == "darwin"

# The marker: which host and which session a process belongs to. Never a secret, never a program's name.
HOST_VARIABLE: Final = "BUZZ_HOST"
SESSION_VARIABLE: Final = "BUZZ_SESSION"
# Only the keeper itself has this one; its value is the folder where it notes its program.
KEEPER_VARIABLE: Final = "BUZZ_KEEPER"
MARKER_VARIABLES: Final = (HOST_VARIABLE, SESSION_VARIABLE)
KEEP_ALL: Final = "*"

KILL_ALL_SIGNAL: Final = signal.SIGUSR1
# It wakes even a keeper that somebody stopped; the reason for it is asked when it arrives.
_PARENT_DEATH_SIGNAL: Final = signal.SIGCONT
_FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_TREE_END_DEADLINE_S: Final = 10.0
_PARENT_POLL_S: Final = 0.5
_PAUSE_S: Final = 0.005
EXIT_CANNOT_RUN: Final = 126
EXIT_NOT_FOUND: Final = 127

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class Row(NamedTuple):
    """One process: its parent, when it started (in the platform's own form), whether it is dead but not collected."""

    pid: int
    parent: int
    started: str
    zombie: bool


def process(pid: int) -> Row | None:
    """The row of one process, or None when there is none."""
    if not LINUX:
        return _table_of_ps().get(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name stands in parentheses and may hold anything, parentheses too.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return Row(pid, int(fields[1]), fields[19].decode(), fields[0] in (b"Z", b"X"))


def table() -> dict[int, Row]:
    """All processes by pid."""
    if not LINUX:
        return _table_of_ps()
    rows = (process(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return {row.pid: row for row in rows if row is not None}


def descendants(pid: int, rows: dict[int, Row]) -> list[Row]:
    """Everything below `pid`, zombies too, parents before their children."""
    below: dict[int, list[Row]] = {}
    for row in rows.values():
        below.setdefault(row.parent, []).append(row)
    found: list[Row] = []
    seen = {pid}
    waiting = [pid]
    while waiting:
        for row in below.get(waiting.pop(), ()):
            if row.pid not in seen:
                seen.add(row.pid)
                waiting.append(row.pid)
                found.append(row)
    return found


def environments(pids: Iterable[int]) -> dict[int, dict[str, str]]:
    """Of each process that we may look into, the marker variables that it was started with; without any: left out."""
    if not LINUX:
        return _environments_of_ps(set(pids))
    found: dict[int, dict[str, str]] = {}
    mine = os.getuid()
    for pid in pids:
        try:
            if mine not in (0, os.stat(f"/proc/{pid}").st_uid):
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                octets = file.read()
        except OSError:
            continue
        if b"BUZZ_" not in octets:
            continue
        pairs = (entry.partition(b"=") for entry in octets.split(b"\0"))
        marked = {
            name.decode(): value.decode("utf-8", "replace")
            for name, _, value in pairs
            if name in (b"BUZZ_HOST", b"BUZZ_SESSION", b"BUZZ_KEEPER")
        }
        if marked:
            found[pid] = marked
    return found


def host_marker() -> str:
    """What identifies this process as a host: pid, start time, and the pid namespace that both belong to."""
    row = process(os.getpid())
    assert row is not None, "this process is in the table of processes"
    return f"{row.pid}.{row.started}.{_namespace()}"


def host_is_gone(marker: str) -> bool:
    """Whether the host of this marker is dead. False where it cannot be known: another container, another's marker.

    What stands behind the three parts of `host_marker` tells the users of one host apart, and is not looked at.
    """
    parts = marker.split(".")
    if len(parts) < 3 or not parts[0].isdecimal() or parts[2] != _namespace():
        return False
    row = process(int(parts[0]))
    return row is None or row.zombie or row.started != parts[1]


def _namespace() -> str:
    if not LINUX:
        return "0"
    return "".join(filter(str.isdecimal, os.readlink("/proc/self/ns/pid")))


def become_subreaper(on: bool = True) -> bool:
    """Have orphans below this process re-parented to it, or no more; False where the platform has no such thing."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, int(on))


def _die_with_parent(number: int) -> bool:
    return _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> bool:
    if not LINUX:
        return False
    import ctypes

    return int(ctypes.CDLL(None).prctl(option, value, 0, 0, 0)) == 0


def kill_below(pid: int) -> None:
    """SIGKILL to everything that lives below `pid`."""
    for row in descendants(pid, table()):
        if not row.zombie:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(row.pid, signal.SIGKILL)


def main(argv: list[str]) -> NoReturn:
    """Run the program of `argv` (what to keep of the environment, the program, its arguments) as its keeper."""
    keep, program = argv[0], argv[1:]
    parent = os.getppid()
    waited = {signal.SIGCHLD, KILL_ALL_SIGNAL, _PARENT_DEATH_SIGNAL, *_FORWARDED}
    if not _die_with_parent(_PARENT_DEATH_SIGNAL):
        waited.add(signal.SIGALRM)
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    # A blocked signal whose disposition is to be ignored may be thrown away instead of kept.
    for number in (signal.SIGCHLD, _PARENT_DEATH_SIGNAL):
        signal.signal(number, lambda *_: None)
    become_subreaper()
    with contextlib.suppress(PermissionError):  # a group leader already: the SDK gave us a session of our own
        os.setsid()
    if os.getppid() != parent or host_is_gone(os.environ.get(HOST_VARIABLE, "")):
        os._exit(EXIT_CANNOT_RUN)
    environment = _environment(keep)
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _run(program, environment, keeper, waited)
    _let_go_of_streams()
    note = _note(pid)
    if signal.SIGALRM in waited:
        signal.setitimer(signal.ITIMER_REAL, _PARENT_POLL_S, _PARENT_POLL_S)
    status = _watch(pid, parent, waited)
    _end_tree()
    if note:
        with contextlib.suppress(OSError):
            os.unlink(note)
    _leave(status)


def _environment(keep: str) -> dict[str, str]:
    names = None if keep == KEEP_ALL else {*keep.split(","), *MARKER_VARIABLES}
    given = {
        name: value
        for name, value in os.environ.items()
        if name != KEEPER_VARIABLE and (names is None or name in names)
    }
    if LINUX and "LC_CTYPE" in given:  # in the C locale, Python sets one at its start, for itself
        with open("/proc/self/environ", "rb") as file:
            if not any(entry.startswith(b"LC_CTYPE=") for entry in file.read().split(b"\0")):
                del given["LC_CTYPE"]
    return given


def _run(program: list[str], environment: dict[str, str], keeper: int, waited: set[signal.Signals]) -> NoReturn:
    """In the child: become the program, in a session of its own, dead as soon as the keeper is."""
    try:
        _die_with_parent(signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(EXIT_CANNOT_RUN)
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; a program must not inherit that
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waited)
        os.execvpe(program[0], program, environment)
    except OSError as error:
        os.write(2, f"{program[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_CANNOT_RUN)


def _let_go_of_streams() -> None:
    # Held open here, the program's end of input, or its closing of a stream, would not be seen by the other side.
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)
    os.chdir("/")


def _note(pid: int) -> str | None:
    """Note the program for the host: when we are killed, it becomes the host's child and must be collected there."""
    folder = os.environ.get(KEEPER_VARIABLE)
    keeper, program = process(os.getpid()), process(pid)
    if not folder or keeper is None or program is None:
        return None
    path = f"{folder}/{keeper.pid}"
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{keeper.started} {program.pid} {program.started}\n")
    except OSError:  # the folder is gone, so is the host
        return None
    return path


def _watch(pid: int, parent: int, waited: set[signal.Signals]) -> int:
    """Wait for the program's end, or the parent's; the wait status of the program."""
    while True:
        number = signal.sigwait(waited)
        if os.getppid() != parent or number == KILL_ALL_SIGNAL:
            kill_below(os.getpid())
        elif number in _FORWARDED:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)
        status = _collect(pid)
        if status is not None:
            return status


def _collect(pid: int) -> int | None:
    """Collect all dead children, adopted ones too; the wait status of `pid` if it is among them."""
    found: int | None = None
    with contextlib.suppress(ChildProcessError):
        while True:
            dead, status = os.waitpid(-1, os.WNOHANG)
            if dead == 0:
                break
            if dead == pid:
                found = status
    return found


def _end_tree() -> None:
    """Kill and collect what the program left behind: its orphans are our children, whatever session they are in."""
    deadline = time.monotonic() + _TREE_END_DEADLINE_S
    while time.monotonic() < deadline:
        kill_below(os.getpid())
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_PAUSE_S)


def _leave(status: int) -> NoReturn:
    """End as the program ended, by the same signal where it was one."""
    if os.WIFSIGNALED(status):
        import resource

        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else EXIT_CANNOT_RUN)


def _table_of_ps() -> dict[int, Row]:
    rows: dict[int, Row] = {}
    for line in _ps("-A", "-o", "pid=,ppid=,stat=,lstart="):
        pid, parent, state, *started = line.split()
        rows[int(pid)] = Row(int(pid), int(parent), "_".join(started), state.startswith("Z"))
    return rows


def _environments_of_ps(pids: set[int]) -> dict[int, dict[str, str]]:
    import re

    found: dict[int, dict[str, str]] = {}
    for line in _ps(*(("-AEww",) if _ON_A_MAC else ("axeww",)), "-o", "pid=,command="):
        pid, _, command = line.strip().partition(" ")
        marked = dict(re.findall(r"(?:^|\s)(BUZZ_HOST|BUZZ_SESSION|BUZZ_KEEPER)=(\S+)", command))
        if marked and int(pid) in pids:
            found[int(pid)] = marked
    return found


def _ps(*arguments: str) -> list[str]:
    import subprocess

    shown = subprocess.run(["ps", *arguments], capture_output=True, check=True, env={**os.environ, "LC_ALL": "C"})
    return shown.stdout.decode("utf-8", "replace").splitlines()


if __name__ == "__main__":
    main(sys.argv[1:])
