"""Writes what happens in a session into the ledger, and remembers the session so that it can be resumed.

Each call returns once its entry is durable; the actor tells nobody before (AUD-03, OPS-03).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import attrs

from buzz_author import events as native
from buzz_host.ledger.record import (
    EndRecord,
    SettledRecord,
    ToolRecord,
    TurnRecord,
    record_compacted,
    record_end,
    record_settled,
    record_steer,
    record_tool,
    record_turn,
)
from buzz_host.sessions.commands import ComposedTurn
from buzz_host.sessions.roster import keep_native_id
from buzz_host.store import Store, Transaction


@attrs.frozen
class LedgerRecorder:
    """The recorder of one session. `carries_sections` is what the harness declares (TRN-03)."""

    store: Store
    session: str
    carries_sections: bool
    now: Callable[[], datetime]

    async def turn_sent(self, composed: ComposedTurn) -> None:
        """Record a turn, or a steered message, before it is sent."""
        turn = composed.turn
        snapshot = turn.snapshot
        record = TurnRecord(
            turn=turn.id,
            kind=turn.kind,
            session=turn.session,
            agent=snapshot.agent.name,
            harness=snapshot.agent.harness,
            at=composed.at,
            text=turn.text if self.carries_sections else turn.message,
            sections=turn.sections,
            model=snapshot.agent.model,
            left_out=snapshot.left_out,
            faults=composed.faults,
            plugins=snapshot.plugins,
            revision=snapshot.revision,
            anchored=turn.anchored,
            carries_sections=self.carries_sections,
            message_ids=turn.message_ids,
            steers=turn.steers,
        )
        append = record_turn if turn.steers is None else record_steer
        await self.store.write(lambda tx: append(tx, record))

    async def steer_settled(self, event: native.SteerSettled) -> None:
        """Record how a steered message went."""
        record = SettledRecord(event.steer, self.now(), event.outcome)
        await self.store.write(lambda tx: record_settled(tx, record))

    async def tool(self, called: native.ToolCalled, returned: native.ToolReturned) -> None:
        """Record one call of a tool with its result."""
        record = ToolRecord(
            turn=called.turn,
            at=self.now(),
            call=called.call,
            name=called.name,
            plugin=called.plugin,
            arguments=called.arguments,
            result=returned.text,
            is_error=returned.is_error,
        )
        await self.store.write(lambda tx: record_tool(tx, record))

    async def compacted(self, turn: str) -> None:
        """Record that the program replaced its history by a summary, in or after `turn`."""
        at = self.now()
        await self.store.write(lambda tx: record_compacted(tx, turn, at))

    async def turn_ended(self, event: native.TurnEnded) -> None:
        """Record how a turn ended."""
        record = EndRecord(event.turn, self.now(), event.status, event.reply, event.usage, event.error)
        await self.store.write(lambda tx: record_end(tx, record))

    async def native_id(self, native_id: str) -> None:
        """Remember the program's own name of the conversation."""

        def keep(tx: Transaction) -> None:
            keep_native_id(tx, self.session, native_id)

        await self.store.write(keep)
