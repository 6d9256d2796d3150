"""The set that holds now for an attached session: taken from a running host, spread over the entries of the hook.

A person waits for this, so it is taken within a bound of its own: plugins that are still starting are shown as such
instead of being waited for, and guards have less time together than in a session of ours (AUT-03, INS-14).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import attrs

from buzz_author.errors import BuzzError, PluginFault
from buzz_author.sections import Section
from buzz_author.turns import LeftOut
from buzz_host.attach.parts import ENTRY_MAX_UNITS, spread, units
from buzz_host.attach.registry import HARNESS, Attachment
from buzz_host.plugins.contributions import Contribution, Note
from buzz_host.services.host import Host
from buzz_host.turns.guards import GuardLimits, GuardRunner
from buzz_host.turns.snapshot import AgentView, SnapshotTaker

log = logging.getLogger(__name__)

# How long plugins that were just switched on or changed are waited for, and what all guards may take together.
REFRESH_PATIENCE_S: Final = 0.3
GUARDS_TOGETHER_S: Final = 0.4


@attrs.frozen
class CurrentSet:
    """What is to be handed over for one prompt: the texts of the entries, and everything that the ledger wants to know.

    `taken_notes` are to be given back where it was not handed over.
    """

    agent: str
    model: str | None
    cwd: str
    taken_at: datetime
    revision: int
    texts: tuple[str, ...]
    sections: tuple[Section, ...]
    left_out: tuple[LeftOut, ...]
    faults: tuple[PluginFault, ...]
    plugins: tuple[tuple[str, str], ...]
    taken_notes: tuple[Contribution[Note], ...] = ()


class SetTaker:
    """Takes the sets of one host for its attachments."""

    def __init__(self, host: Host, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._host = host
        limits = GuardLimits(together_s=GUARDS_TOGETHER_S)
        self._snapshots = SnapshotTaker(host.plugins.contributions, GuardRunner(limits), now)
        self._refreshing: asyncio.Task[None] | None = None

    async def refresh(self, patience_s: float) -> None:
        """Bring the plugins in line with the files, and wait `patience_s` for that at most; it then goes on behind."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._host.plugins.refresh())
        done, _ = await asyncio.wait([self._refreshing], timeout=patience_s)
        if done and (error := self._refreshing.exception()) is not None:
            # With a broken buzz.toml the last settings that could be read go on to hold.
            log.warning("the plugins could not be looked at anew: %s", error)

    async def take(self, attachment: Attachment, cwd: Path, *, notes: Literal["take", "leave"]) -> CurrentSet:
        """The set for a session of `attachment` in `cwd`. Raises `BuzzError` for an agent that is gone."""
        await self.refresh(REFRESH_PATIENCE_S)
        host = self._host
        spec = host.agents.get(attachment.agent or host.plugins.settings.default_agent)
        taken = await self._snapshots.take(
            AgentView(spec.name, spec.scope, HARNESS, spec.model, cwd), host.plugins.standings(spec.name), notes=notes
        )
        snapshot = taken.snapshot
        parts = spread((*snapshot.notes, *snapshot.instructions), attachment.entries)
        no_room = tuple(
            LeftOut(each.source.plugin, each.source.id, "no-room", _no_room(each, attachment.entries))
            for each in parts.left
            if each.source is not None
        )
        return CurrentSet(
            agent=spec.name,
            model=spec.model,
            cwd=str(cwd),
            taken_at=snapshot.taken_at,
            revision=snapshot.revision,
            texts=parts.texts,
            sections=parts.sections,
            left_out=tuple(sorted((*snapshot.left_out, *no_room), key=lambda row: (row.plugin, row.id))),
            faults=(*host.plugins.turn_faults(told=notes == "take"), *taken.faults),
            plugins=snapshot.plugins,
            taken_notes=taken.taken_notes,
        )

    def looks(self, attached: Sequence[Attachment]) -> object:
        """What changes when a set may have changed, apart from what guards look at."""
        plugins = self._host.plugins
        default = plugins.settings.default_agent
        return plugins.contributions.revision, [plugins.standings(each.agent or default) for each in attached]

    def give_back(self, taken: CurrentSet) -> None:
        """The one-time notes of a set that was not handed over wait for the next prompt."""
        self._host.plugins.contributions.put_back(taken.taken_notes)

    async def close(self) -> None:
        """Wait for a look that is under way."""
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])


def resting_folder(attachment: Attachment) -> Path:
    """The working directory that is assumed where no session says its own: the project, else the person's home."""
    if attachment.folder:
        return Path(attachment.folder)
    try:
        return Path.home()
    except RuntimeError:
        raise BuzzError("this account has no home folder: set HOME") from None


def _no_room(each: Section, entries: int) -> str:
    size = units(each.rendered)
    room = "1 entry" if entries == 1 else f"{entries} entries"
    return f"{size:,} characters, where {room} of {ENTRY_MAX_UNITS:,} were full: buzz attach claude --entries adds room"
