"""Real trees of processes, tagged in their environment so that each member is found again, wherever it went."""

from __future__ import annotations

import os
import time
from pathlib import Path
from uuid import uuid4

TAG = "TREE_TAG"
DEADLINE_S = 15.0
# It ignores SIGTERM; so do a child in its group, an orphan in a session of its own, and one that forked twice.
STUBBORN = """
trap '' TERM
sleep 1000 &
setsid sh -c 'trap "" TERM; sleep 1000 & while :; do sleep 1; done' &
(setsid sh -c '(setsid sleep 1000 &) ; trap "" TERM; while :; do sleep 1; done' &)
echo ready
while :; do sleep 1; done
"""
STUBBORN_SIZE = 6


def tagged() -> tuple[str, dict[str, str]]:
    """A fresh tag, and the environment that carries it."""
    tag = str(uuid4())
    return tag, {TAG: tag, "PATH": os.environ["PATH"]}


def members(tag: str) -> dict[int, str]:
    """The living processes with this tag: pid -> command. A zombie is dead."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{TAG}={tag}".encode() not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            state = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if state not in "ZX":
            found[int(entry.name)] = command
    return found


def wait_until_gone(tag: str, deadline_s: float = DEADLINE_S) -> None:
    """Fails when a member of the tree is still there after the deadline."""
    until = time.monotonic() + deadline_s
    while left := members(tag):
        assert time.monotonic() < until, f"still alive: {left}"
        time.sleep(0.02)


def wait_for_size(tag: str, size: int, deadline_s: float = DEADLINE_S) -> dict[int, str]:
    """The members, once there are at least so many."""
    until = time.monotonic() + deadline_s
    while len(found := members(tag)) < size:
        assert time.monotonic() < until, f"only {found}"
        time.sleep(0.02)
    return found


def zombies_of(parent: int) -> list[int]:
    """Dead children of `parent` that nobody has collected."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == parent:
            found.append(int(entry.name))
    return found
