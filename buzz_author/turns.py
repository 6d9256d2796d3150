"""A turn as a value: what one message to an agent is made of, and how its text is asked for.

The host takes a snapshot of what holds now, composes the sections and renders them once; a harness sends `turn.text`
or, when it builds a prompt of its own, ends it through `turnNote` (TRN-01 … 06).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, Protocol

import attrs

from buzz_author.instructions import AgentHandle
from buzz_author.sections import Section, render

TurnKind = Literal["message", "bus", "watch", "timer", "steer"]
LeftOutReason = Literal[
    "when-false",
    "when-not-true",
    "when-raised",
    "when-async",
    "when-timeout",
    "suspended",
    "muted",
    "not-allowed",
    "plugin-off",
    "plugin-starting",
    "plugin-failed",
    "no-room",
]

# The sections that end every turn, in this order (TRN-02).
NOTE_TAGS: Final = ("plugin-instructions", "attention")
EVERY_INSTRUCTION: Final = "*"


@attrs.frozen
class LeftOut:
    """One instruction that a turn does not carry, and why (INS-11). `id` is `*` for a plugin that never ran."""

    plugin: str
    id: str
    reason: LeftOutReason
    detail: str = ""


@attrs.frozen
class HookRef:
    """One hook that takes part in a turn: its plugin and the name of the hook."""

    plugin: str
    hook: str


@attrs.frozen
class Snapshot:
    """What holds for one agent at one moment; taken in one go and never changed (TRN-06).

    `revision` counts the changes of the host's contributions; `plugins` are the active ones with the content hash of
    what is loaded, sorted by id.
    """

    revision: int
    agent: AgentHandle
    taken_at: datetime
    instructions: tuple[Section, ...] = ()
    notes: tuple[Section, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    hooks: tuple[HookRef, ...] = ()
    plugins: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class Turn:
    """One message on its way to an agent. Made by the host, and in the ledger before it is sent.

    `message` is the bare text, for a harness that builds a prompt of its own; `sections` are all that the turn is made
    of, in order; `text` is exactly what is sent. `anchored` says that a wake runs inside a conversation that is already
    there. `steers` is the id of the running turn that a steered message joins.
    """

    id: str
    kind: TurnKind
    session: str
    snapshot: Snapshot
    message: str
    sections: tuple[Section, ...]
    text: str
    anchored: bool = False
    message_ids: tuple[str, ...] = ()
    steers: str | None = None


class TurnRendering(Protocol):
    """`ctx.agents.harness`: the text of a turn, for harness plugins (TRN-02, TRN-03).

    All four are faces of one render over the same turn: none asks a `when` again, the same turn gives the same text.
    """

    def turnNote(self, turn: Turn) -> str:
        """How every turn ends: the plugin-instructions sections, then the attention note; `""` with neither."""
        ...

    def turnPrompt(self, turn: Turn) -> str:
        """The whole text of a turn, ready to send; it already ends through `turnNote`."""
        ...

    def wakePrompt(self, turn: Turn) -> str:
        """The whole text of a watch or timer turn, its sections once, anchored or not; `ValueError` for others."""
        ...

    def steerPrompt(self, turn: Turn) -> str:
        """The whole text of a message steered into a running turn. Raises `ValueError` for other kinds."""
        ...

    turn_note = turnNote  # type: ignore[misc]
    turn_prompt = turnPrompt  # type: ignore[misc]
    wake_prompt = wakePrompt  # type: ignore[misc]
    steer_prompt = steerPrompt  # type: ignore[misc]


def turn_note(turn: Turn) -> str:
    """The sections that end `turn`: standing instructions, then the attention note (TRN-02)."""
    return render([each for tag in NOTE_TAGS for each in turn.sections if each.tag == tag])


def turn_prompt(turn: Turn) -> str:
    """The whole text of `turn` as it is sent."""
    return turn.text


def wake_prompt(turn: Turn) -> str:
    """The whole text of a watch or timer turn; raises `ValueError` for another kind."""
    return _text_of(turn, "watch", "timer")


def steer_prompt(turn: Turn) -> str:
    """The whole text of a steered message; raises `ValueError` for another kind."""
    return _text_of(turn, "steer")


def _text_of(turn: Turn, *kinds: TurnKind) -> str:
    if turn.kind not in kinds:
        raise ValueError(f"turn {turn.id} is a {turn.kind} turn, not a {' or '.join(kinds)} turn: use turnPrompt")
    return turn.text
