"""The proof that what was sent is what the ledger says, from two witnesses on disk.

One is the record of the rehearsal's model server, another process that wrote down each request as it came off the
socket. The other is the database, read through a connection of its own. Nothing that the host remembers takes part.
What a program puts behind our text in the same message, in tags of its own as goose does, is named and is not ours.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import quote

import attrs

from buzz_author.text import PROGRAM_TAGS
from buzz_host.ledger import LedgerError, queries
from buzz_host.ledger.verify import verify
from buzz_host.ledger.views import TurnView
from buzz_host.rehearsal import RecordedRequest, RehearsalError, read_record

TURNS_MAX: Final = 10_000
SHOWN_BYTES: Final = 24
# All that may stand behind a text: sections in tags of a program's own, which no text of ours can have.
_OF_THE_PROGRAM: Final = re.compile(
    rb"\s*<(%s)[ >].*</\1>\s*" % b"|".join(each.encode() for each in sorted(PROGRAM_TAGS)), re.DOTALL
)


@attrs.frozen
class TurnProof:
    """One turn and what the model server received for it.

    `request` is the number of the recorded request whose newest user text is the turn's, or comes nearest to it.
    `difference` says where the two differ; empty where they are equal to the byte. `behind` is what the program put
    behind the text in the same message.
    """

    turn: str
    kept: bytes
    recorded: bytes
    request: int | None
    difference: str
    behind: bytes = b""

    @property
    def holds(self) -> bool:
        """Whether the two witnesses agree to the byte."""
        return not self.difference

    @property
    def kept_sha256(self) -> str:
        """The hash of the text in the ledger."""
        return sha256(self.kept).hexdigest()

    @property
    def recorded_sha256(self) -> str:
        """The hash of the text that was received."""
        return sha256(self.recorded).hexdigest()


@attrs.frozen
class Proof:
    """What became of comparing all turns, oldest first; `faults` are what makes a witness unfit in itself."""

    turns: tuple[TurnProof, ...]
    entries: int
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether there are turns, every one is equal to the byte, and both witnesses are whole."""
        return bool(self.turns) and not self.faults and all(each.holds for each in self.turns)


def prove(record: Path, database: Path) -> Proof:
    """Compare the text of each turn in `database` with what the model server wrote into `record`.

    Turns and requests are matched in order, each request for one turn. Never raises for what is in the files: a
    damaged one is a fault of the proof.
    """
    faults: list[str] = []
    requests: Sequence[RecordedRequest] = ()
    try:
        requests = read_record(record)
    except RehearsalError as error:
        faults.append(str(error))
    turns: list[TurnView] = []
    entries = 0
    connection = sqlite3.connect(f"file:{quote(os.fsencode(database))}?mode=ro", uri=True)
    try:
        faults += [str(each) for each in verify(connection)]
        entries = int(connection.execute("SELECT count(*) FROM entries").fetchone()[0])
        rows = queries.turns(connection, limit=TURNS_MAX)
        turns = [queries.turn(connection, row.turn) for row in reversed(rows) if row.steers is None]
    except (sqlite3.Error, LedgerError, ValueError, KeyError) as error:
        faults.append(f"{database}: the turns cannot be read: {error}")
    finally:
        connection.close()
    return Proof(tuple(_matched(turns, requests)), entries, tuple(faults))


def _matched(turns: Sequence[TurnView], requests: Sequence[RecordedRequest]) -> list[TurnProof]:
    received = [(each.n, each.newest_user_text.encode("utf-8", "surrogatepass")) for each in requests]
    kept = [None if turn.text is None else turn.text.encode("utf-8") for turn in turns]
    taken: set[int] = set()
    place = 0
    equal: dict[int, int] = {}
    for number, text in enumerate(kept):
        found = next((n for n in range(place, len(received)) if _carries(received[n][1], text)), None)
        if found is not None:
            equal[number] = found
            taken.add(found)
            place = found + 1
    proofs = []
    for number, (turn, text) in enumerate(zip(turns, kept, strict=True)):
        if text is None:
            lost = "in the ledger: " + ("; ".join(turn.changed) or "its text is gone")
            proofs.append(TurnProof(turn.row.turn, b"", b"", None, lost))
        elif number in equal:
            n, octets = received[equal[number]]
            proofs.append(TurnProof(turn.row.turn, text, octets[: len(text)], n, "", octets[len(text) :]))
        else:
            proofs.append(_differs(turn.row.turn, text, [each for n, each in enumerate(received) if n not in taken]))
    return proofs


def _carries(received: bytes, text: bytes | None) -> bool:
    """Whether the message is `text`, with nothing behind it but what a program marks as its own."""
    if text is None or not received.startswith(text):
        return False
    behind = received[len(text) :]
    return not behind or _OF_THE_PROGRAM.fullmatch(behind) is not None


def _differs(turn: str, text: bytes, others: Sequence[tuple[int, bytes]]) -> TurnProof:
    if not others:
        return TurnProof(turn, text, b"", None, "the model server received no such request")
    n, nearest = max(others, key=lambda other: _common(text, other[1]))
    at = _common(text, nearest)
    return TurnProof(
        turn,
        text,
        nearest,
        n,
        f"at byte {at}: the ledger has {_around(text, at)}, request {n} has {_around(nearest, at)}",
    )


def _common(one: bytes, other: bytes) -> int:
    """How many bytes are the same from the beginning on."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _around(octets: bytes, at: int) -> str:
    piece = octets[at : at + SHOWN_BYTES]
    return ascii(piece.decode("utf-8", "replace")) if piece else "its end"
