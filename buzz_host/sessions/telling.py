"""How the beginning of a turn is told: from what was composed, in the words of events."""

from __future__ import annotations

from buzz_host.sessions import events
from buzz_host.sessions.commands import ComposedTurn


def started(composed: ComposedTurn, session: str, *, carries_sections: bool) -> events.TurnStarted:
    """The event for a turn of `session` that stands in the ledger."""
    turn = composed.turn
    return events.TurnStarted(
        at=composed.at,
        session=session,
        turn=turn.id,
        agent=turn.snapshot.agent.name,
        harness=turn.snapshot.agent.harness,
        kind=turn.kind,
        text=turn.text if carries_sections else turn.message,
        sections=events.section_rows(turn),
        left_out=turn.snapshot.left_out,
        faults=composed.faults,
    )
