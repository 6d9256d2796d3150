"""Installing the programs of harnesses, and taking them out again (HAR-06).

A program is fetched into a staging folder, looked at there, and moved to its place in one step: killed at any moment,
a folder of programs holds the whole of it or nothing. One process at a time changes such a folder; others wait.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_author.harness import NpmProgram
from buzz_author.names import check_name
from buzz_host.programs.fetching import FetchFailed, npm_install, npm_words
from buzz_host.programs.nodejs import NODE_MEGABYTES, NODE_PACKAGE, NODE_VERSION, bring_node
from buzz_host.programs.places import NODE, ProgramPlaces
from buzz_host.programs.staging import Staging, changing, size_of

_VERSION: Final = re.compile(r"\d+\.\d+[0-9A-Za-z.+-]{0,60}")
# What is fetched lies beside what is unpacked from it, for a while.
ROOM_FACTOR: Final = 1.5
_MEGABYTE: Final = 1_000_000
_HIDDEN_LOCK: Final = ".package-lock.json"


class InstallRefused(BuzzError):
    """A program cannot be installed or taken out; nothing was changed."""


@attrs.frozen
class Progress:
    """What is being done: `fetching <package>`, and the bytes on the disk so far; None where it waits for another."""

    harness: str
    doing: str
    bytes: int | None = None


@attrs.frozen
class FetchedNode:
    """The node that was brought because the machine's is too old, or has no npm."""

    package: str
    version: str
    path: Path
    bytes: int


@attrs.frozen
class Installed:
    """What was installed, and where. `already` where it was there before: nothing was fetched.

    `integrity` is the hash of the package's archive, as npm checked it when it arrived; `verified` says that it is the
    one that Buzz pins. `node` is what was brought with it.
    """

    harness: str
    package: str
    version: str
    pinned: bool
    path: Path
    bytes: int
    already: bool = False
    integrity: str | None = None
    verified: bool = False
    node: FetchedNode | None = None
    seconds: float = 0.0


@attrs.frozen
class Removed:
    """What was taken out: the versions, their bytes, and the versions of node that nobody needs any more."""

    harness: str
    versions: tuple[str, ...]
    bytes: int
    node: tuple[str, ...] = ()


class Installer:
    """Changes one folder of programs, for one process."""

    def __init__(
        self,
        places: ProgramPlaces,
        *,
        environ: Mapping[str, str] | None = None,
        tell: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """`tell` is called with what happens; `environ` is the person's environment, for npm and pip."""
        self._places = places
        self._environ = os.environ if environ is None else environ
        self._tell = tell

    def install(self, harness: str, program: NpmProgram, *, version: str | None = None) -> Installed:
        """Fetch the program of a harness, in the pinned version or in another one.

        Raises `InstallRefused`, `FetchFailed`, `OSError`.
        """
        check_name(harness, "harness")
        wanted = program
        if version is not None and version != program.version:
            if not _VERSION.fullmatch(version):
                raise InstallRefused(f"'{version}' is no version: give one such as {program.version}")
            wanted = attrs.evolve(program, version=version, integrity={})
        self._must_be_taken(harness, program, wanted)
        self._places.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with changing(self._places.folder, lambda: self._says(harness, "waiting for another installation")) as staging:
            return self._installed(harness, program, wanted, staging)

    def uninstall(self, harness: str, known: Mapping[str, NpmProgram | None]) -> Removed:
        """Take out all versions of a harness's program, and node when nothing that is left needs it.

        `known` are the programs of the harnesses that there are. Raises `InstallRefused`, `OSError`.
        """
        check_name(harness, "harness")
        folder = self._places.folder / harness
        if harness == NODE or not folder.is_dir():
            raise InstallRefused(f"{harness} is not installed in {self._places.folder}: nothing was taken out")
        with changing(self._places.folder, lambda: self._says(harness, "waiting for another installation")) as staging:
            versions = tuple(sorted(each.name for each in folder.iterdir() if each.is_dir()))
            total = size_of(folder)
            folder.rename(staging.path / "gone")
            node = self._places.folder / NODE
            nodes: tuple[str, ...] = ()
            if node.is_dir() and not self._needs_node(known):
                nodes = tuple(sorted(each.name for each in node.iterdir() if each.is_dir()))
                total += size_of(node)
                node.rename(staging.path / "node-gone")
            return Removed(harness, versions, total, nodes)

    def _installed(self, harness: str, program: NpmProgram, wanted: NpmProgram, staging: Staging) -> Installed:
        began = monotonic()
        place = self._places.folder / harness / wanted.version
        there = self._places.executable(harness, wanted.version, wanted).is_file()
        node: FetchedNode | None = None
        fresh = place
        if not there:
            self._must_have_room(harness, wanted)
            npm = npm_words(self._environ, self._places.fetched_node())
            if npm is None:
                node = self._bring_node(harness, staging)
                npm = npm_words(self._environ, node.path / "bin" / NODE)
            if npm is None:
                raise FetchFailed(f"{NODE_PACKAGE} {NODE_VERSION} came without npm: install node and npm")
            fresh = staging.path / "fresh"
            reference = f"{wanted.package}@{wanted.version}"
            self._says(harness, f"fetching {reference}", 0)
            npm_install(npm, reference, fresh, staging, self._environ, self._sizes(harness, f"fetching {reference}"))
        executable = fresh / "node_modules" / wanted.executable
        if not executable.is_file():
            raise InstallRefused(
                f"{wanted.package} {wanted.version} has no {wanted.executable}: this version cannot be used on this "
                "machine; nothing was installed"
            )
        integrity, verified = _integrity(fresh / "node_modules", wanted)
        if node is None and self._lacks_node(executable, wanted):
            node = self._bring_node(harness, staging)
        if not there:
            place.parent.mkdir(mode=0o700, exist_ok=True)
            if place.exists():  # damaged: it lacks its program
                place.rename(staging.path / "damaged")
            fresh.rename(place)
        return Installed(
            harness,
            wanted.package,
            wanted.version,
            pinned=wanted.version == program.version,
            path=place,
            bytes=size_of(place),
            already=there and node is None,
            integrity=integrity,
            verified=verified,
            node=node,
            seconds=monotonic() - began,
        )

    def _must_be_taken(self, harness: str, program: NpmProgram, wanted: NpmProgram) -> None:
        """Refuse to install what would not be run, as another version that is here goes first."""
        there = {*self._places.versions(harness, program), wanted.version}
        first = self._places.preferred(there, program)[0]
        if first != wanted.version:
            raise InstallRefused(
                f"{harness} {first} is installed and goes before {wanted.version}: take it out first with "
                f"`buzz harness uninstall {harness}`"
            )

    def _must_have_room(self, harness: str, wanted: NpmProgram) -> None:
        needed = int(wanted.megabytes * ROOM_FACTOR) * _MEGABYTE
        if wanted.node is not None and self._places.node(wanted.node) is None:
            needed += int(NODE_MEGABYTES * ROOM_FACTOR) * _MEGABYTE
        free = shutil.disk_usage(self._places.folder).free
        if free < needed:
            raise InstallRefused(
                f"{harness} needs about {needed // _MEGABYTE:,} MB while it is installed, and {free // _MEGABYTE:,} MB "
                f"are free in {self._places.folder}: make room, or set BUZZ_PROGRAMS to a folder on another disk"
            )

    def _lacks_node(self, executable: Path, wanted: NpmProgram) -> bool:
        return wanted.node is not None and self._places.node(self._places.needed(executable, wanted)) is None

    def _bring_node(self, harness: str, staging: Staging) -> FetchedNode:
        doing = f"fetching {NODE_PACKAGE} {NODE_VERSION}"
        self._says(harness, doing, 0)
        fresh = bring_node(staging, self._environ, self._sizes(harness, doing))
        place = self._places.folder / NODE / NODE_VERSION
        place.parent.mkdir(mode=0o700, exist_ok=True)
        if place.exists():
            place.rename(staging.path / "damaged-node")
        fresh.rename(place)
        return FetchedNode(NODE_PACKAGE, NODE_VERSION, place, size_of(place))

    def _needs_node(self, known: Mapping[str, NpmProgram | None]) -> bool:
        """Whether something that is still here may need the fetched node; what nobody knows may."""
        for each in self._places.folder.iterdir():
            if each.is_dir() and each.name != NODE and not each.name.startswith("."):
                program = known.get(each.name)
                if program is None or program.node is not None:
                    return True
        return False

    def _sizes(self, harness: str, doing: str) -> Callable[[int], None]:
        return lambda size: self._says(harness, doing, size)

    def _says(self, harness: str, doing: str, size: int | None = None) -> None:
        self._tell(Progress(harness, doing, size))


def _integrity(modules: Path, wanted: NpmProgram) -> tuple[str | None, bool]:
    """The hash of the package's archive, and whether all that are pinned are what was installed.

    npm holds each archive against its hash when it arrives, and writes the hash down beside what it unpacked. Raises
    `InstallRefused` where a pinned one is another.
    """
    try:
        packages = json.loads((modules / _HIDDEN_LOCK).read_bytes())["packages"]
    except (OSError, ValueError, KeyError):
        packages = {}

    def of(name: str) -> str | None:
        row = packages.get(f"node_modules/{name}")
        found = row.get("integrity") if isinstance(row, dict) else None
        return found if isinstance(found, str) else None

    for name, expected in wanted.integrity.items():
        if of(name) != expected:
            raise InstallRefused(
                f"{name} {wanted.version} is not the archive that Buzz was tested with: its hash is {of(name)}, not "
                f"{expected}; nothing was installed"
            )
    return of(wanted.package), bool(wanted.integrity)
