"""Finding plugins: every source in its order of precedence, and which plugin wins (PLG-04).

`--plugin` paths, then what a person dropped in or linked, then what is installed, then entry points of packages, then
what is shipped. Across sources the first one wins, and a warning names both; within one source two of a name are a
fault that names both, and neither is used. A plugin that is broken keeps its name: what it hides does not step in for
it silently.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from buzz_author.errors import BuzzError, PluginFault
from buzz_author.names import folded
from buzz_host.plugins.candidates import CODE_NAME, file_source, folder_source
from buzz_host.plugins.entry_points import entry_point_plugins
from buzz_host.plugins.sources import MANIFEST_NAME, Discovery, Origin, PluginPathError, PluginSource, one_line

if TYPE_CHECKING:
    from buzz_host.plugins.install.lockfile import InstalledPlugin
    from buzz_host.settings import Home

PHASE = "find"
# The phase of an installed plugin that is not what was installed.
VERIFY_PHASE = "verify"
# What tools leave in any folder.
_NO_CANDIDATES = frozenset({"__pycache__", "__init__.py"})


@attrs.frozen
class Candidate:
    """Something that stands where plugins stand: a plugin, or the reason why it is none."""

    name: str
    where: str
    origin: Origin
    source: PluginSource | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    phase: str = PHASE


def discover(
    home: Home,
    extra_paths: Sequence[Path] = (),
    *,
    shipped: Path | None = None,
    entry_points: bool = True,
) -> Discovery:
    """All plugins there are, without running any; only a `PluginManifest` is imported, for 2 s at most.

    `extra_paths` are the `--plugin` options, `shipped` is the folder of the plugins that come along. Reads files: from
    a loop that must not wait, call it on a thread. Raises `PluginPathError` for an extra path that is missing or no
    plugin.
    """
    ranks: list[Iterable[Candidate]] = [
        _named(extra_paths),
        _in_folder(home.plugins, "dropped in"),
        _installed(home),
        _from_entry_points() if entry_points else (),
        _in_folder(shipped, "shipped") if shipped is not None else (),
    ]
    sources: list[PluginSource] = []
    faults: list[PluginFault] = []
    warnings: list[str] = []
    taken: dict[str, Candidate] = {}
    for rank in ranks:
        for alike in _by_name(rank):
            first, before = alike[0], taken.get(folded(alike[0].name))
            for each in alike:
                warnings += each.warnings
                if before is not None and each.where != before.where:
                    warnings.append(
                        f"plugin '{before.name}': {before.where} ({before.origin}) comes before "
                        f"{each.where} ({each.origin}), which is not used"
                    )
            if before is not None:
                continue
            taken[folded(first.name)] = first
            if len(alike) > 1:
                faults.append(_clash(alike))
            elif first.source is None:
                faults.append(PluginFault(first.name, first.phase, one_line(first.reason)))
            else:
                sources.append(first.source)
    return Discovery(
        tuple(sorted(sources, key=lambda source: source.id)),
        tuple(sorted(faults, key=lambda fault: fault.plugin)),
        tuple(one_line(warning) for warning in warnings),
    )


def named_source(path: Path) -> tuple[PluginSource, tuple[str, ...]]:
    """The plugin at a path that a person named, and warnings about it: a folder, a single `.py` file, or the
    `plugin.toml` or `plugin.py` of a folder. Raises `PluginPathError` where there is none."""
    absolute = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - `..` goes by the text, links stay as they are
    if absolute.name in (MANIFEST_NAME, CODE_NAME) and (absolute.parent / MANIFEST_NAME).is_file():
        absolute = absolute.parent
    try:
        if absolute.is_dir():
            return folder_source(absolute.resolve(), absolute.name, "--plugin")
        if not absolute.exists():
            raise PluginPathError(f"{path}: there is no such file or folder")
        if absolute.suffix != ".py":
            raise PluginPathError(f"{path}: is no plugin: give a folder with a {MANIFEST_NAME}, or a .py file")
        return file_source(absolute.resolve(), absolute.stem, "--plugin"), ()
    except PluginPathError:
        raise
    except BuzzError as error:
        raise PluginPathError(str(error)) from error
    except OSError as error:
        raise PluginPathError(f"{path}: cannot be read ({error.strerror})") from None


def _named(paths: Sequence[Path]) -> Iterator[Candidate]:
    seen: set[Path] = set()
    for path in paths:
        source, warnings = named_source(path)
        if source.path is not None and source.path not in seen:  # the same one named twice is one
            seen.add(source.path)
            yield Candidate(source.id, source.where, "--plugin", source, warnings=warnings)


def _in_folder(folder: Path, origin: Origin) -> Iterator[Candidate]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: os.fsencode(entry.name))
    except FileNotFoundError:
        return
    except OSError as error:
        yield Candidate(folder.name, str(folder), origin, reason=f"{folder}: cannot be read ({error.strerror})")
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _NO_CANDIDATES:
            continue
        candidate = _judged(folder / entry.name, "linked" if entry.is_symlink() else origin)
        if candidate is not None:
            yield candidate


def _judged(path: Path, origin: Origin) -> Candidate | None:
    """What stands at `path` in a folder of plugins; None for a file that does not claim to be one."""
    name = path.name
    try:
        if path.is_dir():
            source, warnings = folder_source(path.resolve(), name, origin)
            return Candidate(name, source.where, origin, source, warnings=warnings)
        if origin == "linked" and not path.exists():
            return Candidate(
                one_line(name.removesuffix(".py")), str(path), origin,
                reason=f"{path}: is a link to {path.readlink()}, where nothing is: buzz plugin remove takes it away",
            )  # fmt: skip
        if path.suffix != ".py":
            return None
        name = path.stem
        source = file_source(path.resolve(), name, origin)
        return Candidate(name, source.where, origin, source)
    except BuzzError as error:
        return Candidate(one_line(name), str(path), origin, reason=str(error))
    except (OSError, RuntimeError) as error:
        return Candidate(one_line(name), str(path), origin, reason=f"{path}: cannot be read ({error})")


def _installed(home: Home) -> Iterator[Candidate]:
    if not home.lock.exists():
        return
    # Here, not above: a home in which nothing is installed needs no reader of locks.
    from buzz_host.plugins.install.lockfile import read_lock

    try:
        rows = read_lock(home.lock)
        candidates = [_installed_one(home, row) for row in rows.values()]
        if any(each.source is None for each in candidates) and (now := read_lock(home.lock)) != rows:
            candidates = [_installed_one(home, row) for row in now.values()]  # it was exchanged while we looked
        yield from candidates
    except BuzzError as error:
        yield Candidate(home.lock.name, str(home.lock), "installed", reason=str(error))


def _installed_one(home: Home, row: InstalledPlugin) -> Candidate:
    from buzz_host.plugins.install.integrity import ChangedError, stored_source

    place = str(row.place(home))
    try:
        source, warnings = stored_source(home, row)
        return Candidate(row.name, source.where, "installed", source, warnings=warnings)
    except ChangedError as error:
        return Candidate(row.name, place, "installed", reason=str(error), phase=VERIFY_PHASE)
    except BuzzError as error:
        return Candidate(row.name, place, "installed", reason=str(error))


def _from_entry_points() -> Iterator[Candidate]:
    for found in entry_point_plugins():
        name = found.source.id if found.source is not None else found.name
        yield Candidate(name, found.where, "entry point", found.source, found.reason)


def _by_name(rank: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    alike: dict[str, list[Candidate]] = {}
    for candidate in rank:
        alike.setdefault(folded(candidate.name), []).append(candidate)
    yield from alike.values()


def _clash(alike: list[Candidate]) -> PluginFault:
    places = " and ".join(f"{each.where} ({each.origin})" for each in alike)
    same = len({each.name for each in alike}) == 1
    why = "have the same name" if same else f"have names that differ in '_' and '-' only ({_names(alike)})"
    return PluginFault(alike[0].name, PHASE, one_line(f"{places} {why}, so none of them is used: rename or remove one"))


def _names(alike: list[Candidate]) -> str:
    return ", ".join(f"'{each.name}'" for each in alike)
