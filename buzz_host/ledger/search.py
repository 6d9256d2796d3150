"""Full-text search over everything that was said, in any script, indexed when no turn waits for it (AUD-02).

Each body is indexed once, however many turns repeat it, and remembers its first and its newest entry and how often it
was used. Scripts that put no space between words (Chinese, Japanese, Thai, …) are indexed by character, and a query in
them matches as a phrase. The index holds words and no texts; it is no part of the chain, and `verify` proves nothing of
it: what is found is held against the ledger, what somebody took out of the index is not found.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import attrs

from buzz_author.text import well_formed
from buzz_host.ledger.entries import LedgerError
from buzz_host.ledger.reading import ENTRY_COLUMNS, entries_of, numbers_in
from buzz_host.store import Transaction

PAGE_FINDS: Final = 20
# What one transaction indexes at most, a single text apart: some tens of milliseconds, so that no turn, and no exit of
# a process, waits longer.
STEP_ENTRIES: Final = 500
STEP_BYTES: Final = 256 * 1024
INDEXED_MAX_CHARS: Final = 1_000_000  # of one text, which is indexed in one step
SNIPPET_CHARS: Final = 160

# What an entry keeps beside its texts for its own use: lists in JSON that nobody said.
_NOT_SAID: Final = frozenset({"plugins", "attributes"})
_ENTRY: Final = f"SELECT {ENTRY_COLUMNS} FROM entries AS e WHERE e.seq = ?"


@attrs.frozen
class Find:
    """One text that matches. `turn` is the newest turn that holds it; `role` says what it was there (`section`,
    `reply`, `tool arguments`, `tool result`, `error`, `left out`, `fault`), with the tag and the contribution of a
    section. `uses` counts the entries that hold it, from `first_at` to `at`. `changed` says that the text, or the entry
    that holds it, was changed since it was recorded: `snippet` is None then."""

    turn: str
    at: str
    first_at: str
    role: str
    tag: str | None
    plugin: str | None
    id: str | None
    uses: int
    snippet: str | None
    changed: bool = False


def index(tx: Transaction) -> bool:
    """Index what came since the last time, one step of it; whether more is left. For a transaction of its own."""
    upto_entry, upto_body = tx.execute("SELECT entry, body FROM search_upto").fetchone()
    last_body, more = _bodies_of_a_step(tx, upto_body)
    texts = tx.execute(
        "SELECT id, CAST(body AS BLOB) FROM bodies WHERE id > ? AND id <= ?", (upto_body, last_body)
    ).fetchall()
    tx.executemany(
        "INSERT INTO body_words (rowid, words) VALUES (?, ?)",
        [(number, _segmented(body.decode("utf-8", "replace")[:INDEXED_MAX_CHARS])) for number, body in texts],
    )
    rows = tx.execute(
        "SELECT seq, CAST(bodies AS TEXT) FROM entries WHERE seq > ? ORDER BY seq LIMIT ?", (upto_entry, STEP_ENTRIES)
    ).fetchall()
    uses: list[tuple[int, int]] = []
    last_entry = upto_entry
    for seq, listed in rows:
        numbers = set(numbers_in(listed))
        if more and numbers and max(numbers) > last_body:
            break  # a later step has the rest of its texts
        uses += [(number, seq) for number in numbers]
        last_entry = seq
    tx.executemany(
        "INSERT INTO body_uses (body, first, last, uses) VALUES (?1, ?2, ?2, 1)"
        " ON CONFLICT (body) DO UPDATE SET last = ?2, uses = uses + 1",
        uses,
    )
    if (last_entry, last_body) != (upto_entry, upto_body):
        tx.execute("UPDATE search_upto SET entry = ?, body = ?", (last_entry, last_body))
    return more or len(rows) == STEP_ENTRIES


def _bodies_of_a_step(tx: Transaction, upto: int) -> tuple[int, bool]:
    """The last body behind `upto` that the step indexes, at least one if there is any; and whether more are left."""
    total = 0
    for number, size in tx.execute("SELECT id, length(body) FROM bodies WHERE id > ? ORDER BY id", (upto,)):
        if total and total + size > STEP_BYTES:
            return upto, True
        upto, total = number, total + size
    return upto, False


def index_when_idle(tx: Transaction) -> None:
    """Have the rest indexed once nothing waits, step by step."""

    def step(later: Transaction) -> None:
        if index(later):
            later.when_idle("ledger.search", step)

    tx.when_idle("ledger.search", step)


def unindexed(connection: sqlite3.Connection) -> int:
    """How many entries are not indexed yet."""
    upto = connection.execute("SELECT entry FROM search_upto").fetchone()[0] if _is_indexed(connection) else 0
    return int(connection.execute("SELECT count(*) FROM entries WHERE seq > ?", (upto,)).fetchone()[0])


def search(connection: sqlite3.Connection, words: str, *, limit: int = PAGE_FINDS) -> tuple[Find, ...]:
    """The texts that hold all of `words`, the one said last for the first time first.

    Words in double quotes match as a phrase; `word*` matches what begins with it. Case and accents do not matter.
    Raises `LedgerError` where nothing can be searched for.
    """
    words = well_formed(words.replace("\0", " "))
    wanted = _parts(words)
    if not wanted:
        raise LedgerError(f"{words[:80]!r} holds no word to search for")
    if not _is_indexed(connection):
        return ()
    query = " AND ".join(f'"{_segmented(text)}"{"*" if prefix else ""}' for text, prefix in wanted)
    rows = connection.execute(
        "SELECT w.rowid, u.first, u.last, u.uses FROM body_words AS w CROSS JOIN body_uses AS u ON u.body = w.rowid"
        " WHERE body_words MATCH ? ORDER BY w.rowid DESC",
        (query,),
    )
    found: list[Find] = []
    for row in rows:
        made = _find(connection, row, [text for text, _ in wanted])
        if made is not None:
            found.append(made)
            if len(found) == limit:
                break
    rows.close()
    return tuple(found)


def _is_indexed(connection: sqlite3.Connection) -> bool:
    # An older version of Buzz, whose database may not be written here, had no index.
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'search_upto'").fetchone() is not None


def _find(connection: sqlite3.Connection, row: Sequence[int], words: Sequence[str]) -> Find | None:
    body, first, last, uses = row
    found = entries_of(connection, connection.execute(_ENTRY, (last,)))
    earliest = entries_of(connection, connection.execute(_ENTRY, (first,)), texts=False)
    if not found or not earliest:
        return None
    (entry,) = found
    when = (entry.at, earliest[0].at)
    if not entry.intact or body not in entry.digests:
        return Find(entry.turn, *when, "text", None, None, None, uses, None, changed=True)
    digest = entry.digests[body]
    place = next(_places(json.loads(entry.fields), digest, ()), None)
    kept = entry.texts[digest]
    if place is None or kept.lost == "gone":
        return None
    role, tag, plugin, identifier = _role(entry.kind, *place)
    snippet = None if kept.text is None else _snippet(kept.text, words)
    return Find(entry.turn, *when, role, tag, plugin, identifier, uses, snippet, changed=snippet is None)


def _places(
    value: object, digest: str, path: tuple[str, ...], holder: Mapping[str, Any] | None = None
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Where in an entry's fields a body stands: the path of keys, and the object that holds it."""
    if isinstance(value, dict):
        if value.get("digest") == digest and holder is not None:
            yield path, holder
            return
        for key, inner in value.items():
            if key not in _NOT_SAID:
                yield from _places(inner, digest, (*path, key), value)
    elif isinstance(value, list):
        for inner in value:
            yield from _places(inner, digest, path, holder)


def _role(
    kind: str, path: tuple[str, ...], holder: Mapping[str, Any]
) -> tuple[str, str | None, str | None, str | None]:
    match path:
        case ("sections", _):
            return "section", holder.get("tag"), holder.get("plugin"), holder.get("id")
        case ("left_out", _):
            return "left out", None, holder.get("plugin"), holder.get("id")
        case ("faults", _):
            return "fault", None, holder.get("plugin"), None
        case ("error", _):
            return "error", None, None, None
    if kind == "tool":
        return f"tool {path[-1]}", None, holder.get("plugin"), holder.get("name")
    return {"sent": "text as sent"}.get(path[-1], path[-1]), None, None, None


def _parts(words: str) -> list[tuple[str, bool]]:
    """The words and phrases of a query, each with whether what begins with it counts as well."""
    parts: list[tuple[str, bool]] = []
    for phrase, word in re.findall(r'"([^"]*)"|([^\s"]+)', words):
        text = phrase or word
        prefix = bool(word) and text.endswith("*")
        if re.search(r"\w", text):
            parts.append((text.replace('"', " ").strip("*"), prefix))
    return parts


def _segmented(text: str) -> str:
    """`text` with each character of a script without spaces as a word of its own."""
    return _unspaced().sub(r" \g<0> ", text) if not text.isascii() else text


def _snippet(text: str, words: Sequence[str]) -> str:
    """One line around the first of `words` that stands in `text` as it is written."""
    lowered = text.casefold()
    places = [at for word in words if (at := lowered.find(word.casefold())) >= 0]
    start = max(0, min(places, default=0) - SNIPPET_CHARS // 4)
    cut = " ".join(text[start : start + SNIPPET_CHARS].split())
    return f"{'…' if start else ''}{cut}{'…' if len(text) > start + SNIPPET_CHARS else ''}"


@lru_cache(maxsize=1)
def _unspaced() -> re.Pattern[str]:
    # Han, kana, Hangul, Bopomofo, Thai, Lao, Tibetan, Burmese, Khmer.
    return re.compile(
        r"[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u30ff\u3100-\u312f\u31a0-\u31ff"
        r"\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af]"
    )
