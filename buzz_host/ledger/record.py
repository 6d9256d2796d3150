"""From what happened in a session to entries of the ledger, with the indexes that audit queries stand on.

The indexes (`turns`, `parties`) say nothing that the entries do not say; they are written in the same transaction, and
`verify` holds them against the entries. What each field of an entry means is fixed here (AUD-01, INS-11).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Final, Literal

import attrs

from buzz_author.errors import PluginFault
from buzz_author.events import SteerOutcome, TurnStatus, Usage
from buzz_author.harness import HarnessError
from buzz_author.json_values import JsonObject
from buzz_author.sections import Section, render
from buzz_author.turns import LeftOut, TurnKind
from buzz_host.ledger.append import append
from buzz_host.ledger.entries import (
    Body,
    Encoded,
    EntryDraft,
    EntryKind,
    Fields,
    LedgerError,
    Receipt,
    canonical_json,
)
from buzz_host.store import Transaction

AuditStatus = Literal["completed", "interrupted", "failed", "unended", "folded", "returned", "handed over"]
# Sent, and no end was recorded: it is still running, or its host was killed meanwhile. What became of it is not known.
UNENDED: Final = "unended"
# Given to a person's own program. Nothing of ours sees what it did with it, so this is how such a turn stays (AUT-03).
HANDED_OVER: Final = "handed over"
# A steer that ends here is over: it went into the turn that it steers, or was given back unread.
SETTLED: Final = ("folded", "returned")
OWN_LABEL: Final = "plugin"
LABELS_CACHED: Final = 1024
_OWN_ATTRIBUTES: Final = f'{{"attributes":"{OWN_LABEL}"'
_NO_ATTRIBUTES: Final = '{"attributes":null'


@attrs.frozen
class HandedOver:
    """How the text of a turn went to a person's own program, through its hook (AUT-03).

    `by` is `host`, or `client` where no host ran and the hook's client handed over the last set that was on disk.
    `attachment` is its id, `cwd` the folder of the session, and `entries` are the texts as the program received them,
    one for each entry of the hook.
    """

    by: Literal["host", "client"]
    attachment: str
    cwd: str
    entries: tuple[str, ...]


@attrs.frozen
class TurnRecord:
    """One message as it is about to be sent. `text` is exactly what is sent, whatever the sections render to.

    `at` needs a time zone. `steers` is the id of the running turn that a steer joins; such a record has an id of its
    own. `carries_sections` is false for a harness that builds its own prompt (TRN-03). `plugins` are the active
    plugins with the content hash of what is loaded; `revision` is the snapshot's. `handed_over` is set for a turn of a
    person's own program, whose end nobody will record.
    """

    turn: str
    kind: TurnKind
    session: str
    agent: str
    harness: str
    at: datetime
    text: str
    sections: tuple[Section, ...]
    model: str | None = None
    left_out: tuple[LeftOut, ...] = ()
    faults: tuple[PluginFault, ...] = ()
    plugins: tuple[tuple[str, str], ...] = ()
    revision: int = 0
    anchored: bool = False
    carries_sections: bool = True
    message_ids: tuple[str, ...] = ()
    steers: str | None = None
    handed_over: HandedOver | None = None


@attrs.frozen
class ToolRecord:
    """One call of a tool within `turn`. Recorded once with its result, or without (None) when it is called and again
    when it returns. `plugin` is None for a tool of the program's own."""

    turn: str
    at: datetime
    call: str
    name: str
    plugin: str | None
    arguments: JsonObject
    result: str | None = None
    is_error: bool = False


@attrs.frozen
class SettledRecord:
    """How the steer `steer` went."""

    steer: str
    at: datetime
    outcome: SteerOutcome


@attrs.frozen
class EndRecord:
    """How a turn ended. `error` is set where `status` is failed."""

    turn: str
    at: datetime
    status: TurnStatus
    reply: str = ""
    usage: Usage | None = None
    error: HarnessError | None = None


@attrs.frozen
class IndexRow:
    """What the indexes say of a turn that was sent; all of it follows from the entry. `open_status` is its status as
    long as no end is recorded."""

    agent: str
    harness: str
    plugins: tuple[str, ...]
    session: str
    kind: str
    steers: str | None
    open_status: str


def record_turn(tx: Transaction, record: TurnRecord) -> Receipt:
    """Record a turn before it is sent. Raises `LedgerError` where the ledger has its id already."""
    return _record_sent(tx, "turn_sent", record)


def record_steer(tx: Transaction, record: TurnRecord) -> Receipt:
    """Record a message before it is steered into the running turn `record.steers`. Raises `LedgerError` where the
    ledger has its id already, or `steers` is missing."""
    if record.steers is None or record.steers == record.turn:
        raise LedgerError(f"the steer {record.turn} names no turn that it steers")
    return _record_sent(tx, "steer_sent", record)


def record_tool(tx: Transaction, record: ToolRecord) -> Receipt:
    """Record a call of a tool. Raises `LedgerError` for a turn that was never recorded."""
    _sent(tx, record.turn)
    return append(
        tx,
        EntryDraft(
            "tool",
            record.at,
            record.turn,
            {
                "arguments": Body(canonical_json(record.arguments)),
                "call": record.call,
                "is_error": record.is_error,
                "name": record.name,
                "plugin": record.plugin,
                "result": None if record.result is None else Body(record.result),
            },
        ),
    )


def record_settled(tx: Transaction, record: SettledRecord) -> Receipt:
    """Record how a steer went. Raises `LedgerError` for a steer that was never recorded, or that is over."""
    seq, ended = _sent(tx, record.steer)
    if ended and record.outcome in SETTLED:
        raise LedgerError(f"the steer {record.steer} is over already, it cannot be {record.outcome} now")
    receipt = append(tx, EntryDraft("steer_settled", record.at, record.steer, {"outcome": record.outcome}))
    if record.outcome in SETTLED:
        _end(tx, seq, record.outcome, receipt.seq)
    return receipt


def record_compacted(tx: Transaction, turn: str, at: datetime) -> Receipt:
    """Record that the program replaced its history by a summary within `turn` (TRN-07)."""
    _sent(tx, turn)
    return append(tx, EntryDraft("compacted", at, turn, {}))


def record_end(tx: Transaction, record: EndRecord) -> Receipt:
    """Record how a turn, or a steer that became a turn of its own, ended. Raises `LedgerError` for a turn that was
    never recorded, or that has ended."""
    seq, ended = _sent(tx, record.turn)
    if ended:
        raise LedgerError(f"the turn {record.turn} has ended already, it cannot end again")
    usage = record.usage
    error = record.error
    receipt = append(
        tx,
        EntryDraft(
            "turn_ended",
            record.at,
            record.turn,
            {
                "error": None
                if error is None
                else {
                    "kind": error.kind,
                    "native": Body(error.native),
                    "retryable": error.retryable,
                    "status": error.status,
                },
                "reply": Body(record.reply),
                "status": record.status,
                "usage": None
                if usage is None
                else {
                    "cache_read_tokens": usage.cache_read_tokens,
                    "cache_write_tokens": usage.cache_write_tokens,
                    "input_tokens": usage.input_tokens,
                    "output_tokens": usage.output_tokens,
                },
            },
        ),
    )
    _end(tx, seq, record.status, receipt.seq)
    return receipt


def index_row(fields: str) -> IndexRow:
    """What the indexes say of a turn, from the fields of its entry. Raises `ValueError`, `LookupError` or `TypeError`
    for fields that are no turn's."""
    read = json.loads(fields)
    named = {row["plugin"] for key in ("sections", "left_out", "faults") for row in read[key]}
    plugins = tuple(sorted(named - {None}))
    status = HANDED_OVER if "handed_over" in read else UNENDED
    return IndexRow(read["agent"], read["harness"], plugins, read["session"], read["kind"], read["steers"], status)


def _record_sent(tx: Transaction, kind: EntryKind, record: TurnRecord) -> Receipt:
    if not record.turn:
        raise LedgerError("a turn without an id cannot be recorded")
    if tx.execute("SELECT 1 FROM entries WHERE turn = ? LIMIT 1", (record.turn,)).fetchone():
        raise LedgerError(f"the ledger has a turn {record.turn} already: an id is used once")
    receipt = append(tx, EntryDraft(kind, record.at, record.turn, _fields(record)))
    status = UNENDED if record.handed_over is None else HANDED_OVER
    tx.execute(
        "INSERT INTO turns (seq, party, session, kind, steers, status, ended) VALUES (?, ?, ?, ?, ?, ?, NULL)",
        (receipt.seq, _party(tx, record), record.session, record.kind, record.steers, status),
    )
    return receipt


def _fields(record: TurnRecord) -> Fields:
    fields = _common_fields(record)
    handed = record.handed_over
    if handed is None:
        return fields
    return {
        **fields,
        "handed_over": {
            "attachment": handed.attachment,
            "by": handed.by,
            "cwd": Body(handed.cwd),
            "entries": [Body(each) for each in handed.entries],
        },
    }


def _common_fields(record: TurnRecord) -> Fields:
    return {
        "agent": record.agent,
        "anchored": record.anchored,
        "carries_sections": record.carries_sections,
        "faults": [
            {"message": Body(fault.message), "phase": fault.phase, "plugin": fault.plugin} for fault in record.faults
        ],
        "harness": record.harness,
        "kind": record.kind,
        "left_out": [
            {
                "detail": Body(each.detail) if each.detail else None,
                "id": each.id,
                "plugin": each.plugin,
                "reason": each.reason,
            }
            for each in record.left_out
        ],
        "message_ids": record.message_ids,
        "model": record.model,
        "plugins": _loaded(record.plugins),
        "revision": record.revision,
        "sections": _sections(record.sections) if record.sections else (),
        # Only what cannot be rendered again is kept a second time: the text of a harness that encodes, or builds
        # its own prompt.
        "sent": None if record.text == render(record.sections) else Body(record.text),
        "session": record.session,
        "steers": record.steers,
    }


def _sections(sections: Sequence[Section]) -> Encoded:
    parts: list[tuple[str, str, str | None]] = []
    before = "["
    for section in sections:
        source = section.source
        plugin, identifier = (None, None) if source is None else (source.plugin, source.id)
        attributes = section.attributes
        own = attributes == ((OWN_LABEL, plugin),)
        if attributes and not own:
            # The values of attributes can be anybody's words, so they are a body, except a plugin's own label.
            parts.append((before + '{"attributes":', canonical_json(attributes), None))
            before = ""
        else:
            before += _OWN_ATTRIBUTES if own else _NO_ATTRIBUTES
        parts.append((before + _labels(section.tag, plugin, identifier), section.body, section.sha256))
        before = "},"
    return Encoded(parts, "}]")


@lru_cache(maxsize=LABELS_CACHED)
def _labels(tag: str, plugin: str | None, identifier: str | None) -> str:
    # `attributes` sorts before these, `text` behind: a piece of the canonical object.
    labels = canonical_json({"id": identifier, "plugin": plugin, "tag": tag})
    return f',{labels[1:-1]},"text":'


@lru_cache(maxsize=LABELS_CACHED)
def _loaded(plugins: tuple[tuple[str, str], ...]) -> Body:
    text = canonical_json(plugins)
    return Body(text, sha256(text.encode("utf-8")).hexdigest())


def _party(tx: Transaction, record: TurnRecord) -> int:
    names = {each.source.plugin for each in record.sections if each.source is not None}
    names.update([each.plugin for each in record.left_out], [each.plugin for each in record.faults])
    known = tx.remembered.setdefault("ledger.parties", {})
    assert isinstance(known, dict)
    company = (record.agent, record.harness, frozenset(names))
    party = known.get(company)
    if party is None:
        plugins = sorted(names)
        key = (record.agent, record.harness, canonical_json(plugins))
        found = tx.execute("SELECT id FROM parties WHERE agent = ? AND harness = ? AND plugins = ?", key).fetchone()
        party = found[0] if found else _new_party(tx, key, plugins)
        known[company] = party
    return int(party)


def _new_party(tx: Transaction, key: tuple[str, str, str], plugins: Sequence[str]) -> int:
    party = int(
        tx.execute("INSERT INTO parties (agent, harness, plugins) VALUES (?, ?, ?) RETURNING id", key).fetchone()[0]
    )
    tx.executemany("INSERT INTO party_plugins (plugin, party) VALUES (?, ?)", [(each, party) for each in plugins])
    return party


def _sent(tx: Transaction, turn: str) -> tuple[int, bool]:
    found = tx.execute(
        "SELECT t.seq, t.ended FROM entries AS e CROSS JOIN turns AS t ON t.seq = e.seq WHERE e.turn = ?", (turn,)
    ).fetchone()
    if found is None:
        raise LedgerError(f"the ledger has no turn {turn!r}")
    return found[0], found[1] is not None


def _end(tx: Transaction, seq: int, status: str, ended: int) -> None:
    tx.execute("UPDATE turns SET status = ?, ended = ? WHERE seq = ?", (status, ended, seq))
