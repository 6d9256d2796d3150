"""Plugins of installed packages: the entry points of the group `buzz.plugins` (PLG-04).

A value without a colon is a plugin module, and nothing is imported to find it; one with a colon is an object, which has
to be imported to know whether it is a `PluginManifest` or a plugin. `importlib.metadata` alone would cost more than all
the rest of a scan, so the metadata folders are read directly, each only when its parent folder has changed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs

from buzz_author.errors import BuzzError, describe
from buzz_author.names import check_name
from buzz_author.plugins import PluginManifest
from buzz_host.plugins.candidates import Literals
from buzz_host.plugins.files import PluginFilesError, read_file, read_folder
from buzz_host.plugins.sources import PluginSource
from buzz_host.plugins.threads import end_by_force

GROUP: Final = "buzz.plugins"
# A package whose manifest takes longer to import is left out of what this process finds.
MANIFEST_IMPORT_S: Final = 2.0
PLUGIN_TYPE: Final = "plugin"
_METADATA_SUFFIXES: Final = (".dist-info", ".egg-info")


@attrs.frozen
class EntryPoint:
    """One entry point: its name and value, and the package that declares it."""

    name: str
    value: str
    package: str
    version: str

    @property
    def where(self) -> str:
        """Its place, for people."""
        return f"{self.value} of {self.package} {self.version}".rstrip()


@attrs.frozen
class Found:
    """A plugin that an entry point brings, or the reason why it brings none."""

    name: str
    where: str
    source: PluginSource | None = None
    reason: str = ""


def entry_point_plugins() -> tuple[Found, ...]:
    """What the entry points bring, in the order of `sys.path`. Each is looked at once in the life of a process, since
    its module is imported only once."""
    found: list[Found] = []
    for entry in _entry_points():
        if entry not in _looked_at:
            _looked_at[entry] = tuple(_plugins_of(entry))
        found += _looked_at[entry]
    return tuple(found)


_looked_at: dict[EntryPoint, tuple[Found, ...]] = {}
_scanned: dict[str, tuple[int, tuple[EntryPoint, ...]]] = {}


def _entry_points() -> Iterator[EntryPoint]:
    packages: set[str] = set()
    for folder in dict.fromkeys(sys.path):
        here = set()
        for entry in _entry_points_in(folder or "."):
            if entry.package not in packages:  # the first one on the path is the one that is imported
                here.add(entry.package)
                yield entry
        packages |= here


def _entry_points_in(folder: str) -> tuple[EntryPoint, ...]:
    try:
        changed_ns = Path(folder).stat().st_mtime_ns
        if folder in _scanned and _scanned[folder][0] == changed_ns:
            return _scanned[folder][1]
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(_METADATA_SUFFIXES))
    except NotADirectoryError:
        return _entry_points_of_archive(folder)
    except OSError:
        return ()
    found = tuple(entry for name in names for entry in _entry_points_of(Path(folder) / name))
    _scanned[folder] = (changed_ns, found)
    return found


def _entry_points_of(metadata: Path) -> Iterator[EntryPoint]:
    try:
        text = (metadata / "entry_points.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    if GROUP not in text:
        return
    package, _, version = metadata.name.rpartition(".")[0].partition("-")
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[] ")
        elif group == GROUP and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.partition("[")[0].strip(), _canonical(package), version)


def _entry_points_of_archive(path: str) -> tuple[EntryPoint, ...]:
    from importlib.metadata import distributions

    return tuple(
        EntryPoint(each.name, each.value, _canonical(package.name), package.version)
        for package in distributions(path=[path])
        for each in package.entry_points.select(group=GROUP)
    )


def _canonical(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def _plugins_of(entry: EntryPoint) -> Iterator[Found]:
    if ":" not in entry.value:
        yield _judged(entry.name, entry.value, entry)
        return
    try:
        brought = _imported(entry.value)
    except BuzzError as error:
        yield Found(entry.name, entry.where, reason=f"entry point {entry.name} ({entry.where}): {error}")
        return
    if not isinstance(brought, PluginManifest):
        yield _judged(entry.name, entry.value, entry)
        return
    for each in brought.plugins:
        if each.type_name == PLUGIN_TYPE:
            yield _judged(str(each.name), str(each.import_path), entry)
        else:
            yield Found(
                str(each.name), entry.where,
                reason=f"{entry.where}: the plugin {each.name!r} is of the type {each.type_name!r}, "
                f"which this version of Buzz does not carry; it carries {PLUGIN_TYPE!r}",
            )  # fmt: skip


def _judged(name: str, import_path: str, entry: EntryPoint) -> Found:
    where = f"{import_path} of {entry.package} {entry.version}".rstrip()
    try:
        check_name(name, f"entry point ({where}): plugin")
        if not re.fullmatch(r"[\w.]+(:[\w.]+)?", import_path):
            raise BuzzError(f"{where}: expected package.module or package.module:name, found {import_path!r}")
        content_hash, said = _content(import_path, entry)
    except BuzzError as error:
        return Found(name, where, reason=str(error))
    source = PluginSource(
        id=name,
        origin="entry point",
        form="module",
        content_hash=content_hash,
        import_path=import_path,
        title=said.text("name"),
        version=entry.version,
        description=said.description,
        author=said.text("author"),
        enabled_by_default=said.values.get("enabled_by_default") is not False,
    )
    return Found(name, where, source)


def _content(import_path: str, entry: EntryPoint) -> tuple[str, Literals]:
    """The hash of a module that is to be imported, and what it says of itself; read from its file, or, for a package,
    from its folder. A module without such a file goes by the version of the package that brings it."""
    file = _module_file(import_path.partition(":")[0])
    try:
        if file is not None and file.name == "__init__.py":
            read = read_folder(file.parent)
            return read.content_hash, Literals.of(read.files[file.name])
        if file is not None:
            read = read_file(file)
            return read.content_hash, Literals.of(read.files[file.name])
    except (OSError, PluginFilesError):
        pass  # too large or not readable as files; Python may well import it
    return sha256(f"{entry.package} {entry.version} {import_path}".encode()).hexdigest(), Literals.of(b"")


def _module_file(module: str) -> Path | None:
    """The `.py` file of a module, without importing anything. Raises `BuzzError` where its package is not installed."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None:
        raise BuzzError(f"there is no module {top!r}: install its package again")
    file = Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    for name in rest:
        file = next(
            (
                each
                for place in places
                for each in (place / name / "__init__.py", place / f"{name}.py")
                if each.is_file()
            ),
            None,
        )
        places = [place / name for place in places if (place / name).is_dir()]
    return file


def _imported(value: str) -> object:
    """The object that `module:attribute` names. Raises `BuzzError`; waits `MANIFEST_IMPORT_S` seconds at most."""
    module, _, attribute = value.partition(":")
    outcome: list[object] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            found: object = importlib.import_module(module)
            for name in attribute.split("."):
                found = getattr(found, name)
            outcome.append(found)
        except BaseException as error:
            failure.append(error)

    # A thread of its own, and a daemon: a module that spins while it is imported must not hold up the host.
    thread = threading.Thread(target=work, name=f"buzz imports {module}", daemon=True)
    thread.start()
    thread.join(MANIFEST_IMPORT_S)
    if failure:
        raise BuzzError(describe(failure[0]))
    if not outcome:
        end_by_force(thread, module)
        raise BuzzError(f"{module} was still being imported after {MANIFEST_IMPORT_S:g} s")
    return outcome[0]
