"""The programs of this host: each below a keeper, each belonging to an owner, all of them ended with it (DESIGN 12).

A child's whole tree dies when it ends, when its owner is ended, and when the host dies, even by SIGKILL. The host is a
sub-reaper: orphans come to it, and it collects those that carry its marker, and no others, so that no other exit status
of this process is ever taken away.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shlex
import shutil
import signal
import sys
import time
from asyncio.subprocess import PIPE
from asyncio.subprocess import Process as AsyncioProcess
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_host.processes import launcher as keeper
from buzz_host.processes.child import ChildProcess, Streams
from buzz_host.processes.launcher import Row
from buzz_host.settings.files import naming

# Of the time for an ending, this part is for ending in order; then the keepers kill, and at last we do.
_ASKED_SHARE: Final = 0.6
_LAST_WAIT_S: Final = 1.0
_PAUSE_S: Final = 0.01
CLOSE_DEADLINE_S: Final = 10.0
CLOSING: Final = "this host is closing: it starts no programs any more"

_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_KEEPER_PATH: Final = Path(keeper.__file__)


class ProcessesClosed(BuzzError):
    """A program was to be started after `Children.close()`."""


@attrs.frozen
class _Members:
    """The living processes of one owner: its keepers, and all others that carry its marker."""

    keepers: tuple[Row, ...]
    others: tuple[Row, ...]

    @property
    def all(self) -> tuple[Row, ...]:
        return (*self.keepers, *self.others)


_counter = itertools.count(1)
_reapers: set[Children] = set()
"""Those for which this process is a sub-reaper. It stops being one after the last: nobody else would collect here."""


class Children:
    """Starts programs and ends them with everything that they started.

    `folder` is private to hosts of one home (mode 0700); each of these keeps a folder of its own in it while it runs.
    `spawn` may be called in any event loop, and its process belongs to that loop; `end` and `close` in any other.
    """

    def __init__(self, folder: Path, *, subreaper: bool = True) -> None:
        """`subreaper` False: leave the orphans of this process to the system, where another program embeds the host."""
        self.marker: Final = f"{keeper.host_marker()}.{next(_counter)}"
        self._folder = folder / self.marker
        self._subreaper = subreaper
        self._children: set[ChildProcess] = set()
        self._orphans: dict[int, str] = {}
        """What has lost its keeper: pid -> start time. More than one thread may look after it."""
        self._forced: set[int] = set()
        """Keepers that were killed."""
        self._launchers = itertools.count(1)
        self._closed = False

    async def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, owner: str) -> ChildProcess:
        """Start a program. Its environment is `env` and the marker, and nothing of this process's own.

        Raises `FileNotFoundError` for a program or a `cwd` that is not there, `ProcessesClosed` after `close`.
        """
        notes = self._ready(owner)
        program = shutil.which(argv[0], path=env.get("PATH", os.defpath))
        if program is None:
            raise FileNotFoundError(f"no program '{argv[0]}' to run")
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: Streams(loop, self._tend),
            *self._keeper_argv(),
            keeper.KEEP_ALL,
            os.path.abspath(program),  # noqa: PTH100  # symlinks stay: a program may look at its own name
            *argv[1:],
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env={**env, **self._marker_of(owner), keeper.KEEPER_VARIABLE: str(notes)},
        )
        child = ChildProcess(AsyncioProcess(transport, protocol, loop), transport, owner, loop)
        if self._closed:  # meanwhile
            child.kill()
            await child.wait()
            raise ProcessesClosed(CLOSING)
        for ended in [each for each in self._children if each.returncode is not None]:
            self._children.discard(ended)
        self._children.add(child)
        return child

    def launcher(self, program: Path, owner: str, *, keep: Collection[str]) -> Path:
        """An executable that starts `program` through a keeper, for an SDK that does the spawning by itself.

        An SDK merges what it is given over the environment of this process. Of that, only the variables named in `keep`
        reach `program`, and the marker: a host's secret is not in the list, so it does not get there (SEC-02).
        """
        notes = self._ready(owner)
        wrong = [name for name in keep if not name or "," in name or "=" in name]
        if wrong:
            raise ValueError(f"not names of environment variables: {', '.join(map(repr, wrong))}")
        marker = {**self._marker_of(owner), keeper.KEEPER_VARIABLE: str(notes)}
        exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in marker.items())
        command = shlex.join([*self._keeper_argv(), ",".join(sorted(keep)) or "-", str(program)])
        path = self._folder / f"start-{next(self._launchers)}"
        with naming(path):
            path.write_bytes(os.fsencode(f'#!/bin/sh\nexport {exports}\nexec {command} "$@"\n'))
            path.chmod(0o700)
        return path

    async def end(self, owner: str, *, deadline_s: float) -> tuple[int, ...]:
        """End every process of `owner`: SIGTERM first, then SIGKILL to all below and all marked, within `deadline_s`.

        Returns the pids that are still there after that (a process in the kernel's hands); usually none.
        """
        return await self._end(owner, deadline_s)

    async def close(self, *, deadline_s: float = CLOSE_DEADLINE_S) -> tuple[int, ...]:
        """End the processes of all owners, and remove this host's folder. Nothing can be started after that."""
        self._closed = True
        left = await self._end(None, deadline_s)
        shutil.rmtree(self._folder, ignore_errors=True)
        if self in _reapers:
            _reapers.discard(self)
            if not _reapers:
                keeper.become_subreaper(False)
        return left

    def collect(self) -> None:
        """End our orphans, those whose keeper was killed, and take their exit statuses when they are dead."""
        self._orphan_noted()
        for pid, started in list(self._orphans.items()):
            row = keeper.process(pid)
            if row is None or row.started != started:
                self._orphans.pop(pid, None)
            elif not row.zombie:
                _kill(row)
            elif row.parent == os.getpid():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                self._orphans.pop(pid, None)
            elif row.parent not in self._orphans and row.parent not in self._forced:  # the system collects it
                self._orphans.pop(pid, None)

    def _tend(self) -> None:
        """A keeper has ended. If it was killed, what it kept is an orphan now, and holds its pipes: end it at once."""
        if self._closed:
            return
        self._orphan_noted()
        if self._orphans:
            self._members(None)  # all that is in no keeper's care any more
            self.collect()
            asyncio.get_running_loop().call_later(_PAUSE_S, self._tend)

    def _ready(self, owner: str) -> Path:
        """The folder of the keepers' notes, made on first need."""
        if self._closed:
            raise ProcessesClosed(CLOSING)
        if not _OWNER.fullmatch(owner):
            raise ValueError(f"not an owner of processes: {owner!r}; letters, digits and ._:- are allowed")
        notes = self._folder / "keepers"
        if not notes.is_dir():
            self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            notes.mkdir(mode=0o700, exist_ok=True)
            if self._subreaper:
                keeper.become_subreaper()
                _reapers.add(self)
        else:
            self.collect()
        return notes

    def _keeper_argv(self) -> list[str]:
        return [sys.executable, "-I", "-S", str(_KEEPER_PATH)]

    def _marker_of(self, owner: str) -> dict[str, str]:
        return {keeper.HOST_VARIABLE: self.marker, keeper.SESSION_VARIABLE: owner}

    def _members(self, owner: str | None) -> _Members:
        rows = keeper.table()
        keepers: list[Row] = []
        others: list[Row] = []
        for pid, variables in keeper.environments(rows).items():
            if variables.get(keeper.HOST_VARIABLE) != self.marker or rows[pid].zombie:
                continue
            if owner is not None and variables.get(keeper.SESSION_VARIABLE) != owner:
                continue
            (keepers if keeper.KEEPER_VARIABLE in variables else others).append(rows[pid])
        kept = {row.pid for row in keepers}
        self._orphans |= {row.pid: row.started for row in others if not _is_below(row, kept, rows)}
        return _Members(tuple(keepers), tuple(others))

    async def _end(self, owner: str | None, deadline_s: float) -> tuple[int, ...]:
        begun = time.monotonic()
        keepers = self._members(owner).keepers
        _signal(keepers, signal.SIGTERM)
        try:
            await self._gone(owner, begun + deadline_s * _ASKED_SHARE)
        finally:  # also when we are cancelled: then without waiting
            _signal(filter(_lives, keepers), keeper.KILL_ALL_SIGNAL)
        last = max(begun + deadline_s, time.monotonic() + _LAST_WAIT_S)
        if not await self._gone(owner, (time.monotonic() + last) / 2):
            self._force(self._members(owner))
            await self._gone(owner, last)
        for child in [each for each in self._children if owner in (None, each.owner)]:
            await child.let_go(max(last - time.monotonic(), _LAST_WAIT_S))
            self._children.discard(child)
        return tuple(row.pid for row in self._members(owner).all)

    def _force(self, members: _Members) -> None:
        """Kill everything; a keeper too, one that is stopped, say. What is below it is then ours to collect."""
        rows = keeper.table()
        for row in members.keepers:
            # The keeper itself is not an orphan: its exit status belongs to whoever started it.
            self._forced.add(row.pid)
            self._orphans |= {each.pid: each.started for each in keeper.descendants(row.pid, rows)}
        for row in members.all:
            _kill(row)
        self.collect()

    async def _gone(self, owner: str | None, deadline: float) -> bool:
        """Wait until nothing of the owner lives and all orphans are collected; False when the time is over."""
        members = self._members(owner)
        while True:
            self.collect()
            if not self._orphans and not any(map(_lives, members.all)):
                members = self._members(owner)  # what was forked while we looked
                if not members.all and not self._orphans:
                    return True
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_PAUSE_S)

    def _orphan_noted(self) -> None:
        """The programs of keepers that died without taking back their note, so by SIGKILL, are orphans."""
        if not self._folder.is_dir():
            return
        for note in (self._folder / "keepers").iterdir():
            try:
                keeper_started, pid, started = note.read_text(encoding="utf-8").split()
            except (OSError, ValueError):  # taken back, or not yet written, while we looked
                continue
            row = keeper.process(int(note.name))
            if row is None or row.zombie or row.started != keeper_started:
                self._orphans[int(pid)] = started
                note.unlink(missing_ok=True)


class ProgramHost:
    """The processes of one session: the part of a `SessionHost` that starts and ends programs."""

    def __init__(self, children: Children, owner: str) -> None:
        self._children = children
        self._owner = owner

    async def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> ChildProcess:
        return await self._children.spawn(argv, env=env, cwd=cwd, owner=self._owner)

    def launcher(self, program: Path, *, keep: Collection[str]) -> Path:
        return self._children.launcher(program, self._owner, keep=keep)

    async def end(self, *, deadline_s: float) -> None:
        await self._children.end(self._owner, deadline_s=deadline_s)


def _is_below(row: Row, kept: set[int], rows: dict[int, Row]) -> bool:
    """Whether one of `kept` stands above `row`: it will end with that."""
    seen: set[int] = set()
    while row.parent in rows and row.parent not in seen:
        if row.parent in kept:
            return True
        seen.add(row.parent)
        row = rows[row.parent]
    return False


def _lives(row: Row) -> bool:
    now = keeper.process(row.pid)
    return now is not None and not now.zombie and now.started == row.started


def _kill(row: Row) -> None:
    if _lives(row):
        _signal((row,), signal.SIGKILL)


def _signal(rows: Iterable[Row], number: signal.Signals) -> None:
    for row in rows:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(row.pid, number)
