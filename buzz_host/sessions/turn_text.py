"""The text of a turn as a value for faces: what is sent, in which sections, and what was left out (INS-11).

Apart from the other events because a preview, which has to be quick, needs these alone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal

import attrs

from buzz_author.errors import PluginFault
from buzz_author.turns import LeftOut, Turn, TurnKind

EVENT_VERSION: Final = 1


def moment_json(at: datetime) -> str:
    """`at` as every JSON of ours writes it: in UTC, to the microsecond, always of the same length."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


@attrs.frozen(kw_only=True)
class Event:
    """The part that all events share. `turn` is None for what belongs to no turn."""

    event: ClassVar[str]
    at: datetime
    session: str | None
    turn: str | None

    def as_json(self) -> dict[str, Any]:
        """The event as `--json` prints it."""
        return {
            "v": EVENT_VERSION,
            "event": self.event,
            "at": moment_json(self.at),
            "session": self.session,
            "turn": self.turn,
            **self.fields(),
        }

    def fields(self) -> dict[str, Any]:
        """The fields that only this kind of event has, in their order."""
        return {}


@attrs.frozen(kw_only=True)
class TurnText(Event):
    """What a turn is: the text that is sent, its sections, and what was left out (INS-11)."""

    agent: str
    harness: str
    kind: TurnKind
    text: str
    sections: tuple[SectionRow, ...]
    left_out: tuple[LeftOut, ...]
    faults: tuple[PluginFault, ...]

    def fields(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "harness": self.harness,
            "kind": self.kind,
            "text": self.text,
            "sections": [each.as_json() for each in self.sections],
            "left_out": [attrs.asdict(each) for each in self.left_out],
            "faults": [{"plugin": each.plugin, "phase": each.phase, "message": each.message} for each in self.faults],
        }


@attrs.frozen
class SectionRow:
    """One section of a turn as surfaces show it; `plugin` and `id` are None where no plugin spoke."""

    tag: str
    attributes: tuple[tuple[str, str], ...]
    body: str
    plugin: str | None
    id: str | None
    bytes: int
    sha256: str | None

    def as_json(self) -> dict[str, Any]:
        """The row as `--json` prints it."""
        return {**attrs.asdict(self), "attributes": [list(pair) for pair in self.attributes]}


def section_rows(turn: Turn) -> tuple[SectionRow, ...]:
    """The sections of `turn` as rows."""
    return tuple(
        SectionRow(
            each.tag,
            each.attributes,
            each.body,
            each.source.plugin if each.source else None,
            each.source.id if each.source else None,
            each.size,
            each.sha256,
        )
        for each in turn.sections
    )


@attrs.frozen(kw_only=True)
class Preview(TurnText):
    """What the next turn would carry; nothing was started and nothing recorded."""

    event: ClassVar[Literal["preview"]] = "preview"
