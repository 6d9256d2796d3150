"""From a snapshot and what woke the agent to a turn: sections in their order, rendered once.

Pure: the same snapshot and message give the same text, to the byte, because neither an id nor a time enters it
(TRN-01). A steered message is flat: its own section, then the sections that hold now (TRN-04).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from buzz_author.errors import BuzzError
from buzz_author.sections import Section, render, section
from buzz_author.text import well_formed
from buzz_author.turns import Snapshot, Turn, TurnKind

# The order of a turn (TRN-01). What woke the agent has one place, whatever its tag.
ORDER: Final = (
    "context",
    "plugin-memories",
    "plugin-warnings",
    "conversation-context",
    "watch-task",
    "observed-message",
    "buzz-timer",
    "agent-message",
    "buzz-event",
    "new-message-arrived-while-you-were-working",
    "plugin-note",
    "plugin-instructions",
    "attention",
)
_PLACE: Final = {tag: place for place, tag in enumerate(ORDER)}


def compose(
    *,
    turn_id: str,
    kind: TurnKind,
    session: str,
    snapshot: Snapshot,
    message: str,
    steers: str | None = None,
    encode: Callable[[str], str] = lambda text: text,
) -> Turn:
    """The turn that carries `message` to the agent of `snapshot`.

    `kind` is `message` for a person's text or `steer` for one that joins the running turn `steers`. `encode` is the
    harness's: the text as its program must be handed it.
    """
    # Notes and instructions come last in a turn, and sorted already: there may be thousands.
    sections = (*in_order(_opening(kind, snapshot, message)), *snapshot.notes, *snapshot.instructions)
    return Turn(
        id=turn_id,
        kind=kind,
        session=session,
        snapshot=snapshot,
        message=well_formed(message),
        sections=sections,
        text=encode(render(sections)),
        steers=steers,
    )


def checked_message(message: object) -> str:
    """`message`, if it says something. Raises `BuzzError` for an empty one."""
    if not isinstance(message, str) or not message.strip():
        raise BuzzError("the message is empty: say what the agent should do")
    return message


def in_order(sections: Iterable[Section]) -> tuple[Section, ...]:
    """`sections` in the order of a turn; those of one tag keep the order in which they came."""
    return tuple(sorted(sections, key=lambda each: _PLACE[each.tag]))


def _opening(kind: TurnKind, snapshot: Snapshot, message: str) -> tuple[Section, ...]:
    if kind == "steer":
        return (section("new-message-arrived-while-you-were-working", message),)
    return (_context(snapshot), section("buzz-event", message, attributes=(("type", kind),)))


def _context(snapshot: Snapshot) -> Section:
    agent = snapshot.agent
    return section(
        "context",
        f"Agent: {_line(agent.name)}\nHarness: {_line(agent.harness)}\nWorking directory: {_line(str(agent.cwd))}",
    )


def _line(value: str) -> str:
    # A folder's name may hold a line end, which would pass for another line of the context.
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in value)
