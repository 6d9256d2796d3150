"""The sessions that a home knows: which agent and harness each belongs to, and how its program resumes it."""

from __future__ import annotations

import os
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_host.store import Transaction

# How the harness of a session is called that a person runs, and not we.
ATTACHED: Final = " (attached)"


class UnknownSession(BuzzError, LookupError):
    """No session has this id, or several begin with it."""


@attrs.frozen
class KnownSession:
    """One session. `native_id` is None before its first turn began: there is nothing to resume then."""

    id: str
    agent: str
    harness: str
    cwd: Path
    native_id: str | None
    started_at: datetime


def remember(tx: Transaction, session: KnownSession) -> None:
    """Put a new session into the roster."""
    tx.execute(
        "INSERT INTO sessions (id, agent, harness, cwd, native_id, started_at) VALUES (?, ?, ?, ?, ?, ?)",
        (
            session.id,
            session.agent,
            session.harness,
            _kept(session.cwd),
            session.native_id,
            session.started_at.isoformat(),
        ),
    )


def remember_attached(tx: Transaction, session: KnownSession) -> None:
    """Put the session of a person's own program into the roster, unless it is there: so that it can be asked for."""
    tx.execute(
        "INSERT OR IGNORE INTO sessions (id, agent, harness, cwd, native_id, started_at) VALUES (?, ?, ?, ?, NULL, ?)",
        (session.id, session.agent, session.harness, _kept(session.cwd), session.started_at.isoformat()),
    )


def keep_native_id(tx: Transaction, session: str, native_id: str) -> None:
    """Remember by which name the program knows `session`."""
    tx.execute("UPDATE sessions SET native_id = ? WHERE id = ?", (native_id, session))


def find(connection: sqlite3.Connection, named: str) -> KnownSession:
    """The session whose id is `named`, or begins with it. Raises `UnknownSession` for none, or several."""
    rows = connection.execute(
        "SELECT id, agent, harness, cwd, native_id, started_at FROM sessions"
        " WHERE substr(id, 1, ?) = ? ORDER BY started_at LIMIT 3",
        (len(named), named),
    ).fetchall()
    if not rows or not named:
        raise UnknownSession(f"no session is called '{named}': `buzz audit turns` shows the sessions that there are")
    if len(rows) > 1:
        raise UnknownSession(f"several sessions begin with '{named}': give more of the id")
    identifier, agent, harness, cwd, native_id, started_at = rows[0]
    return KnownSession(
        identifier, agent, harness, Path(os.fsdecode(cwd)), native_id, datetime.fromisoformat(started_at)
    )


def _kept(folder: Path) -> str | bytes:
    """`folder` as the roster keeps it: a text, or its octets where they are no UTF-8, so that it is found again."""
    octets = os.fsencode(folder)
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError:
        return octets
