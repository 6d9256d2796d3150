"""Adding to the chain, inside of whatever transaction the caller is in.

The head is read under the lock that every writing transaction holds from its start, so two processes can never chain to
the same entry. A mirror of the head goes to a file of its own, when there is time: it may lag, and is then an ancestor.
"""

from __future__ import annotations

import logging
from pathlib import Path

import attrs

from buzz_host.ledger import bodies
from buzz_host.ledger.entries import (
    GENESIS,
    EntryDraft,
    LedgerError,
    Receipt,
    canonical_fields,
    chain_hash,
    timestamp,
)
from buzz_host.ledger.search import index_when_idle
from buzz_host.settings import replace_file
from buzz_host.store import Transaction

log = logging.getLogger(__name__)


@attrs.frozen
class Head:
    """The newest entry of the chain: its sequence number and hash."""

    seq: int
    hash: str


def append(tx: Transaction, entry: EntryDraft) -> Receipt:
    """Add `entry` to the chain, and its bodies beside it; durable with the transaction.

    Raises `ValueError` for fields that are no JSON, or that imitate a body.
    """
    head = tx.execute("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    seq, previous = (head[0] + 1, head[1].hex()) if head else (1, GENESIS)
    ids: list[int] = []

    def resolve(texts: list[str], hashes: list[str | None]) -> list[str]:
        references, kept = bodies.keep(tx, texts, hashes)
        ids.extend(kept)
        return references

    fields = canonical_fields(entry.fields, resolve)
    at = timestamp(entry.at)
    made = chain_hash(seq, entry.kind, at, entry.turn, fields, previous)
    tx.execute(
        "INSERT INTO entries (seq, kind, at, turn, previous, hash, bodies, fields) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            seq,
            entry.kind,
            at,
            entry.turn,
            bytes.fromhex(previous),
            bytes.fromhex(made),
            ",".join(map(str, ids)),
            fields,
        ),
    )
    tx.when_idle("ledger.head", _mirror)
    index_when_idle(tx)
    return Receipt(seq, made)


def mirrored_head(path: Path) -> Head | None:
    """The head that is mirrored at `path` (`home.head`); None where there is none yet.

    Raises `LedgerError` where the file cannot be read or holds something else.
    """
    try:
        text = path.read_text(encoding="ascii")
        if not text:
            return None
        seq, made = text.split()
        return Head(int(seq), checked_hash(made))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, LedgerError):
        raise LedgerError(f"{path}: is no head of a ledger: a number and 64 hexadecimal digits are expected") from None


def checked_hash(text: str) -> str:
    """`text` as the hash of an entry, in lower case. Raises `LedgerError` where it is none."""
    lowered = text.strip().lower()
    if len(lowered) != len(GENESIS) or not set(lowered) <= set("0123456789abcdef"):
        raise LedgerError(f"{text[:80]!r} is no head of a ledger: 64 hexadecimal digits are expected")
    return lowered


def _mirror(tx: Transaction) -> None:
    # In a transaction, although nothing is written: its lock keeps other processes' mirrors out.
    seq, made = tx.execute("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    try:
        if _still_holds(tx, mirrored_head(tx.home.head)):
            replace_file(tx.home.head, f"{seq} {made.hex()}\n".encode("ascii"))
            return
    except OSError as error:
        log.warning("%s: the head of the ledger could not be mirrored (%s)", tx.home.head, error.strerror)
        return
    except LedgerError:
        pass
    # Writing the new head over it would take away the only sign that entries are gone.
    log.warning(
        "%s does not fit the ledger: entries were removed, or an older database was put back; see `buzz audit verify`. "
        "The file stays as it is; move it away to begin a new one.",
        tx.home.head,
    )


def _still_holds(tx: Transaction, mirrored: Head | None) -> bool:
    """Whether the chain still holds the head that was mirrored last."""
    if mirrored is None:
        return True
    found = tx.execute("SELECT hash FROM entries WHERE seq = ?", (mirrored.seq,)).fetchone()
    return found is not None and found[0].hex() == mirrored.hash
