"""Reading the audit of one home: the turns there were, one of them whole, what a plugin told whom, and `verify`.

Everything is read back from disk. A home without a database reads like one without turns, and none is made for it: an
auditor's question changes nothing (AUD-01, AUD-02, AUD-03).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from difflib import get_close_matches
from time import monotonic, sleep
from typing import Any, Final

import attrs

from buzz_host.agents.catalogue import AgentCatalogue, UnknownAgent
from buzz_host.ledger import Head, LedgerError, mirrored_head, queries
from buzz_host.ledger.append import checked_hash
from buzz_host.ledger.queries import PAGE_TURNS
from buzz_host.ledger.search import PAGE_FINDS, Find, index, search, unindexed
from buzz_host.ledger.verify import Break, verify
from buzz_host.ledger.views import FaultView, HandedOverView, LeftOutView, PluginRow, SectionView, TurnRow, TurnView
from buzz_host.sessions.events import EVENT_VERSION, moment_json, outcome_json
from buzz_host.sessions.roster import UnknownSession, find
from buzz_host.settings import Home, HomeError
from buzz_host.store import Store, StoreDamaged, StoreError, read_only

# A mirror is written when the store has been idle, at the latest a second after the entry.
MIRROR_DEADLINE_S: Final = 2.0
# A host that was killed in its first moments may have left none; a chain that is older than this had one.
MIRROR_IS_THERE_AFTER_S: Final = 5.0
INDEXING_PAUSE_MAX_S: Final = 0.05


@attrs.frozen
class Verdict:
    """What became of one instruction in one turn: admitted, with the size and hash of what was sent, or left out, with
    the reason (INS-11). `changed` says that the text of it was changed since it was recorded."""

    plugin: str
    id: str
    admitted: bool
    bytes: int | None = None
    sha256: str | None = None
    reason: str | None = None
    detail: str | None = None
    changed: bool = False


@attrs.frozen
class Verification:
    """What `verify` went through: the number of entries, the newest one's hash, and how many breaks it met; `follows`
    counts those beside them that are consequences."""

    entries: int
    head: str | None
    breaks: int
    follows: int = 0


class Audit:
    """The audit of `home`. Each question is answered from one moment of the database."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def turns(
        self, *, agent: str | None = None, session: str | None = None, limit: int = PAGE_TURNS
    ) -> tuple[TurnRow, ...]:
        """The newest turns and steers, newest first; of one agent or session (an id, or the beginning of one).

        Raises `UnknownSession` where no session, or more than one, is meant, `UnknownAgent` for an agent that no
        turn was of and that this home does not define.
        """
        with self._reading() as connection:
            self._know_agent(connection, agent)
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

        Raises `LedgerError` where no turn names it, `UnknownAgent` as `turns` does.
        """
        with self._reading() as connection:
            self._know_agent(connection, agent)
            if connection is None:
                raise LedgerError(f"no turn names a plugin {name!r}: this home has no turns yet")
            return queries.plugin(connection, name, agent=agent, limit=limit)

    def search(self, words: str, *, limit: int = PAGE_FINDS) -> tuple[Find, ...]:
        """The texts that hold all of `words`, newest first; what is not indexed yet is indexed first.

        Raises `LedgerError` where `words` hold nothing to search for.
        """
        if not self._has_ledger():
            return ()
        try:
            with Store.open(self._home) as store:
                _index_all(store)
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

        `head` is one that was noted earlier. Raises `LedgerError` where it cannot be one; what is wrong with the files
        of the home is a break.
        """
        wanted = None if head is None else checked_hash(head)
        breaks = follows = 0

        def met(found: Break) -> None:
            nonlocal breaks, follows
            breaks, follows = (breaks, follows + 1) if found.follows else (breaks + 1, follows)
            report(found)

        entries, newest, had_a_mirror = 0, None, False
        mirrored, fault = self._mirrored()
        if fault:
            met(Break(None, "the mirrored head", "a number and 64 hexadecimal digits", fault))
        try:
            with self._reading() as connection:
                if connection is None:
                    # A head is a promise that there was a ledger.
                    expected = wanted or (mirrored.hash if mirrored else None)
                    if expected is not None:
                        none = f"no entry in {self._home.database}, which is missing or empty"
                        met(Break(None, "the database", f"a ledger with the entry {expected}", none))
                    return Verification(0, None, breaks, follows)
                for found in verify(connection, wanted, mirrored):
                    met(found)
                entries, newest = _extent(connection)
                had_a_mirror = _age_s(connection) > MIRROR_IS_THERE_AFTER_S
        except StoreDamaged as error:
            met(Break(None, "the database file", "a sound file", str(error)))
        if had_a_mirror and mirrored is None and not fault and not self._mirror_comes():
            met(
                Break(
                    None,
                    "the mirrored head",
                    f"{self._home.head}, which holds the newest entry's number and hash",
                    "none, so that entries may have been cut off at the end unseen",
                )
            )
        return Verification(entries, newest, breaks, follows)

    def _mirrored(self) -> tuple[Head | None, str]:
        """The mirrored head, or what is wrong with it."""
        try:
            return mirrored_head(self._home.head), ""
        except LedgerError as error:
            return None, str(error)

    def _mirror_comes(self) -> bool:
        """Whether the mirror is there after all: it is written a moment after the first entry."""
        until = monotonic() + MIRROR_DEADLINE_S
        while self._mirrored() == (None, ""):
            if monotonic() > until:
                return False
            sleep(INDEXING_PAUSE_MAX_S)
        return True

    def _know_agent(self, connection: sqlite3.Connection | None, agent: str | None) -> None:
        if agent is None:
            return
        told = () if connection is None else queries.agents(connection)
        catalogue = AgentCatalogue.load(self._home)
        known = {*told, *catalogue.names, *(each.note.path.stem for each in catalogue.faults)}
        if agent not in known:
            near = get_close_matches(agent, sorted(known), n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            names = ", ".join(sorted(known))
            raise UnknownAgent(f"no agent is called {agent!r}, and no turn was of one; {hint}The agents are: {names}")

    def _has_ledger(self) -> bool:
        # An empty file is none, and must not become one because somebody asks.
        path = self._home.database
        return path.exists() and path.stat().st_size > 0

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        if not self._has_ledger():
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
        Verdict(each.plugin, each.id or "", True, each.bytes, each.sha256, changed=each.changed)
        for each in turn.sections
        if each.tag == "plugin-instructions" and each.plugin is not None
    ]
    rows += [
        Verdict(each.plugin, each.id, False, reason=each.reason, detail=each.detail, changed=each.changed)
        for each in turn.left_out
    ]
    return tuple(sorted(rows, key=lambda row: (row.plugin, row.id)))


def turn_json(turn: TurnView) -> dict[str, Any]:
    """`turn` in the form of the event `turn_started`, with what came back (INTERFACES, "Events as JSON")."""
    row = turn.row
    return {
        "v": EVENT_VERSION,
        "event": "turn",
        "at": at_json(row.at),
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
        **_changed_json(all_changed(turn)),
    }


def all_changed(turn: TurnView) -> tuple[str, ...]:
    """What of `turn`, and of the messages that joined it, is not as it was recorded, a line each."""
    return turn.changed + tuple(line for steer in turn.steers for line in all_changed(steer))


def verdict_json(row: Verdict) -> dict[str, Any]:
    """One verdict."""
    return _flagged({key: value for key, value in attrs.asdict(row).items() if key != "changed"}, row.changed)


def find_json(find: Find) -> dict[str, Any]:
    """One text that was found."""
    found = {key: value for key, value in attrs.asdict(find).items() if key != "changed"}
    return _flagged({**found, "at": at_json(find.at), "first_at": at_json(find.first_at)}, find.changed)


def row_json(row: TurnRow) -> dict[str, Any]:
    """One row of a list of turns."""
    listed = {
        "turn": row.turn,
        "at": at_json(row.at),
        "session": row.session,
        "agent": row.agent,
        "harness": row.harness,
        "kind": row.kind,
        "status": row.status,
        "steers": row.steers,
        "plugins": list(row.plugins),
    }
    return _flagged(listed, row.changed)


def plugin_json(row: PluginRow) -> dict[str, Any]:
    """What one plugin had to do with one turn."""
    return {
        **{key: value for key, value in row_json(row.row).items() if key not in ("plugins", "changed")},
        "told": [section_json(each) for each in row.told],
        "left_out": [left_out_json(each) for each in row.left_out],
        "faults": [fault_json(each) for each in row.faults],
        **_changed_json(row.changed),
    }


def _changed_json(lines: tuple[str, ...]) -> dict[str, Any]:
    return {"changed": list(lines)} if lines else {}


def _flagged(values: dict[str, Any], changed: bool) -> dict[str, Any]:
    # Only there where it says something: all else is the same object as that of an event.
    return {**values, "changed": True} if changed else values


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
    values = {
        "tag": section.tag,
        "attributes": attributes,
        "body": section.body,
        "plugin": section.plugin,
        "id": section.id,
        "bytes": section.bytes,
        "sha256": section.sha256,
    }
    return _flagged(values, section.changed)


def left_out_json(row: LeftOutView) -> dict[str, Any]:
    """One row that was left out."""
    return _flagged({"plugin": row.plugin, "id": row.id, "reason": row.reason, "detail": row.detail}, row.changed)


def fault_json(fault: FaultView) -> dict[str, Any]:
    """One fault of a plugin."""
    return _flagged({"plugin": fault.plugin, "phase": fault.phase, "message": fault.message}, fault.changed)


def at_json(at: str) -> str:
    """The time of an entry as every event writes it; as it stands there where somebody made it no time."""
    try:
        return moment_json(datetime.fromisoformat(at))
    except ValueError:
        return at


def _index_all(store: Store) -> None:
    more = True
    while more:
        started = monotonic()
        more = store.write_sync(index)
        # Other processes poll for the lock: they get as much of the time as the index does.
        if more:
            sleep(min(monotonic() - started, INDEXING_PAUSE_MAX_S))


def _age_s(connection: sqlite3.Connection) -> float:
    """The seconds from the first entry to the newest one; 0 where that cannot be told."""
    try:
        first, last = (
            connection.execute(f"SELECT at FROM entries ORDER BY seq {way} LIMIT 1").fetchone()[0]
            for way in ("ASC", "DESC")
        )
        return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    except (sqlite3.DatabaseError, TypeError, ValueError):
        return 0.0


def _extent(connection: sqlite3.Connection) -> tuple[int, str | None]:
    try:
        entries = int(connection.execute("SELECT count(*) FROM entries").fetchone()[0])
        newest = connection.execute("SELECT hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    except sqlite3.DatabaseError:  # damaged, which was reported as a break
        return 0, None
    return entries, newest[0].hex() if newest and isinstance(newest[0], bytes) else None
