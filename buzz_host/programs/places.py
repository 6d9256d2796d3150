"""Where the programs of harnesses are: fetched ones in the home, others on the PATH.

A fetched program stands in `<folder>/<harness>/<version>/node_modules/…`, node in `<folder>/node/<version>/bin/node`.
The folder is `harnesses` in the home, or what `$BUZZ_PROGRAMS` names: several homes may share one. Finding looks at
files only, save that the machine's node is asked once for its version.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from buzz_author.harness import FoundProgram, NpmProgram

PROGRAMS_VARIABLE: Final = "BUZZ_PROGRAMS"
NODE: Final = "node"
NODE_DEADLINE_S: Final = 5.0
_VERSION = re.compile(r"\d+(\.\d+)*")


class ProgramPlaces:
    """The programs below one folder; `ctx.programs` of harness plugins."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        """`folder` is where this home keeps them; `environ` the environment of the host."""
        self._environ = os.environ if environ is None else environ
        named = self._environ.get(PROGRAMS_VARIABLE)
        self.folder: Final = Path(named).expanduser().absolute() if named else folder

    @classmethod
    def at(cls, folder: Path) -> ProgramPlaces:
        """The programs in `folder`, whatever $BUZZ_PROGRAMS says."""
        return cls(folder, {name: value for name, value in os.environ.items() if name != PROGRAMS_VARIABLE})

    def find(self, harness: str, program: NpmProgram) -> FoundProgram | None:
        """The pinned version of the program, else the newest one that was fetched, else one on the PATH."""
        for version in self.versions(harness, program):
            path = self.executable(harness, version, program)
            words = self._words(path, program)
            if words is not None:
                return FoundProgram(words, path, version)
        return self._on_path(program)

    def versions(self, harness: str, program: NpmProgram) -> list[str]:
        """The versions that are here, whole, the pinned one first, then the newest."""
        there = [each for each in _folders(self.folder / harness) if self.executable(harness, each, program).is_file()]
        return self.preferred(there, program)

    @staticmethod
    def preferred(versions: Iterable[str], program: NpmProgram) -> list[str]:
        """Versions in the order in which they are taken."""
        return sorted(versions, key=lambda each: (each != program.version, [-number for number in numbers(each)], each))

    def executable(self, harness: str, version: str, program: NpmProgram) -> Path:
        """Where a version's executable is, or would be."""
        return self.folder / harness / version / "node_modules" / program.executable

    def node(self, at_least: tuple[int, int]) -> Path | None:
        """A node that is new enough: a fetched one, else the machine's."""
        fetched = self.fetched_node(at_least)
        if fetched is not None:
            return fetched
        found = shutil.which(NODE, path=self._environ.get("PATH"))
        if found is None or node_version(Path(found))[:2] < at_least:
            return None
        return Path(found)

    def fetched_node(self, at_least: tuple[int, int] = (0, 0)) -> Path | None:
        """The newest node that was fetched, if it is new enough."""
        for version in sorted(_folders(self.folder / NODE), key=numbers, reverse=True):
            path = self.folder / NODE / version / "bin" / NODE
            if numbers(version)[:2] >= at_least and os.access(path, os.X_OK):
                return path
        return None

    def needed(self, path: Path, program: NpmProgram) -> tuple[int, int]:
        """The node that this very version asks for: an earlier one may do with less."""
        assert program.node is not None
        if program.version in path.parts:
            return program.node
        package = next((each / "package.json" for each in path.parents if (each / "package.json").is_file()), None)
        try:
            engines = json.loads(package.read_bytes())["engines"]["node"] if package is not None else ""
        except (OSError, ValueError, KeyError, TypeError):
            return program.node
        found = numbers(str(engines))[:2]
        return (found[0], found[1]) if len(found) == 2 else program.node

    def _words(self, path: Path, program: NpmProgram) -> tuple[str, ...] | None:
        """What starts the program; None where it needs a node that is not here."""
        if program.node is None:
            return (str(path),) if os.access(path, os.X_OK) else None
        node = self.node(self.needed(path, program))
        return (str(node), str(path)) if node is not None else None

    def _on_path(self, program: NpmProgram) -> FoundProgram | None:
        name = Path(program.executable).name
        if program.node is not None:  # a script's own name says nothing; its package's command does
            return None
        found = shutil.which(name, path=self._environ.get("PATH"))
        return FoundProgram((found,), Path(found)) if found is not None else None


@functools.lru_cache(maxsize=8)
def node_version(node: Path) -> tuple[int, ...]:
    """The version of a node, as it says itself; empty where it does not."""
    try:
        said = subprocess.run(
            [str(node), "--version"], capture_output=True, text=True, timeout=NODE_DEADLINE_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return numbers(said.stdout)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, as far as it has any: `v24.19.0` is (24, 19, 0)."""
    found = _VERSION.search(version)
    return tuple(int(number) for number in found.group().split(".")) if found else ()


def _folders(folder: Path) -> Iterator[str]:
    try:
        yield from sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    except OSError:
        return
