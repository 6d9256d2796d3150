"""The last set on disk: what the client hands over while no host runs (AUT-03).

A set is a folder named after its content, and `current` names the one that holds. A set that was handed over is kept
until its note is in the ledger, so that the ledger can say what it was, to the byte, whatever changed since.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from buzz_author.errors import BuzzError, PluginFault
from buzz_author.sections import Source, section
from buzz_author.turns import LeftOut
from buzz_host.attach.current_set import CurrentSet, SetTaker, resting_folder
from buzz_host.attach.parts import hook_output
from buzz_host.attach.registry import Attachment, Places, attachments
from buzz_host.services.host import Host
from buzz_host.settings import Home, locked, replace_file

VERSION: Final = 1
REVISION_CHARACTERS: Final = 16
# A client that read `current` a moment ago may still be about to read the set.
OLD_SETS_KEPT_S: Final = 3600.0
_SET: Final = "set.json"
_CURRENT: Final = "current"


class SnapshotGone(BuzzError, LookupError):
    """A set that a note names is not on disk any more, or cannot be read."""


async def write_snapshots(home: Home) -> None:
    """Write the set that holds now for each attachment of `home`, with a host of its own in this process.

    Does nothing, and starts nothing, where nothing is attached. Raises `BuzzError`.
    """
    attached = attachments(home)
    if not attached:
        return
    async with Host(home.root) as host:
        taker = SetTaker(host)
        for each in attached:
            write_snapshot(home, each, await taker.take(each, resting_folder(each), notes="leave"))
        await taker.close()


def write_snapshot(home: Home, attachment: Attachment, current: CurrentSet) -> bool:
    """Make `current` the last set of `attachment` on disk; False where it is that already. Raises `OSError`."""
    folder = home.folder(Places(home).snapshots(attachment.id))
    with locked(folder / _CURRENT):
        content = _written(current)
        # When it was taken is no part of what a set is, nor is a fault, which may tell a time.
        named = {**content, "taken_at": None, "revision": None, "faults": None}
        revision = sha256(json.dumps(named, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
        revision = revision[:REVISION_CHARACTERS]
        place = folder / revision
        if _current(folder) == revision and (place / _SET).exists():
            return False
        if not (place / _SET).exists():
            fresh = folder / f"{revision}.new"
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(mode=0o700)
            for number, text in enumerate(current.texts, start=1):
                replace_file(fresh / f"part-{number}.json", hook_output(text), durable=False)
            replace_file(fresh / _SET, json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
            fresh.replace(place)
        os.utime(place)
        replace_file(folder / _CURRENT, revision.encode("ascii") + b"\n")
        _drop_old(folder, revision, _noted(home))
    return True


def read_snapshot(home: Home, attachment: str, revision: str) -> CurrentSet:
    """The set `revision` of an attachment, as it was handed over. Raises `SnapshotGone`."""
    path = Places(home).snapshots(attachment) / revision / _SET
    try:
        said = json.loads(path.read_bytes())
        return CurrentSet(
            agent=said["agent"],
            model=said["model"],
            cwd=said["cwd"],
            taken_at=datetime.fromisoformat(said["taken_at"]),
            revision=said["revision"],
            texts=tuple(said["texts"]),
            sections=tuple(
                section(
                    each["tag"],
                    each["body"],
                    attributes=[(name, value) for name, value in each["attributes"]],
                    source=Source(*each["source"]) if each["source"] else None,
                )
                for each in said["sections"]
            ),
            left_out=tuple(LeftOut(**each) for each in said["left_out"]),
            faults=tuple(PluginFault(**each) for each in said["faults"]),
            plugins=tuple((name, loaded) for name, loaded in said["plugins"]),
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SnapshotGone(f"{path}: this set cannot be read ({type(error).__name__})") from None


def current_snapshot(home: Home, attachment: str) -> CurrentSet | None:
    """The last set of an attachment on disk; None where there is none, or none that can be read."""
    folder = Places(home).snapshots(attachment)
    try:
        return read_snapshot(home, attachment, _current(folder) or "")
    except SnapshotGone:
        return None


def drop_snapshots(home: Home, attachment: str) -> None:
    """Remove the sets of an attachment that is detached."""
    shutil.rmtree(Places(home).snapshots(attachment), ignore_errors=True)


def _written(current: CurrentSet) -> dict[str, Any]:
    return {
        "v": VERSION,
        "agent": current.agent,
        "model": current.model,
        "cwd": current.cwd,
        "taken_at": current.taken_at.isoformat(),
        "revision": current.revision,
        "texts": list(current.texts),
        "sections": [
            {
                "tag": each.tag,
                "body": each.body,
                "attributes": [list(pair) for pair in each.attributes],
                "source": [each.source.plugin, each.source.id] if each.source else None,
            }
            for each in current.sections
        ],
        "left_out": [
            {"plugin": each.plugin, "id": each.id, "reason": each.reason, "detail": each.detail}
            for each in current.left_out
        ],
        "faults": [
            {"plugin": each.plugin, "phase": each.phase, "message": each.message, "traceback": ""}
            for each in current.faults
        ],
        "plugins": [list(pair) for pair in current.plugins],
    }


def _current(folder: Path) -> str | None:
    try:
        return (folder / _CURRENT).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


def _noted(home: Home) -> frozenset[str]:
    """The sets that notes in the spool name."""
    named = set()
    with contextlib.suppress(OSError):
        for note in Places(home).spool.iterdir():
            with contextlib.suppress(OSError):
                named.update(note.read_bytes()[:256].decode("ascii", "replace").split(" ", 4)[3:4])
    return frozenset(named)


def _drop_old(folder: Path, current: str, noted: frozenset[str]) -> None:
    for each in folder.iterdir():
        if not each.is_dir() or each.name == current or each.name in noted:
            continue
        with contextlib.suppress(OSError):
            if time.time() - each.stat().st_mtime > OLD_SETS_KEPT_S:
                shutil.rmtree(each, ignore_errors=True)
