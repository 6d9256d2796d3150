"""Ledgers made by hand, for tests of what an auditor sees."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from buzz_author.errors import PluginFault
from buzz_author.events import Usage
from buzz_author.harness import HarnessError
from buzz_author.sections import Section, Source, section
from buzz_author.turns import LeftOut
from buzz_host.ledger import EndRecord, ToolRecord, TurnRecord, record_end, record_tool, record_turn
from buzz_host.settings import Home
from buzz_host.store import Store, Transaction

STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SESSION = "5e55-1"
TURN = "7u12-0001"
# What a terminal would obey: an escape sequence, one of the second set of controls, a turned direction of writing.
HOSTILE = "\x1b[31mred\x9b2J \u202eback\x07"


def spoken(plugin: str, identifier: str, text: str) -> Section:
    """A section of standing instructions."""
    return section("plugin-instructions", text, attributes=(("plugin", plugin),), source=Source(plugin, identifier))


def turn_record(number: int, *said: Section, session: str = SESSION, agent: str = "dev", **more: Any) -> TurnRecord:
    """A turn whose id begins with `7u12-<number>`, with a message and what plugins said."""
    sections = (section("buzz-event", f"message {number}", attributes=(("type", "message"),)), *said)
    return TurnRecord(
        turn=f"7u12-{number:04}",
        kind="message",
        session=session,
        agent=agent,
        harness="claude",
        at=STARTED + timedelta(minutes=number),
        text="\n\n".join(each.rendered for each in sections),
        sections=sections,
        **more,
    )


def write(home: Home, *records: TurnRecord | ToolRecord | EndRecord) -> None:
    """Put `records` into the ledger of `home`."""

    def work(tx: Transaction) -> None:
        for record in records:
            match record:
                case TurnRecord():
                    record_turn(tx, record)
                case ToolRecord():
                    record_tool(tx, record)
                case EndRecord():
                    record_end(tx, record)

    with Store.open(home) as store:
        store.write_sync(work)


def full_turn(more: str = "") -> Sequence[TurnRecord | ToolRecord | EndRecord]:
    """A turn with all that can be in one; `more` is added to each text that plugins and models choose."""
    at = STARTED + timedelta(minutes=2)
    error = f"KeyError: 'dev'{more}"
    sent = turn_record(
        1,
        spoken("style-guide", "tone", f"Be brief.{more}"),
        left_out=(LeftOut("freeze", "main", "when-raised", error), LeftOut("off", "*", "plugin-off")),
        faults=(PluginFault("freeze", "when", error), PluginFault("late", "apply", f"slow{more}")),
    )
    tool = ToolRecord(TURN, at, "c1", f"look{more}", "style-guide", {"where": f"here{more}"}, f"seen{more}")
    failure = HarnessError("overloaded", f"too many{more}", 529, True)
    return sent, tool, EndRecord(TURN, at, "failed", f"half a reply{more}", Usage(1200, 34), failure)
