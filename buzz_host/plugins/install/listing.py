"""The names in an archive or a git tree, judged before anything of it is read (CAT-02).

Whatever lists a tree adds each entry here, and the first one that could leave its folder, meet another one, deceive a
reader or fill a disk ends the installation. Nothing that is listed becomes a path on this machine unless it has passed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final, Literal

import attrs

from buzz_author.errors import BuzzError
from buzz_host.plugins.files import DEPTH_MAX, FILES_MAX, TOTAL_MAX_BYTES, is_content
from buzz_host.plugins.sources import one_line

ENTRIES_MAX: Final = 20_000
PATH_MAX_BYTES: Final = 1024
NAME_MAX_BYTES: Final = 255
LINKS_FOLLOWED_MAX: Final = 8
# What macOS puts beside everything that it archives.
_JUNK_FOLDER: Final = "__MACOSX"
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_SET_ID_BITS: Final = 0o6000
_SET_USER_BIT: Final = 0o4000  # a folder's group bit only says whose its files are
# Controls, what only formats (it turns the direction of writing, or shows nothing), line and paragraph separators.
_UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})

EntryKind = Literal["file", "folder", "link", "submodule"]


class Refused(BuzzError):
    """Something in what was to be installed must not be; nothing was written."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


@attrs.frozen
class Entry:
    """One entry of a tree. `target` is where a link leads, as it says itself; `hard` one names an entry of the tree
    instead of a path beside it."""

    path: str
    kind: EntryKind
    size: int = 0
    target: str = ""
    hard: bool = False


class Listing:
    """The entries of one tree; `label` names it in messages. Add all, then `close`."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.entries: dict[str, Entry] = {}
        self._count = 0
        self._total = 0
        # By what file systems that fold case or normal form would take for the same: the spelling that came first.
        self._spellings: dict[str, str] = {}

    def add(
        self, name: str, kind: EntryKind, *, size: int = 0, target: str = "", hard: bool = False, mode: int = 0
    ) -> str:
        """Add one entry; gives its path without `./`, empty for the tree itself. Raises `Refused`."""
        self._count += 1
        if self._count > ENTRIES_MAX:
            raise Refused(f"{self.label}: has more than {ENTRIES_MAX:,} entries")
        path = self._checked(name)
        if mode & (_SET_USER_BIT if kind == "folder" else _SET_ID_BITS):
            raise self._refused(name, "has a set-user-id or set-group-id bit")
        if not path:
            return path
        before = self.entries.get(path)
        if before is not None and not (kind == before.kind == "folder"):
            raise self._refused(name, "is there twice")
        self._must_not_meet(path, name)
        self._total += size
        self.entries[path] = Entry(path, kind, size, target, hard)
        return path

    def close(self) -> None:
        """All entries are there: check what can only be judged together. Raises `Refused`."""
        for path, entry in self.entries.items():
            for above in _folders_above(path):
                if above in self.entries and self.entries[above].kind != "folder":
                    raise self._refused(path, f"is in {above}, which is no folder")
            if entry.kind == "link":
                self._target(entry)

    def files(self) -> Iterator[str]:
        """The paths of all files and links that are content, not what tools or archivers leave."""
        return (path for path, each in self.entries.items() if each.kind in ("file", "link") and _counts(path))

    def contents(self, root: str) -> dict[str, Entry]:
        """The files of the plugin in the folder `root` (empty: all): their paths below it, and what holds their bytes.

        A link to a file within the same folder stands for that file. Raises `Refused` for any other link, a submodule,
        and more than a plugin may have.
        """
        prefix = f"{root}/" if root else ""
        found: dict[str, Entry] = {}
        total = 0
        for path, entry in self.entries.items():
            if not path.startswith(prefix) or not _counts(path) or entry.kind == "folder":
                continue
            if entry.kind == "submodule":
                raise self._refused(path, "is a git submodule, which is not carried: put its files into the repository")
            holder = self._followed(entry, prefix)
            found[path[len(prefix) :]] = holder
            total += holder.size
            if len(found) > FILES_MAX:
                raise Refused(f"{self.label}: a plugin may have {FILES_MAX} files at most")
            if total > TOTAL_MAX_BYTES:
                raise Refused(f"{self.label}: a plugin may have {TOTAL_MAX_BYTES // 1024**2} MiB at most")
        return found

    def _checked(self, name: str) -> str:
        if len(name.encode("utf-8", "surrogateescape")) > PATH_MAX_BYTES:
            raise self._refused(name, f"is longer than {PATH_MAX_BYTES} bytes")
        for character in name:
            if "\ud800" <= character <= "\udfff":
                raise self._refused(name, "is a name that is not UTF-8")
            if unicodedata.category(character) in _UNPRINTABLE:
                raise self._refused(name, f"has an invisible character in its name (U+{ord(character):04X})")
        if "\\" in name:
            raise self._refused(name, "has a backslash in its name")
        if name.startswith("/") or _DRIVE.match(name):
            raise self._refused(name, "is an absolute path")
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise self._refused(name, "leads out of its folder")
        if len(parts) > DEPTH_MAX:
            raise self._refused(name, f"is nested more than {DEPTH_MAX} deep")
        for part in parts:
            if len(part.encode("utf-8")) > NAME_MAX_BYTES:
                raise self._refused(name, f"has a name of more than {NAME_MAX_BYTES} bytes in it")
        return "/".join(parts)

    def _must_not_meet(self, path: str, name: str) -> None:
        for each in (*_folders_above(path), path):
            spelled = self._spellings.setdefault(_folded(each), each)
            if spelled != each:
                raise self._refused(
                    name, f"and {spelled} differ in case or Unicode normal form only, and would be one on some disks"
                )

    def _target(self, link: Entry) -> str:
        """Where a link leads, as a path of this tree."""
        target = link.target
        if not target or target.startswith("/") or "\\" in target or _DRIVE.match(target) or "\0" in target:
            raise self._refused(link.path, f"is a link that leads out ({target[:80]})")
        parts = [] if link.hard else link.path.split("/")[:-1]
        for part in target.split("/"):
            if part == "..":
                if not parts:
                    raise self._refused(link.path, f"is a link that leads out ({target[:80]})")
                parts.pop()
            elif part not in ("", "."):
                parts.append(part)
        return "/".join(parts)

    def _followed(self, entry: Entry, prefix: str) -> Entry:
        """The file that `entry` is, or leads to."""
        found = entry
        for _ in range(LINKS_FOLLOWED_MAX):
            if found.kind == "file":
                return found
            target = self._target(found)
            if not target.startswith(prefix):
                raise self._refused(
                    entry.path, "is a link that leads out of the plugin's folder: copy the file into it"
                )
            beyond = self.entries.get(target)
            if beyond is None or beyond.kind not in ("file", "link"):
                what = "to a folder" if self._is_folder(target) else "that leads nowhere"
                raise self._refused(entry.path, f"is a link {what}; only links to files are carried")
            found = beyond
        raise self._refused(entry.path, "is a link that leads nowhere; only links to files are carried")

    def _is_folder(self, path: str) -> bool:
        return not path or any(each == path or each.startswith(f"{path}/") for each in self.entries)

    def _refused(self, name: str, why: str) -> Refused:
        shown = name if len(name) <= 120 else f"{name[:117]}..."
        return Refused(f"{self.label}: {shown}: {why}")


def _counts(path: str) -> bool:
    parts = path.split("/")
    return parts[0] != _JUNK_FOLDER and all(map(is_content, parts))


def _folders_above(path: str) -> Iterator[str]:
    position = path.find("/")
    while position >= 0:
        yield path[:position]
        position = path.find("/", position + 1)


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
