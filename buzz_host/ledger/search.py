"""Full-text search over everything that was said, in any script, indexed when no turn waits for it (AUD-02).

Each body is indexed once, however many turns repeat it, and remembers its first and its newest entry and how often it
was used. Scripts that put no space between words (Chinese, Japanese, Thai, …) are indexed by character, and a query in
them matches as a phrase. The index holds words and no texts; it is no part of the chain, and `verify` proves nothing of
it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import attrs

from buzz_host.ledger.entries import LedgerError, body_digest
from buzz_host.store import Transaction

PAGE_FINDS: Final = 20
STEP_ENTRIES: Final = 500  # what one transaction indexes: some tens of milliseconds, so that no turn waits longer
INDEXED_MAX_CHARS: Final = 1_000_000
SNIPPET_CHARS: Final = 160

# What an entry keeps beside its texts for its own use: lists in JSON that nobody said.
_NOT_SAID: Final = frozenset({"plugins", "attributes"})


@attrs.frozen
class Find:
    """One text that matches. `turn` is the newest turn that holds it; `role` says what it was there (`section`,
    `reply`, `tool arguments`, `tool result`, `error`, `left out`, `fault`), with the tag and the contribution of a
    section. `uses` counts the entries that hold it, from `first_at` to `at`."""

    turn: str
    at: str
    first_at: str
    role: str
    tag: str | None
    plugin: str | None
    id: str | None
    uses: int
    snippet: str


def index(tx: Transaction) -> bool:
    """Index what came since the last time, one step of it; whether more is left. For a transaction of its own."""
    upto_entry, upto_body = tx.execute("SELECT entry, body FROM search_upto").fetchone()
    rows = tx.execute(
        "SELECT seq, bodies FROM entries WHERE seq > ? ORDER BY seq LIMIT ?", (upto_entry, STEP_ENTRIES)
    ).fetchall()
    if not rows:
        return False
    uses = [(int(number), seq) for seq, listed in rows for number in {*listed.split(",")} if number]
    tx.executemany(
        "INSERT INTO body_uses (body, first, last, uses) VALUES (?1, ?2, ?2, 1)"
        " ON CONFLICT (body) DO UPDATE SET last = ?2, uses = uses + 1",
        uses,
    )
    newest = max((number for number, _ in uses), default=upto_body)
    texts = tx.execute("SELECT id, body FROM bodies WHERE id > ? AND id <= ?", (upto_body, newest)).fetchall()
    tx.executemany(
        "INSERT INTO body_words (rowid, words) VALUES (?, ?)",
        [(number, _segmented(body.decode("utf-8", "replace")[:INDEXED_MAX_CHARS])) for number, body in texts],
    )
    tx.execute("UPDATE search_upto SET entry = ?, body = ?", (rows[-1][0], max(newest, upto_body)))
    return len(rows) == STEP_ENTRIES


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
    wanted = _parts(words)
    if not wanted:
        raise LedgerError(f"{words[:80]!r} holds no word to search for")
    if not _is_indexed(connection):
        return ()
    query = " AND ".join(f'"{_segmented(text)}"{"*" if prefix else ""}' for text, prefix in wanted)
    rows = connection.execute(
        "SELECT w.rowid, u.first, u.last, u.uses, b.salt, b.sha256, b.body FROM body_words AS w"
        " CROSS JOIN body_uses AS u ON u.body = w.rowid CROSS JOIN bodies AS b ON b.id = w.rowid"
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


def _find(connection: sqlite3.Connection, row: Sequence[Any], words: Sequence[str]) -> Find | None:
    _, first, last, uses, salt, plain, body = row
    entry = connection.execute("SELECT turn, at, kind, fields FROM entries WHERE seq = ?", (last,)).fetchone()
    earliest = connection.execute("SELECT at FROM entries WHERE seq = ?", (first,)).fetchone()
    if entry is None or earliest is None:
        return None
    turn, at, kind, fields = entry
    place = next(_places(json.loads(fields), body_digest(salt, plain), ()), None)
    if place is None:
        return None
    path, holder = place
    role, tag, plugin, identifier = _role(kind, path, holder)
    snippet = _snippet(body.decode("utf-8", "replace"), words)
    return Find(turn, at, earliest[0], role, tag, plugin, identifier, uses, snippet)


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
