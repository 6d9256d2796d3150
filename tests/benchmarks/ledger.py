"""The speed of the ledger: one turn beside the same bytes written bare, how it grows, and audits of a large one.

Every write is durable (`synchronous = FULL`) and goes the way that a session takes it: through the store's queue, its
thread and its one sync, with all indexes.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from buzz_author.sections import Section, Source, render, section
from buzz_host.ledger import EndRecord, TurnRecord, queries, record_end, record_turn
from buzz_host.ledger.search import index, search
from buzz_host.settings import Home
from buzz_host.store import Store, Transaction
from buzz_host.store.database import writing_connection
from tests.benchmarks.measuring import paired_row, percentile
from tests.benchmarks.row import Row

SOAK = os.environ.get("BUZZ_SOAK") == "1"
INSTRUCTIONS = 18
BODY_BYTES = 1024
ENTRY_BYTES = 3072
PAIRS = 3000 if SOAK else 600
RAW_LOOP = "a raw loop that writes all 20 and the entry, FULL"
GROWTH_FROM = 1_000
GROWTH_TO = 100_000 if SOAK else 10_000
MEASURED_TURNS = 300
AUDITED_TURNS = 1_000_000 if SOAK else 100_000
SEARCHED_TURNS = 100_000 if SOAK else 5_000
AUDIT_AT_MOST_S = 0.05
TURNS_A_WRITE = 1_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield beside_a_raw_loop(Path(folder) / "usual", new=False)
        yield beside_a_raw_loop(Path(folder) / "new", new=True)
        yield asyncio.run(through_the_store(Path(folder) / "store"))
        yield from grown(Path(folder) / "grown")
        yield from audited(Path(folder) / "audited")
        yield from searched(Path(folder) / "searched")


def beside_a_raw_loop(folder: Path, *, new: bool) -> Row:
    """One turn of 20 bodies in a transaction of its own, beside a bare transaction of the same bytes, in turns.

    In the usual turn the 18 instructions are those of the turn before; with `new`, all 20 were never said before.
    """
    home = Home.resolve(folder)
    Store.open(home).close()
    connection = writing_connection(home.database)
    raw = RawLoop(folder / "raw.db")
    remembered: dict[str, object] = {}
    ours_s, peer_s = [], []
    for record in turns_to_record(new=new):
        texts = [each.body for each in record.sections]
        started = time.perf_counter()
        raw.write(texts)
        between = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        record_turn(Transaction(connection, home, remembered), record)
        connection.execute("COMMIT")
        peer_s.append(between - started)
        ours_s.append(time.perf_counter() - between)
    raw.close()
    connection.close()
    return paired_row(
        "ledger, one turn of 20 bodies" + (", each of them new" if new else ", the usual turn"),
        ours_s,
        peer_s,
        peer_name=RAW_LOOP,
        at_most=2.0,
        note="" if new else "18 instructions as before, 2 bodies new",
    )


async def through_the_store(folder: Path) -> Row:
    """The usual turn as a session records it: through the queue, to the writer's thread, and the answer back."""
    with Store.open(Home.resolve(folder)) as store:
        raw = RawLoop(folder / "raw.db")
        ours_s, peer_s = [], []
        for record in turns_to_record(new=False):
            texts = [each.body for each in record.sections]
            started = time.perf_counter()
            raw.write(texts)
            between = time.perf_counter()
            await store.write(lambda tx: record_turn(tx, record))  # noqa: B023
            peer_s.append(between - started)
            ours_s.append(time.perf_counter() - between)
        raw.close()
    return paired_row(
        "ledger, the usual turn through the store",
        ours_s,
        peer_s,
        peer_name=RAW_LOOP,
        note="with the hop to the writer's thread and back",
    )


def turns_to_record(*, new: bool) -> Iterator[TurnRecord]:
    instructions = new_instructions()
    for number in range(PAIRS):
        yield made(number, new_instructions() if new else instructions)


class RawLoop:
    """The peer: one connection, the same durability, nothing but the bytes."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE bodies (id INTEGER PRIMARY KEY, body BLOB)")

    def write(self, texts: list[str]) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for text in texts:
            execute("INSERT INTO bodies (body) VALUES (?)", (text.encode(),))
        execute("INSERT INTO bodies (body) VALUES (?)", (b"e" * ENTRY_BYTES,))
        execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def grown(folder: Path) -> Iterator[Row]:
    """One turn of 20 new bodies in a small ledger and in a large one, in turns; nothing may grow but the disk."""
    with Store.open(Home.resolve(folder / "small")) as small, Store.open(Home.resolve(folder / "large")) as large:
        fill(small, GROWTH_FROM)
        fill(large, GROWTH_TO)
        small_s, large_s = [], []
        for number in range(MEASURED_TURNS):
            for store, samples in ((small, small_s), (large, large_s)):
                record = made(10**9 + number, new_instructions())
                started = time.perf_counter()
                store.write_sync(lambda tx: record_turn(tx, record))  # noqa: B023
                samples.append(time.perf_counter() - started)
    yield paired_row(
        f"ledger, one turn after {GROWTH_TO:,} turns",
        large_s,
        small_s,
        peer_name=f"the same after {GROWTH_FROM:,}",
        at_most=2.0,
    )


def audited(folder: Path) -> Iterator[Row]:
    """The queries of an auditor over a large ledger: one home, 5 agents, a plugin that spoke once a thousand turns."""
    with Store.open(Home.resolve(folder)) as store:
        fill(store, AUDITED_TURNS)
        middle = f"{AUDITED_TURNS // 2:08d}"
        for name, query in (
            ("turns", lambda connection: queries.turns(connection)),
            ("turns of an agent", lambda connection: queries.turns(connection, agent="agent-3")),
            ("turns of a session", lambda connection: queries.turns(connection, session="session-0007")),
            ("turns of an agent with a plugin", lambda c: queries.turns(c, agent="agent-0", plugin="rare")),
            ("turns, a page from the middle", lambda c: queries.turns(c, agent="agent-1", before=AUDITED_TURNS)),
            ("plugin, in every turn", lambda connection: queries.plugin(connection, "plugin-00")),
            ("plugin, once in a thousand", lambda connection: queries.plugin(connection, "rare")),
            ("one turn by the beginning of its id", lambda connection: queries.turn(connection, f"turn-{middle}")),
        ):

            def ask(query: object = query) -> None:
                with store.read() as connection:
                    query(connection)  # type: ignore[operator]

            yield at_most(f"audit over {AUDITED_TURNS:,} turns: {name}", [seconds(ask) for _ in range(100)])


def searched(folder: Path) -> Iterator[Row]:
    """The index of the search, a step at a time as it is made between turns, and queries by it."""
    with Store.open(Home.resolve(folder)) as store:
        fill(store, SEARCHED_TURNS)
        steps = []
        while store.write_sync(index):
            steps.append(seconds(lambda: store.write_sync(index)))
        with store.read() as connection:
            bodies = connection.execute("SELECT count(*) FROM bodies").fetchone()[0]
            steps = steps[:-1] or steps  # the last one had less to do
            yield at_most(f"audit search over {bodies:,} bodies: a step of the index", steps)
            for name, words in (
                ("a word in every turn", "message"),
                ("two words, one of them rare", f"message {SEARCHED_TURNS // 2}"),
                ("a phrase", f'"turn {SEARCHED_TURNS // 2}"'),
                ("what begins with it", "mess*"),
                ("nothing", "nowhere"),
            ):

                def ask(words: str = words) -> object:
                    return search(connection, words)

                samples = [seconds(ask) for _ in range(100)]
                yield at_most(f"audit search over {bodies:,} bodies: {name}", samples)


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes, once."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def at_most(name: str, samples: Sequence[float]) -> Row:
    """The row of something that an auditor waits for."""
    return Row(
        name=name,
        ours_p50_s=percentile(samples, 50),
        ours_p99_s=percentile(samples, 99),
        owed=f"< {AUDIT_AT_MOST_S * 1e3:g} ms",
        missed=percentile(samples, 50) >= AUDIT_AT_MOST_S,
    )


def fill(store: Store, turns: int) -> None:
    """Record `turns` turns that ended, many in one transaction: how they got there is not what is measured."""
    standing = [new_instructions() for _ in range(5)]
    rare = instruction("rare", "seldom")
    for start in range(0, turns, TURNS_A_WRITE):

        def work(tx: Transaction, start: int = start) -> None:
            for number in range(start, min(start + TURNS_A_WRITE, turns)):
                agent = number % 5
                instructions = standing[agent] + ([rare] if number % 1000 == 0 else [])
                record = made(number, instructions, agent=f"agent-{agent}", session=f"session-{number // 100:04d}")
                record_turn(tx, record)
                record_end(tx, EndRecord(record.turn, record.at, "completed", f"reply {number}"))

        store.write_sync(work)


def made(number: int, instructions: list[Section], *, agent: str = "main", session: str = "session") -> TurnRecord:
    sections = (
        section("context", f"agent {agent}, turn {number} " + os.urandom(400).hex()),
        section("buzz-event", f"message {number} " + os.urandom(400).hex(), attributes=(("type", "message"),)),
        *instructions,
    )
    return TurnRecord(
        turn=f"turn-{number:08d}-{os.urandom(8).hex()}",
        kind="message",
        session=session,
        agent=agent,
        harness="claude",
        at=BEGIN + timedelta(seconds=number),
        text=render(sections),
        sections=sections,
        plugins=tuple((f"plugin-{index:02d}", "0" * 64) for index in range(INSTRUCTIONS)),
    )


def new_instructions() -> list[Section]:
    return [instruction(f"plugin-{index:02d}", os.urandom(BODY_BYTES // 2).hex()) for index in range(INSTRUCTIONS)]


def instruction(plugin: str, text: str) -> Section:
    return section("plugin-instructions", text, attributes=(("plugin", plugin),), source=Source(plugin, "style"))
