"""Reading the audit of one home: the turns there were, one of them whole, what a plugin told whom, and `verify`.

Everything is read back from disk. A home without a database reads like one without turns, and none is made for it: an
auditor's question changes nothing (AUD-01, AUD-02, AUD-03).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any

import attrs

from buzz_host.ledger import LedgerError, mirrored_head, queries
from buzz_host.ledger.append import checked_hash
from buzz_host.ledger.queries import PAGE_TURNS
from buzz_host.ledger.search import PAGE_FINDS, Find, index, search, unindexed
from buzz_host.ledger.verify import Break, verify
from buzz_host.ledger.views import FaultView, HandedOverView, LeftOutView, PluginRow, SectionView, TurnRow, TurnView
from buzz_host.sessions.events import EVENT_VERSION, outcome_json
from buzz_host.sessions.roster import UnknownSession, find
from buzz_host.settings import Home, HomeError
from buzz_host.store import Store, StoreError, read_only


@attrs.frozen
class Verdict:
    """What became of one instruction in one turn: admitted, with the size and hash of what was sent, or left out, with
    the reason (INS-11)."""

    plugin: str
    id: str
    admitted: bool
    bytes: int | None = None
    sha256: str | None = None
    reason: str | None = None
    detail: str | None = None


@attrs.frozen
class Verification:
    """What `verify` went through: the number of entries, the newest one's hash, and how many breaks it met."""

    entries: int
    head: str | None
    breaks: int


class Audit:
    """The audit of `home`. Each question is answered from one moment of the database."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def turns(
        self, *, agent: str | None = None, session: str | None = None, limit: int = PAGE_TURNS
    ) -> tuple[TurnRow, ...]:
        """The newest turns and steers, newest first; of one agent or session (an id, or the beginning of one).

        Raises `UnknownSession` where no session, or more than one, is meant.
        """
        with self._reading() as connection:
            if connection is None:
                if session is not None:
                    raise UnknownSession(f"no session is called '{session}': this home has no turns yet")
                return ()
            known = None if session is None else find(connection, session).id
            return queries.turns(connection, agent=agent, session=known, limit=limit)

    def turn(self, id_or_prefix: str) -> TurnView:
        """One turn whole. Raises `LedgerError` where no turn, or more than one, is meant."""
        with self._reading() as connection:
            if connection is None:
                raise LedgerError(f"the ledger has no turn {id_or_prefix!r}: this home has no turns yet")
            return queries.turn(connection, id_or_prefix)

    def plugin(self, name: str, *, agent: str | None = None, limit: int = PAGE_TURNS) -> tuple[PluginRow, ...]:
        """For each turn that names the plugin, newest first, what it told the agent or why not.

        Raises `LedgerError` where no turn names it.
        """
        with self._reading() as connection:
            if connection is None:
                raise LedgerError(f"no turn names a plugin {name!r}: this home has no turns yet")
            return queries.plugin(connection, name, agent=agent, limit=limit)

    def search(self, words: str, *, limit: int = PAGE_FINDS) -> tuple[Find, ...]:
        """The texts that hold all of `words`, newest first; what is not indexed yet is indexed first.

        Raises `LedgerError` where `words` hold nothing to search for.
        """
        if not self._home.database.exists():
            return ()
        try:
            with Store.open(self._home) as store:
                while store.write_sync(index):
                    pass
                with store.read() as connection:
                    return search(connection, words, limit=limit)
        except (HomeError, StoreError):
            # It cannot be written: what is indexed already can be searched, and `unsearched` says how much is not.
            with read_only(self._home) as connection:
                return search(connection, words, limit=limit)

    def unsearched(self) -> int:
        """How many entries no search can find: those of a ledger that cannot be written, and so not be indexed."""
        with self._reading() as connection:
            return 0 if connection is None else unindexed(connection)

    def verify(self, head: str | None, report: Callable[[Break], None]) -> Verification:
        """Go through the whole ledger and `report` each break as it is met.

        `head` is one that was noted earlier. Raises `LedgerError` where it cannot be one.
        """
        wanted = None if head is None else checked_hash(head)
        breaks = 0

        def met(found: Break) -> None:
            nonlocal breaks
            breaks += 1
            report(found)

        mirrored = mirrored_head(self._home.head)
        with self._reading() as connection:
            if connection is None:
                # A head is a promise that there was a ledger.
                expected = wanted or (mirrored.hash if mirrored else None)
                if expected is not None:
                    met(Break(None, "the database", f"a ledger with the entry {expected}", f"no {self._home.database}"))
                return Verification(0, None, breaks)
            for found in verify(connection, wanted, mirrored):
                met(found)
            entries, newest = _extent(connection)
        return Verification(entries, newest, breaks)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        if not self._home.database.exists():
            yield None
            return
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(stack.enter_context(Store.open(self._home)).read())
            except (HomeError, StoreError):
                # A home that may not be written, or a full disk: an audit needs neither.
                stack.pop_all().close()
                connection = stack.enter_context(read_only(self._home))
            yield connection


def verdicts(turn: TurnView) -> tuple[Verdict, ...]:
    """What became of each instruction in `turn`, by plugin and id."""
    rows = [
        Verdict(each.plugin, each.id or "", True, each.bytes, each.sha256)
        for each in turn.sections
        if each.tag == "plugin-instructions" and each.plugin is not None
    ]
    rows += [Verdict(each.plugin, each.id, False, reason=each.reason, detail=each.detail) for each in turn.left_out]
    return tuple(sorted(rows, key=lambda row: (row.plugin, row.id)))


def turn_json(turn: TurnView) -> dict[str, Any]:
    """`turn` in the form of the event `turn_started`, with what came back (INTERFACES, "Events as JSON")."""
    row = turn.row
    return {
        "v": EVENT_VERSION,
        "event": "turn",
        "at": moment(row.at).isoformat(),
        "session": row.session,
        "turn": row.turn,
        "agent": row.agent,
        "harness": row.harness,
        "kind": row.kind,
        "text": turn.text,
        "sections": [section_json(each) for each in turn.sections],
        "left_out": [left_out_json(each) for each in turn.left_out],
        "faults": [fault_json(each) for each in turn.faults],
        "status": row.status,
        **outcome_json(turn.reply, turn.usage, turn.error),
        **_handed_over_json(turn.handed_over),
    }


def row_json(row: TurnRow) -> dict[str, Any]:
    """One row of a list of turns."""
    return {
        "turn": row.turn,
        "at": moment(row.at).isoformat(),
        "session": row.session,
        "agent": row.agent,
        "harness": row.harness,
        "kind": row.kind,
        "status": row.status,
        "steers": row.steers,
        "plugins": list(row.plugins),
    }


def plugin_json(row: PluginRow) -> dict[str, Any]:
    """What one plugin had to do with one turn."""
    return {
        **{key: value for key, value in row_json(row.row).items() if key != "plugins"},
        "told": [section_json(each) for each in row.told],
        "left_out": [left_out_json(each) for each in row.left_out],
        "faults": [fault_json(each) for each in row.faults],
    }


def _handed_over_json(handed: HandedOverView | None) -> dict[str, Any]:
    if handed is None:
        return {}
    return {
        "handed_over": {
            "by": handed.by,
            "attachment": handed.attachment,
            "cwd": handed.cwd,
            "entries": list(handed.entries),
        }
    }


def section_json(section: SectionView) -> dict[str, Any]:
    """One section, with the keys of the event `turn_started`."""
    attributes = None if section.attributes is None else [list(pair) for pair in section.attributes]
    return {
        "tag": section.tag,
        "attributes": attributes,
        "body": section.body,
        "plugin": section.plugin,
        "id": section.id,
        "bytes": section.bytes,
        "sha256": section.sha256,
    }


def left_out_json(row: LeftOutView) -> dict[str, Any]:
    """One row that was left out."""
    return {"plugin": row.plugin, "id": row.id, "reason": row.reason, "detail": row.detail}


def fault_json(fault: FaultView) -> dict[str, Any]:
    """One fault of a plugin."""
    return {"plugin": fault.plugin, "phase": fault.phase, "message": fault.message}


def moment(at: str) -> datetime:
    """The time of an entry."""
    return datetime.fromisoformat(at)


def _extent(connection: sqlite3.Connection) -> tuple[int, str | None]:
    try:
        entries = int(connection.execute("SELECT count(*) FROM entries").fetchone()[0])
        newest = connection.execute("SELECT hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    except sqlite3.DatabaseError:  # damaged, which was reported as a break
        return 0, None
    return entries, newest[0].hex() if newest and isinstance(newest[0], bytes) else None
