"""The demonstration: three example plugins, two turns of a real program in one session, one switched off between.

It lives in a folder of its own and touches nobody's home. Everything that is shown afterwards is read from that folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_author.harness import Probe
from buzz_host.examples import examples_folder
from buzz_host.plugins.linking import link
from buzz_host.services.harnesses import harness_views
from buzz_host.services.host import Host
from buzz_host.services.plugins import Switched, switch
from buzz_host.sessions.events import TurnCompleted
from buzz_host.sessions.session import Session
from buzz_host.settings import Home

HARNESS: Final = "claude"
AGENT: Final = "dev"
PLUGINS: Final = ("faulty-guard", "release-freeze", "style-guide")
SWITCHED_OFF: Final = "style-guide"
MESSAGES: Final = ("What do I have to keep in mind today?", "And now?")


@attrs.frozen
class Stage:
    """Where the demonstration happens: a home, the record of the model server, an empty folder to work in."""

    home: Home
    record: Path
    work: Path

    @classmethod
    def below(cls, folder: Path) -> Stage:
        """A stage in `folder`, with the example plugins linked into its home."""
        stage = cls(Home(folder / "home"), folder / "record.jsonl", folder / "work")
        stage.work.mkdir()
        for name in PLUGINS:
            link(stage.home, examples_folder() / name)
        return stage


class Audience:
    """What is told while it happens; each is called once its matter is on disk."""

    def __init__(
        self, ready: Callable[[Probe], None], turn: Callable[[str], None], switched: Callable[[Switched], None]
    ) -> None:
        self.ready = ready
        self.turn = turn
        self.switched = switched


async def demonstrate(stage: Stage, audience: Audience) -> None:
    """Both turns, in one session, the model rehearsed.

    Raises `BuzzError` in one line where the program is not here, or a turn does not complete.
    """
    async with Host(stage.home.root) as host:
        audience.ready(await _probe(host))
        async with host.session(
            agent=AGENT, harness=HARNESS, rehearse=True, record=stage.record, cwd=stage.work
        ) as session:
            first, second = MESSAGES
            audience.turn(await _turn(session, first))
            audience.switched(switch(stage.home, SWITCHED_OFF, on=False))
            audience.turn(await _turn(session, second))


async def _probe(host: Host) -> Probe:
    host.plugins.harness(HARNESS)  # says why, where there is none
    view = next(each for each in await harness_views(host) if each.id == HARNESS)
    if view.probe.fault is not None:
        raise BuzzError(f"the demo runs the real {view.title}, which is not here: {view.probe.fault}")
    return view.probe


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
