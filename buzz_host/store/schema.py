"""The schema as the migrations that made it: a database of any earlier version is brought here, step by step.

A migration that was ever released is never changed; what is new is a further one, at the end. Its number in the list,
from 1, is the database's `user_version` after it.
"""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Migration:
    """One step: what it is for, and its statements, run in one transaction."""

    purpose: str
    statements: tuple[str, ...]


_LEDGER: Final = Migration(
    "the ledger: its entries, their bodies, and the indexes that are derived from them",
    (
        # Narrow columns first: what queries skip over stays on the leaf, long fields overflow behind it.
        """
        CREATE TABLE entries (
            seq INTEGER PRIMARY KEY,
            kind TEXT NOT NULL,
            at TEXT NOT NULL,
            turn TEXT NOT NULL,
            previous BLOB NOT NULL,
            hash BLOB NOT NULL,
            bodies TEXT NOT NULL,
            fields TEXT NOT NULL
        )
        """,
        "CREATE INDEX entries_of_turn ON entries (turn)",
        # No index on digests or sha256: keys that come in random order would dirty one page for each new body, and cost
        # more than the bodies themselves. An entry knows the ids of its bodies; a repeated one is found as `body_keys`
        # says.
        """
        CREATE TABLE bodies (
            id INTEGER PRIMARY KEY,
            salt BLOB NOT NULL,
            sha256 BLOB NOT NULL,
            body BLOB NOT NULL
        )
        """,
        # The first 8 bytes of each body's sha256, for the bodies up to `body_keys_upto`; the newest ones beyond it are
        # few, each process knows them, and they are added here many at a time, in order.
        "CREATE TABLE body_keys (key BLOB NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (key, id)) WITHOUT ROWID",
        "CREATE TABLE body_keys_upto (id INTEGER NOT NULL)",
        "INSERT INTO body_keys_upto VALUES (0)",
        # Who takes part in a turn, as one row for all the turns with the same company: a turn then has one number to be
        # indexed by, however many plugins speak in it.
        """
        CREATE TABLE parties (
            id INTEGER PRIMARY KEY,
            agent TEXT NOT NULL,
            harness TEXT NOT NULL,
            plugins TEXT NOT NULL,
            UNIQUE (agent, harness, plugins)
        )
        """,
        """
        CREATE TABLE party_plugins (
            plugin TEXT NOT NULL,
            party INTEGER NOT NULL,
            PRIMARY KEY (plugin, party)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE turns (
            seq INTEGER PRIMARY KEY,
            party INTEGER NOT NULL,
            session TEXT NOT NULL,
            kind TEXT NOT NULL,
            steers TEXT,
            status TEXT NOT NULL,
            ended INTEGER
        )
        """,
        "CREATE INDEX turns_of_party ON turns (party, seq)",
        "CREATE INDEX turns_of_session ON turns (session, seq)",
        "CREATE INDEX turns_of_steered ON turns (steers) WHERE steers IS NOT NULL",
    ),
)

_SESSIONS: Final = Migration(
    "the sessions that can be resumed",
    (
        """
        CREATE TABLE sessions (
            id TEXT PRIMARY KEY,
            agent TEXT NOT NULL,
            harness TEXT NOT NULL,
            cwd TEXT NOT NULL,
            native_id TEXT,
            started_at TEXT NOT NULL
        ) WITHOUT ROWID
        """,
    ),
)

_SEARCH: Final = Migration(
    "searching the texts of the ledger",
    (
        # Words without the texts, which the bodies hold already.
        "CREATE VIRTUAL TABLE body_words USING fts5 (words, content='', tokenize='unicode61 remove_diacritics 2')",
        """
        CREATE TABLE body_uses (
            body INTEGER PRIMARY KEY,
            first INTEGER NOT NULL,
            last INTEGER NOT NULL,
            uses INTEGER NOT NULL
        )
        """,
        "CREATE TABLE search_upto (entry INTEGER NOT NULL, body INTEGER NOT NULL)",
        "INSERT INTO search_upto VALUES (0, 0)",
    ),
)

MIGRATIONS: Final = (_LEDGER, _SESSIONS, _SEARCH)
