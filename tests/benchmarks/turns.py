"""The speed of a turn: its text when nothing has changed, and all that the host adds to what a harness does.

The plugins, the guards, the store and the harness are real; only the model is missing.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import attrs

from buzz_author.events import TurnEnded
from buzz_author.harness import SessionSpec
from buzz_author.instructions import AgentHandle, check_instructions
from buzz_author.turns import Turn
from buzz_host import Host
from buzz_host.agents.handle import TurnAgent
from buzz_host.plugins.contributions import INSTRUCTIONS, Contributions
from buzz_host.turns.compose import compose
from buzz_host.turns.guards import GuardRunner
from buzz_host.turns.snapshot import AgentView, PluginStanding, SnapshotTaker
from tests.benchmarks.measuring import compare, growth, paired_row
from tests.benchmarks.row import Row
from tests.host.services.echo_harness import EchoHarness

ECHO = Path(__file__).resolve().parents[1] / "host" / "services" / "echo_harness.py"
THREAD_HOP_S = 0.0002
ADDED_AT_MOST_S = 0.003
TURNS = 300


def rows() -> Iterator[Row]:
    loop = asyncio.new_event_loop()
    try:
        ours = UnchangedTurn(100, loop)
        yield compare(
            "turn text, 100 × 1 KB, unchanged, with `when`",
            ours.text,
            ours.bare,
            peer_name="a bare loop over the callables, and a join",
            at_most=1.5,
            extra_s=THREAD_HOP_S,
        )
        yield growth(
            "turn text: 10 → 10,000 instructions",
            lambda number: UnchangedTurn(number, loop).text,
            10,
            factor=1000,
            at_most=1100,
            note="linear is 1000×",
        )
        yield loop.run_until_complete(added_by_the_host())
    finally:
        loop.close()


class UnchangedTurn:
    """The same turn again and again: `number` instructions of 1 KB, each with a guard that admits it."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        contributions = Contributions()
        self._snapshots = SnapshotTaker(contributions, GuardRunner(), lambda: datetime.now(UTC))
        self._parts = []
        scope = contributions.open("bench", "r1")
        for index in range(number):
            text = f"Instruction {index}. " + "Write plain words. " * 53
            checked = check_instructions("bench", None, id=f"i{index:05d}", text=text[:1024], when=_always)
            self._parts.append((checked.section.rendered, _always))
            scope.register(INSTRUCTIONS, checked.id, checked)
        scope.show()
        self._handle = TurnAgent("main", "core", "echo", None, Path("/project"), lambda: ())

    def text(self) -> str:
        return self._loop.run_until_complete(self._text())

    async def _text(self) -> str:
        taken = await self._snapshots.take(
            AgentView("main", "core", "echo", None, Path("/project")),
            (PluginStanding("bench", "r1", "active"),),
            notes="leave",
        )
        return compose(turn_id="t", kind="message", session="s", snapshot=taken.snapshot, message="Hello").text

    def bare(self) -> str:
        handle = self._handle
        return "\n\n".join([text for text, when in self._parts if when(handle) is True])


async def added_by_the_host() -> Row:
    """Whole turns through the host, with the ledger, beside the same harness without the host."""
    ours_s: list[float] = []
    peer_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with Host(Path(folder) / "home", plugins=[ECHO]) as host, host.session(harness="echo") as session:
            preview = await host.preview("Hello", harness="echo")
            bare = await EchoHarness().open(_no_spec(), None)  # type: ignore[arg-type]
            stream = bare.events()
            for _ in range(TURNS):
                started = time.perf_counter()
                async with session.turn("Hello") as events:
                    async for _event in events:
                        pass
                ours_s.append(time.perf_counter() - started)
                turn = _bare_turn(preview.text)
                started = time.perf_counter()
                await bare.send(turn)
                async for event in stream:
                    if isinstance(event, TurnEnded):
                        break
                peer_s.append(time.perf_counter() - started)
            await bare.close(deadline_s=1)
            async for _rest in stream:
                pass
    added = statistics.median(ours - peer for ours, peer in zip(ours_s, peer_s, strict=True))
    row = paired_row("a whole turn, no hooks", ours_s, peer_s, peer_name="the same harness without the host")
    return attrs.evolve(
        row,
        owed="≤ 3 ms added",
        missed=added > ADDED_AT_MOST_S,
        note=f"{added * 1e3:.2f} ms added at p50, two syncs in it",
    )


def _always(_: AgentHandle) -> bool:
    return True


def _no_spec() -> SessionSpec:
    handle = TurnAgent("main", "core", "echo", None, Path("/"), lambda: ())
    return SessionSpec("s", handle, Path("/"), Path("/"), "")


def _bare_turn(text: str) -> Turn:
    return Turn(str(uuid4()), "message", "s", None, "Hello", (), text)  # type: ignore[arg-type]
