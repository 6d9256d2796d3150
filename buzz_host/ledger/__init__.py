"""The ledger: what every agent was told, by which plugin, and what came back; append-only and chained by hash (AUD).

`record_*` write it, in the transaction of whoever has something to say; `queries` read it; `verify` finds what was
changed behind its back.
"""

from buzz_host.ledger import queries
from buzz_host.ledger.append import Head, append, mirrored_head
from buzz_host.ledger.entries import Body, Entry, EntryDraft, EntryKind, LedgerError, Receipt
from buzz_host.ledger.record import (
    EndRecord,
    HandedOver,
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
from buzz_host.ledger.verify import Break, verify
from buzz_host.ledger.views import (
    FaultView,
    HandedOverView,
    LeftOutView,
    PluginRow,
    SectionView,
    ToolView,
    TurnRow,
    TurnView,
)

__all__ = [
    "Body",
    "Break",
    "EndRecord",
    "Entry",
    "EntryDraft",
    "EntryKind",
    "FaultView",
    "HandedOver",
    "HandedOverView",
    "Head",
    "LedgerError",
    "LeftOutView",
    "PluginRow",
    "Receipt",
    "SectionView",
    "SettledRecord",
    "ToolRecord",
    "ToolView",
    "TurnRecord",
    "TurnRow",
    "TurnView",
    "append",
    "mirrored_head",
    "queries",
    "record_compacted",
    "record_end",
    "record_settled",
    "record_steer",
    "record_tool",
    "record_turn",
    "verify",
]
