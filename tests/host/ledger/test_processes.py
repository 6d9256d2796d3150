"""Real processes on one home: killed at any moment, several at once. All that was acknowledged is there, and whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from buzz_host.ledger import mirrored_head, queries, verify
from buzz_host.settings import Home
from buzz_host.store import Store
from tests.conftest import SOAK

ROOT = Path(__file__).parents[3]
KILLS = 100 if SOAK else 10
PROCESSES = 4
TASKS = 4
TURNS_A_TASK = 500 if SOAK else 40

# Records turns from several tasks at once and prints each id once the store has answered.
WRITER = """
import asyncio, os, sys
from pathlib import Path
import attrs
from buzz_author.sections import render
from buzz_host.ledger import EndRecord, record_end, record_turn
from buzz_host.settings import Home
from buzz_host.store import Store
from tests.host.ledger.making import NOON, instructions, turn_record

name, tasks, turns = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

async def task(store, number):
    for turn in range(turns):
        own = turn_record(turn, session=f"{name}-{number}", plugins=("style-guide", name))
        sections = (*own.sections, instructions("words", f"only {name} {number} {turn}"))
        own = attrs.evolve(own, turn=f"{name}-{number}-{turn}", sections=sections, text=render(sections))
        await store.write(lambda tx: record_turn(tx, own))
        os.write(1, f"sent {own.turn}\\n".encode())
        await store.write(lambda tx: record_end(tx, EndRecord(own.turn, NOON, "completed", f"reply {turn % 7}")))
        os.write(1, f"ended {own.turn}\\n".encode())

async def main():
    with Store.open(Home(Path(sys.argv[1]))) as store:
        await asyncio.gather(*[task(store, number) for number in range(tasks)])

asyncio.run(main())
"""


def writer(home: Home, name: str, turns: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(home.root), name, str(TASKS), str(turns)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def entries(home: Home) -> set[str]:
    with Store.open(home) as store, store.read() as connection:
        assert [str(each) for each in verify(connection, mirrored=mirrored_head(home.head))] == []
        rows = connection.execute("SELECT kind, turn FROM entries").fetchall()
    return {f"{'sent' if kind == 'turn_sent' else 'ended'} {turn}" for kind, turn in rows}


@pytest.mark.req("OPS-03", "AUD-03")
def test_killed_at_any_moment_everything_acknowledged_is_there_and_the_chain_is_whole(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path / "home")
    choice = random.Random(3)
    acknowledged: set[str] = set()
    for number in range(KILLS):
        process = writer(home, f"k{number}", 100_000)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(choice.randint(1, 200))]
        os.kill(process.pid, signal.SIGKILL)
        rest, said = process.communicate(timeout=60)
        assert said == ""
        # The kernel takes a line whole or not at all; only the last one may be cut off by the pipe's end.
        acknowledged |= {line.strip() for line in [*lines, *rest.splitlines(keepends=True)] if line.endswith("\n")}
        there = entries(home)
        assert acknowledged <= there
    with Store.open(home) as store, store.read() as connection:
        unended = [row.turn for row in queries.turns(connection, limit=10**6) if row.status == "unended"]
        assert len(unended) <= KILLS * TASKS
        assert all(f"ended {turn}" not in acknowledged for turn in unended)


@pytest.mark.req("OPS-03", "AUD-03")
def test_four_processes_on_one_home_lose_no_entry_and_keep_one_chain(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path / "home")
    processes = [writer(home, f"p{number}", TURNS_A_TASK) for number in range(PROCESSES)]
    acknowledged: set[str] = set()
    for process in processes:
        out, said = process.communicate(timeout=110)
        assert (process.returncode, said) == (0, "")
        acknowledged |= set(out.splitlines())
    assert len(acknowledged) == 2 * PROCESSES * TASKS * TURNS_A_TASK
    assert entries(home) == acknowledged
    with Store.open(home) as store, store.read() as connection:
        repeated = connection.execute("SELECT count(*) - count(DISTINCT sha256) FROM bodies").fetchone()
        assert repeated == (0,), "a body that several processes said is stored once"
        newest = connection.execute("SELECT max(seq) FROM entries").fetchone()[0]
    head = mirrored_head(home.head)
    assert head is not None
    assert head.seq == newest, "the last one to close mirrored the end of the chain"
