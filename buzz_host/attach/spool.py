"""Bringing into the ledger what was handed over while no host ran (AUT-03).

The client leaves a note for each entry before it prints the last set on disk: which set, for which prompt, when. A note
becomes a turn once, also when the bringing in is cut off between the ledger and the removal of the note.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs

from buzz_host.attach.ledger_turns import HookInput, note_turn, record_handed_over
from buzz_host.attach.registry import ENTRIES_MAX, Places
from buzz_host.attach.snapshots import SnapshotGone, read_snapshot
from buzz_host.settings import Home
from buzz_host.store import Store, Transaction

log = logging.getLogger(__name__)

# The entries of one prompt leave their notes at the same time: a prompt is brought in when no more can come.
SETTLED_S: Final = 1.0
NOTE_MAX_BYTES: Final = 64 * 1024
UNREADABLE_SUFFIX: Final = ".unreadable"


@attrs.frozen
class Note:
    """One note: entry `part` of the set `revision` was handed over for the prompt of `hook`."""

    path: Path
    attachment: str
    part: int
    revision: str
    at: datetime
    hook: HookInput


def waiting(home: Home) -> int:
    """How many notes are not in the ledger yet."""
    return len(_paths(home))


def bring_in(home: Home, store: Store | None = None, *, settled_s: float = SETTLED_S) -> int:
    """Make turns of the notes; gives how many turns. Costs one look where there are none.

    Waits until the newest note is `settled_s` old. A note that cannot be understood, or whose set is gone, is kept
    under another name and told in the log. Blocks. Raises `StoreError`, `OSError`.
    """
    paths = _paths(home)
    if not paths:
        return 0
    time.sleep(min(settled_s, max(0.0, settled_s - time.time() + max(map(_modified, paths)))))
    notes = [note for path in paths if (note := _read(path)) is not None]
    if not notes:
        return 0
    owned = contextlib.nullcontext(store) if store is not None else Store.open(home)
    with owned as opened:
        return sum(_bring_in(home, opened, group) for group in _prompts(notes))


def _prompts(notes: Sequence[Note]) -> list[list[Note]]:
    """The notes of each prompt, oldest first. Messages that share an id are told apart by their entries: each has one
    note of each."""
    groups: list[list[Note]] = []
    open_groups: dict[tuple[str, ...], list[Note]] = {}
    for note in sorted(notes, key=lambda each: (each.at, each.part)):
        key = (note.attachment, note.revision, note.hook.session, note.hook.prompt or note.path.name)
        group = open_groups.get(key)
        if group is None or any(each.part == note.part for each in group):
            group = open_groups[key] = []
            groups.append(group)
        group.append(note)
    return groups


def _bring_in(home: Home, store: Store, notes: Sequence[Note]) -> bool:
    first = notes[0]
    try:
        current = read_snapshot(home, first.attachment, first.revision)
    except SnapshotGone as error:
        for note in notes:
            _set_aside(note.path, str(error))
        return False
    parts = sorted({note.part for note in notes})
    texts = tuple(current.texts[part - 1] for part in parts if part <= len(current.texts))

    def record(tx: Transaction) -> bool:
        turn = note_turn(f"{first.attachment} {first.revision} {first.path.name}")
        if tx.execute("SELECT 1 FROM entries WHERE turn = ? LIMIT 1", (turn,)).fetchone() is not None:
            return False
        record_handed_over(tx, first.attachment, first.hook, current, by="client", at=first.at, texts=texts, turn=turn)
        return True

    made = store.write_sync(record)
    # The first one last: it is what the id may follow from, should this be cut off here.
    for note in reversed(notes):
        note.path.unlink(missing_ok=True)
    return made


def _paths(home: Home) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return [each for each in Places(home).spool.iterdir() if not each.name.endswith(UNREADABLE_SUFFIX)]
    return []


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read(path: Path) -> Note | None:
    try:
        octets = path.read_bytes()[:NOTE_MAX_BYTES]
        version, attachment, part, revision, at, said = octets.removesuffix(b"\n").split(b" ", 5)
        if version != b"1" or not octets.endswith(b"\n") or not 1 <= int(part) <= ENTRIES_MAX:
            raise ValueError("another version, or half of one")
        moment = datetime.fromtimestamp(float(at), UTC)
        return Note(path, _name(attachment), int(part), _name(revision), moment, HookInput.read(said))
    except FileNotFoundError:
        return None  # somebody else brought it in meanwhile
    except (OSError, ValueError, OverflowError) as error:
        _set_aside(path, str(error))
        return None


def _name(word: bytes) -> str:
    # These become names of files: what the client writes there is hexadecimal.
    if not word or not set(word) <= set(b"0123456789abcdef"):
        raise ValueError("no name of an attachment or a set")
    return word.decode("ascii")


def _set_aside(path: Path, why: str) -> None:
    log.warning("%s: this note cannot be brought into the ledger (%s); it is kept", path, why)
    with contextlib.suppress(OSError):
        path.rename(f"{path}{UNREADABLE_SUFFIX}")
