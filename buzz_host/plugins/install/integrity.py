"""Whether an installed plugin is, byte for byte, what was installed.

Loading asks with the very bytes that it is about to compile, so nothing can be exchanged between the check and the use.
`verify` asks for everything that stands in the store, also for what loading would never look at.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import attrs

from buzz_host.plugins.candidates import described_file, described_folder
from buzz_host.plugins.files import PluginFiles, PluginFilesError, read_folder
from buzz_host.plugins.install.lockfile import InstalledPlugin, installed, read_lock
from buzz_host.plugins.sources import PluginSource, one_line

if TYPE_CHECKING:
    from buzz_host.settings import Home

DIFFERENCES_NAMED_MAX: Final = 3
_CHUNK_BYTES: Final = 1024 * 1024


class ChangedError(PluginFilesError):
    """An installed plugin is not what was installed; nothing of it is loaded."""


@attrs.frozen
class Difference:
    """One file of an installed plugin that is not what was installed. `file` is its path below `place`; empty where
    the whole folder is meant."""

    plugin: str
    file: str
    kind: Literal["changed", "missing", "added", "not a file", "unreadable"]
    place: Path

    def __str__(self) -> str:
        return f"{self.place / self.file}: {_WORDS[self.kind]}"


_WORDS: Final = {
    "changed": "is not what was installed",
    "missing": "was installed, and is gone",
    "added": "was not installed",
    "not a file": "is no plain file or folder",
    "unreadable": "cannot be read",
}


def stored_files(home: Home, row: InstalledPlugin) -> PluginFiles:
    """The files of an installed plugin, read once and held against the lock.

    Raises `ChangedError`, which names the files, or `PluginFilesError`.
    """
    place = row.place(home)
    try:
        files = read_folder(place)
    except FileNotFoundError:
        raise ChangedError(f"{place}: the files of plugin '{row.name}' are gone: {_remedy(row)}") from None
    must_be_whole(row, files)
    return files


def stored_source(home: Home, row: InstalledPlugin) -> tuple[PluginSource, tuple[str, ...]]:
    """The installed plugin of a row, and the warnings about its manifest. Raises as `stored_files`, and as
    `folder_source` does."""
    files = stored_files(home, row)
    place = row.place(home)
    if row.form == "folder":
        source, warnings = described_folder(files, place, row.name, "installed")
    else:
        source, warnings = described_file(files, place / f"{row.name}.py", row.name, "installed"), ()
    return attrs.evolve(source, installation=row.installation(home)), warnings


def read_locked(source: PluginSource) -> PluginFiles:
    """The files of an installed plugin for loading, held against the lock as it stands now. Raises as `stored_files`,
    and `LockFileError`."""
    if source.installation is None or source.path is None:
        raise PluginFilesError(f"plugin '{source.id}' is not an installed one")
    place = source.path if source.form == "folder" else source.path.parent
    row = installed(read_lock(source.installation.lock), source.id)
    if row.content_hash != source.content_hash:
        raise PluginFilesError(f"{place}: plugin '{source.id}' was exchanged while it was being loaded: try again")
    try:
        files = read_folder(place)
    except FileNotFoundError:
        raise ChangedError(f"{place}: the files of plugin '{row.name}' are gone: {_remedy(row)}") from None
    must_be_whole(row, files)
    return files


def must_be_whole(row: InstalledPlugin, files: PluginFiles) -> None:
    """Raise `ChangedError`, which names the files, unless `files` are what was installed, byte for byte."""
    if files.content_hash == row.content_hash:
        return
    differences = list(_against(row, files))
    named = "; ".join(str(each) for each in differences[:DIFFERENCES_NAMED_MAX])
    more = len(differences) - DIFFERENCES_NAMED_MAX
    raise ChangedError(
        one_line(
            f"{named or files.root}{f'; and {more} more' if more > 0 else ''}: nothing of plugin '{row.name}' is "
            f"loaded: {_remedy(row)}"
        )
    )


def _remedy(row: InstalledPlugin) -> str:
    return f"buzz plugin upgrade {row.name} puts it back"


def _against(row: InstalledPlugin, files: PluginFiles) -> Iterator[Difference]:
    for name in sorted(row.files.keys() | files.files.keys()):
        if name not in files.files:
            yield Difference(row.name, name, "missing", files.root)
        elif name not in row.files:
            yield Difference(row.name, name, "added", files.root)
        elif sha256(files.files[name]).hexdigest() != row.files[name]:
            yield Difference(row.name, name, "changed", files.root)


def differences(home: Home, row: InstalledPlugin) -> tuple[Difference, ...]:
    """Everything in the store that is not as the lock says, whatever its name: links, devices and what tools leave
    count as well. Empty where the plugin is whole."""
    place = row.place(home)
    if not place.is_dir() or place.is_symlink():
        return (Difference(row.name, "", "missing", place),)
    found: list[Difference] = []
    seen: set[str] = set()
    for name, kind in _everything(place, ""):
        seen.add(name)
        if kind != "file":
            found.append(Difference(row.name, name, kind, place))
        elif name not in row.files:
            found.append(Difference(row.name, name, "added", place))
        else:
            digest = _digest(place / name)
            if digest != row.files[name]:
                found.append(Difference(row.name, name, "changed" if digest else "unreadable", place))
    found += [Difference(row.name, name, "missing", place) for name in row.files if name not in seen]
    return tuple(sorted(found, key=lambda each: each.file))


def _everything(folder: Path, prefix: str) -> Iterator[tuple[str, Literal["file", "not a file", "unreadable"]]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: os.fsencode(entry.name))
    except OSError:
        yield prefix.removesuffix("/"), "unreadable"
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _everything(folder / entry.name, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", "file" if entry.is_file(follow_symlinks=False) else "not a file"


def _digest(path: Path) -> str:
    """The SHA-256 of a file; empty where it cannot be read."""
    digest = sha256()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError:
        return ""
    return digest.hexdigest()
