"""From what was asked for to the files of one plugin, in memory, judged on the way (CAT-02).

A folder, an archive and a repository differ in how they are listed and read; which plugin is meant is decided here,
for all of them alike: the one at the top, the only one below it, or the one that was named.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import attrs

from buzz_host.plugins.candidates import CODE_NAME, without_manifest
from buzz_host.plugins.files import PluginFilesError, is_content, read_file, read_folder
from buzz_host.plugins.install.archives import Archive
from buzz_host.plugins.install.listing import Listing, Refused
from buzz_host.plugins.install.lockfile import Provenance
from buzz_host.plugins.install.repositories import Repository
from buzz_host.plugins.install.requests import SourceError
from buzz_host.plugins.sources import MANIFEST_NAME, one_line

PLUGINS_NAMED_MAX: Final = 12
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_SET_ID_BITS: Final = stat.S_ISUID | stat.S_ISGID


@attrs.frozen
class Fetched:
    """The files of one plugin by their paths. `root` is what to call the place they come from in messages; `file` the
    name of a plugin that is a single file, empty for a folder."""

    provenance: Provenance
    root: Path
    files: Mapping[str, bytes] = attrs.field(repr=False)
    file: str = ""


class Tree(Protocol):
    """What a plugin is looked for in."""

    label: str

    def paths(self) -> Sequence[str]:
        """All files that are content."""
        ...

    def contents(self, root: str) -> Mapping[str, bytes]:
        """The files below the folder `root`; of the file `root`, under its own name."""
        ...


def fetch(wanted: Provenance, workplace: Path, called_off: threading.Event) -> Fetched:
    """Fetch what `wanted` names; `workplace` is an empty folder for what git fetches.

    Raises `Refused` for anything in it that must not be, `SourceError`, `GitError` or `BuzzError` where there is no
    plugin in it, or more than one.
    """
    try:
        return _fetched(wanted, workplace, called_off)
    except FileNotFoundError as error:
        raise SourceError(f"{error.filename or wanted.location}: is gone") from None


def _fetched(wanted: Provenance, workplace: Path, called_off: threading.Event) -> Fetched:
    if wanted.kind == "file":
        path = Path(wanted.location)
        files = _judged(path.parent.name, read_file(_no_set_id(path)).files)
        return Fetched(wanted, path.parent, files, file=path.name)
    tree: Tree
    if wanted.kind == "folder":
        tree = _Folder(Path(wanted.location))
    elif wanted.kind == "archive":
        tree = _Listed(Archive(Path(wanted.location)))
    else:
        repository = Repository(wanted.location, wanted.revision, workplace, called_off)
        wanted = attrs.evolve(wanted, commit=repository.commit)
        tree = _Listed(repository)
    root = _chosen(tree, wanted)
    files = _judged(tree.label, tree.contents(root))
    place = Path(tree.label) / root
    if root in tree.paths():
        return Fetched(wanted, place.parent, files, file=place.name)
    return Fetched(wanted, place, files)  # a folder that was found, not named, may be called otherwise next time


def _chosen(tree: Tree, wanted: Provenance) -> str:
    """The folder, or the file, of the plugin that is meant."""
    paths = tree.paths()
    if wanted.subdir:
        return _named(tree, wanted.subdir)
    if MANIFEST_NAME in paths:
        return ""
    folders = sorted(path.rpartition("/")[0] for path in paths if path.rpartition("/")[2] == MANIFEST_NAME)
    plugins = [each for each in folders if not any(each.startswith(f"{other}/") for other in folders)]
    if len(plugins) == 1:
        return plugins[0]
    if plugins:
        named = ", ".join(plugins[:PLUGINS_NAMED_MAX])
        more = f" and {len(plugins) - PLUGINS_NAMED_MAX} more" if len(plugins) > PLUGINS_NAMED_MAX else ""
        raise SourceError(f"{tree.label}: holds {len(plugins)} plugins: choose one with --subdir: {named}{more}")
    raise SourceError(_no_plugin(tree, ""))


def _named(tree: Tree, subdir: str) -> str:
    paths = tree.paths()
    tops = {path.partition("/")[0] for path in paths}
    # An archive has all it holds in one folder; a person names what is in that.
    inside = [subdir, *(f"{top}/{subdir}" for top in tops if len(tops) == 1)]
    for each in inside:
        if f"{each}/{MANIFEST_NAME}" in paths or (each in paths and each.endswith(".py")):
            return each
    for each in inside:
        if any(path.startswith(f"{each}/") for path in paths):
            raise SourceError(_no_plugin(tree, each))
    raise SourceError(f"{tree.label}: has no folder {subdir}")


def _no_plugin(tree: Tree, root: str) -> str:
    """Why there is no plugin below `root`: the nearest miss, at the top first."""
    prefix = f"{root}/" if root else ""
    folders: dict[str, list[str]] = {prefix.removesuffix("/"): []}
    for path in tree.paths():
        if path.startswith(prefix):
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, []).append(name)
    messages = [without_manifest(Path(tree.label) / folder, names) for folder, names in folders.items()]
    telling = [each for each in messages if "rename it" in each] or [each for each in messages if CODE_NAME in each]
    return one_line((telling or messages)[0])


def _judged(label: str, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """`files`, judged by their names and contents once more, wherever they come from."""
    listing = Listing(label)
    for name, content in files.items():
        listing.add(name, "file", size=len(content))
        if content.startswith(_LFS_POINTER):
            raise Refused(f"{label}: {name}: is a Git LFS pointer and not the file: Buzz fetches no LFS objects")
    listing.close()
    listing.contents("")
    return files


class _Listed:
    """An archive or a repository as a `Tree`."""

    def __init__(self, holder: Archive | Repository) -> None:
        self.label = holder.label
        self._holder = holder
        self._paths = frozenset(holder.listing.files())

    def paths(self) -> Sequence[str]:
        return sorted(self._paths)

    def contents(self, root: str) -> Mapping[str, bytes]:
        listing = self._holder.listing
        if root in self._paths:
            folder, _, name = root.rpartition("/")
            return self._holder.read({name: listing.contents(folder)[name]})
        return self._holder.read(listing.contents(root))


class _Folder:
    """A folder on the disk as a `Tree`: listed without following a link, read as a plugin that is used in place is."""

    def __init__(self, path: Path) -> None:
        self.label = str(path)
        self._path = path
        self._listing = Listing(path.name)
        for name, kind, mode in _walk(path, ""):
            self._listing.add(name, "folder" if kind == "folder" else "file", mode=mode)
        self._paths = sorted(self._listing.files())

    def paths(self) -> Sequence[str]:
        return self._paths

    def contents(self, root: str) -> Mapping[str, bytes]:
        place = self._path / root
        return read_file(place).files if root in self._paths else read_folder(place).files


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, str, int]]:
    """What stands below a folder: path, kind, mode. Number and depth are bounded by whoever takes it."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        raise PluginFilesError(f"{folder}: cannot be read ({error.strerror})") from None
    for entry in entries:
        if not is_content(entry.name):
            continue
        name = f"{prefix}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            yield name, "folder", 0
            yield from _walk(folder / entry.name, f"{name}/")
        else:
            status = entry.stat(follow_symlinks=False)
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                raise PluginFilesError(one_line(f"{folder / entry.name}: neither file nor folder"))
            yield name, "file", 0 if stat.S_ISLNK(status.st_mode) else status.st_mode


def _no_set_id(path: Path) -> Path:
    if path.stat().st_mode & _SET_ID_BITS:
        raise Refused(f"{path}: has a set-user-id or set-group-id bit")
    return path
