"""The demonstration: three example plugins, two turns of a real program in one session, one switched off between; for
each harness that is here.

Each has a folder of its own, and nobody's home is touched: of the person's, only the programs that were fetched into it
are run. Everything that is shown afterwards is read from that folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_host.examples import examples_folder
from buzz_host.plugins.linking import link
from buzz_host.services.harnesses import HarnessView, harness_views
from buzz_host.services.host import Host
from buzz_host.services.plugins import Switched, switch
from buzz_host.sessions.events import TurnCompleted
from buzz_host.sessions.session import Session
from buzz_host.settings import Home

AGENT: Final = "dev"
PLUGINS: Final = ("faulty-guard", "release-freeze", "style-guide")
SWITCHED_OFF: Final = "style-guide"
MESSAGES: Final = ("What do I have to keep in mind today?", "And now?")


@attrs.frozen
class Stage:
    """Where one harness is shown: a home, the record of the model server, an empty folder to work in."""

    harness: str
    home: Home
    record: Path
    work: Path

    @classmethod
    def below(cls, folder: Path, harness: str = "claude") -> Stage:
        """A stage in `folder`, which is made, with the example plugins linked into its home."""
        folder.mkdir(exist_ok=True)
        stage = cls(harness, Home(folder / "home"), folder / "record.jsonl", folder / "work")
        stage.work.mkdir()
        for name in PLUGINS:
            link(stage.home, examples_folder() / name)
        return stage


class Audience:
    """What is told while it happens; each is called once its matter is on disk."""

    def __init__(self, turn: Callable[[str], None], switched: Callable[[Switched], None]) -> None:
        self.turn = turn
        self.switched = switched


async def cast(folder: Path) -> tuple[HarnessView, ...]:
    """The harnesses that there are, whether their programs are here or not; `folder` is an empty one to look from.

    Raises `BuzzError` in one line where none can be shown.
    """
    async with _host(Home(folder)) as host:
        views = await harness_views(host)
        if not views:
            host.plugins.harness("claude")  # says why, where there is none
    if all(each.probe.fault is not None for each in views):
        raise BuzzError("; ".join(f"{each.title} is not here: {each.probe.fault}" for each in views))
    return views


async def demonstrate(stage: Stage, audience: Audience) -> None:
    """Both turns, in one session, the model rehearsed.

    Raises `BuzzError` in one line where the program cannot run, or a turn does not complete.
    """
    async with (
        _host(stage.home) as host,
        host.session(
            agent=AGENT, harness=stage.harness, rehearse=True, record=stage.record, cwd=stage.work, answers=False
        ) as session,
    ):
        first, second = MESSAGES
        audience.turn(await _turn(session, first))
        audience.switched(switch(stage.home, SWITCHED_OFF, on=False))
        audience.turn(await _turn(session, second))


def _host(home: Home) -> Host:
    """A host of `home` that finds the programs that were fetched into the person's own."""
    return Host(home.root, programs=Home.resolve(None).harnesses)


async def _turn(session: Session, message: str) -> str:
    """One turn, to its end; its id."""
    completed: TurnCompleted | None = None
    async with session.turn(message) as events:
        async for event in events:
            if isinstance(event, TurnCompleted):
                completed = event
    if completed is None or completed.turn is None or completed.status != "completed":
        why = completed.error if completed is not None and completed.error is not None else "it did not complete"
        raise DemonstrationFailed(f"a turn of the demo failed: {why}")
    return completed.turn


class DemonstrationFailed(BuzzError):
    """A turn of the demonstration did not complete."""
