"""Putting a plugin that is being worked on into the home, in place, and taking plugins out again (CAT-01).

`install --link` makes a link in `plugins/`; the folder itself stays where it is and what its author edits is what runs.
Taking out never destroys anything: a link is removed, a folder or file that somebody dropped in is moved aside.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from buzz_author.errors import BuzzError
from buzz_author.names import folded
from buzz_host.plugins.discovery import named_source
from buzz_host.plugins.sources import PluginSource

if TYPE_CHECKING:
    from buzz_host.settings import Home

# Below `plugins/`; what begins with a dot is not looked at there.
REMOVED_FOLDER: Final = ".removed"


class LinkError(BuzzError):
    """A plugin cannot be linked or taken out; the message says what is in the way."""


@attrs.frozen
class Linked:
    """A plugin that is linked into the home now; `already` when it was before."""

    source: PluginSource
    link: Path
    warnings: tuple[str, ...] = ()
    already: bool = False


@attrs.frozen
class Removed:
    """A plugin that was taken out. `kept` is where its files are now; `was_link` says that they never moved."""

    name: str
    was_link: bool
    kept: Path

    @property
    def line(self) -> str:
        """What happened, for the person who asked for it."""
        if self.was_link and not self.kept.exists():
            return f"plugin '{self.name}' is not linked any more; the link led to {self.kept}, where nothing is"
        if self.was_link:
            return f"plugin '{self.name}' is not linked any more; its files stay at {self.kept}"
        return f"plugin '{self.name}' is out of use; its files were moved to {self.kept}: delete them there at will"


def link(home: Home, path: Path) -> Linked:
    """Link the plugin at `path`, a folder or a `.py` file, into `home`.

    Done in one step, or not at all. Raises `PluginPathError` where there is no plugin, `LinkError` where the name is
    taken in `plugins/`, also by one that differs in `_` and `-` only (PLG-08).
    """
    source, warnings = named_source(path)
    target = source.path
    if target is None:
        raise LinkError(f"{path}: only a folder or a .py file can be linked")
    home.writable_root()
    folder = home.folder(home.plugins)
    if target.parent == folder.resolve():
        raise LinkError(f"{target} is in {folder} already: it needs no link")
    place = folder / (source.id if source.form == "folder" else f"{source.id}.py")
    for each in entries_named(folder, source.id):
        if each == place and each.is_symlink() and each.resolve() == target:
            return Linked(source, place, warnings, already=True)
        kind = f"a link to {each.readlink()}" if each.is_symlink() else "a plugin of that name"
        raise LinkError(f"{each} is there already ({kind}): take it out first with: buzz plugin remove {source.id}")
    try:
        place.symlink_to(target)
    except OSError as error:
        raise LinkError(f"{place}: the link cannot be made ({error.strerror})") from None
    return Linked(source, place, warnings)


def remove(home: Home, name: str) -> Removed:
    """Take the plugin called `name` out of `plugins/`: a link goes, a folder or file of a person's own is moved to
    `plugins/.removed/`.

    Done in one step, or not at all. Raises `LinkError` where there is none of that name, or more than one.
    """
    found = entries_named(home.plugins, name)
    if not found:
        raise LinkError(
            f"there is no plugin {name!r} in {home.plugins}; buzz plugin list shows where each one comes from, "
            "and buzz plugin disable switches off any of them"
        )
    if len(found) > 1:
        places = " and ".join(str(each) for each in found)
        raise LinkError(f"{places} go by the name {name!r}: remove one of them by hand")
    (place,) = found
    try:
        if place.is_symlink():
            target = Path(os.path.normpath(place.parent / place.readlink()))
            place.unlink()
            return Removed(_name(place), True, target)
        kept = _free(home.folder(home.plugins / REMOVED_FOLDER), place.name)
        place.rename(kept)
    except OSError as error:
        raise LinkError(f"{place}: cannot be taken out ({error.strerror})") from None
    return Removed(_name(place), False, kept)


def entries_named(folder: Path, name: str) -> list[Path]:
    """What stands in `folder` under `name`. Compared, never made into a path: a name is anything a person types."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [each for each in entries if not each.name.startswith(".") and folded(_name(each)) == folded(name)]


def _name(place: Path) -> str:
    is_folder = place.is_dir() and not place.is_file()
    return place.name if is_folder else place.name.removesuffix(".py")


def _free(folder: Path, name: str) -> Path:
    stem, dot, suffix = name.partition(".")
    number = 1
    place = folder / name
    while place.exists() or place.is_symlink():
        number += 1
        place = folder / f"{stem}-{number}{dot}{suffix}"
    return place
