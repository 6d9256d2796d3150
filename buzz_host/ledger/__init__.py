"""The ledger: what every agent was told, by which plugin, and what came back; append-only and chained by hash (AUD).

`record_*` write it, in the transaction of whoever has something to say; `queries` read it; `verify` finds what was
changed behind its back.
"""

from buzz_host.ledger.append import Head, append, mirrored_head
from buzz_host.ledger.entries import Body, Entry, EntryDraft, EntryKind, LedgerError, Receipt
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

__all__ = [
    "Body",
    "EndRecord",
    "Entry",
    "EntryDraft",
    "EntryKind",
    "Head",
    "LedgerError",
    "Receipt",
    "SettledRecord",
    "ToolRecord",
    "TurnRecord",
    "append",
    "mirrored_head",
    "record_compacted",
    "record_end",
    "record_settled",
    "record_steer",
    "record_tool",
    "record_turn",
]
