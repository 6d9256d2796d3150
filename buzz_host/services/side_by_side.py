"""One text through several harnesses at once, and what of it is the same: the answers, and plugins' part of the turn.

What a plugin says is meant to reach every program alike. Here that is compared section by section, and, where the model
was rehearsed, held against what each program really sent, which also shows what a program adds by itself (HAR-01).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_author.events import TurnStatus
from buzz_author.sections import render, section
from buzz_host.rehearsal import RehearsalError, read_record
from buzz_host.services.connect import HostGone
from buzz_host.services.conversation import Opener
from buzz_host.services.session_calls import OpenSession
from buzz_host.sessions import events
from buzz_host.sessions.turn_text import Event, SectionRow

# A program takes a core while it starts.
AT_ONCE_MIN: Final = 2


@attrs.frozen
class Side:
    """How one harness took the turn.

    `plugin_part` is what plugins said in it, as it stands in the text. `before` and `behind` are what the program put
    around our text in the message that the model read; `arrived` says whether it was in there; all three are None where
    that was not recorded. `fault` is why there was no turn, or why it failed.
    """

    harness: str
    session: str | None = None
    turn: str | None = None
    status: TurnStatus | None = None
    reply: str = ""
    plugin_part: str = ""
    arrived: bool | None = None
    before: str | None = None
    behind: str | None = None
    fault: str | None = None

    @property
    def completed(self) -> bool:
        """Whether it answered, and the model read what was sent, as far as that is known."""
        return self.status == "completed" and self.arrived is not False

    @property
    def plugin_bytes(self) -> int:
        """The size of plugins' part."""
        return len(self.plugin_part.encode("utf-8", "replace"))

    @property
    def plugin_sha256(self) -> str:
        """The hash of plugins' part."""
        return sha256(self.plugin_part.encode("utf-8", "replace")).hexdigest()


def identical(sides: Sequence[Side]) -> bool:
    """Whether plugins' part was the same in every harness that took the turn, and all did."""
    return all(each.turn is not None for each in sides) and len({each.plugin_part for each in sides}) == 1


async def side_by_side(
    opener: Opener,
    openings: Sequence[OpenSession],
    message: str,
    tell: Callable[[str, Event], None],
    done: Callable[[Side], None],
) -> tuple[Side, ...]:
    """`message` through the harness of each of `openings`, as many at once as there are cores; in their order.

    `tell` gets each event with its harness, `done` each side as it is complete. One that fails is a side with a fault;
    raises `HostGone` where the running host has ended.
    """
    slots = asyncio.Semaphore(max(AT_ONCE_MIN, os.cpu_count() or 1))

    async def one(opening: OpenSession) -> Side:
        async with slots:
            side = await _side(opener, opening, message, lambda event: tell(opening.harness or "", event))
        done(side)
        return side

    tasks = [asyncio.ensure_future(one(each)) for each in openings]
    try:
        return tuple(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        # A turn that is cancelled is interrupted, and recorded, before its task is done.
        await asyncio.gather(*tasks, return_exceptions=True)


async def _side(opener: Opener, opening: OpenSession, message: str, tell: Callable[[Event], None]) -> Side:
    side = Side(opening.harness or "")
    text = ""
    try:
        async with opener.open(opening) as conversation:
            side = attrs.evolve(side, session=conversation.id)
            async with conversation.turn(message) as stream:
                async for event in stream:
                    tell(event)
                    match event:
                        case events.TurnStarted():
                            text = event.text
                            side = attrs.evolve(side, turn=event.turn, plugin_part=_plugin_part(event.sections))
                        case events.TurnCompleted():
                            side = attrs.evolve(side, status=event.status, reply=event.reply, fault=_fault(event))
    except HostGone:
        raise
    except BuzzError as error:
        return attrs.evolve(side, fault=str(error))
    return _held_against(side, text, Path(opening.record)) if opening.record is not None else side


def _plugin_part(rows: Sequence[SectionRow]) -> str:
    """What plugins said, as it is in the text of the turn."""
    return render(
        [section(each.tag, each.body, attributes=each.attributes) for each in rows if each.plugin is not None]
    )


def _fault(ended: events.TurnCompleted) -> str | None:
    if ended.status == "completed":
        return None
    return str(ended.error) if ended.error is not None else f"the turn is {ended.status}"


def _held_against(side: Side, text: str, record: Path) -> Side:
    """`side` with what the model read, of all that the program sent."""
    received: list[str] = []
    with suppress(RehearsalError):
        received = [each.newest_user_text for each in read_record(record)]
    found = next((each for each in received if text and text in each), None)
    if found is None:
        return attrs.evolve(side, arrived=False)
    before, _, behind = found.partition(text)
    return attrs.evolve(side, arrived=True, before=before, behind=behind)


def sides_json(sides: Sequence[Side]) -> dict[str, object]:
    """The comparison as the last object that `run --harness all --json` prints."""
    return {
        "v": 1,
        "event": "compared",
        "identical": identical(sides),
        "harnesses": [
            {
                "harness": each.harness,
                "session": each.session,
                "turn": each.turn,
                "status": each.status,
                "reply": each.reply,
                "plugin_bytes": each.plugin_bytes,
                "plugin_sha256": each.plugin_sha256,
                "arrived": each.arrived,
                "before": each.before,
                "behind": each.behind,
                "fault": each.fault,
            }
            for each in sides
        ],
    }
