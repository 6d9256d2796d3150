"""All agents that a home knows: the ones that come along, and the person's own, which shadow them by name (SPC-02).

A catalogue is a value: loaded in one go, never changed, cheap to compare with the folders it came from. A file that is
broken is a row in `faults`; the others are there all the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from buzz_author.errors import BuzzError
from buzz_author.names import folded
from buzz_host.agents.files import parse_agent_file
from buzz_host.agents.spec import SCOPES, AgentFileError, AgentSpec, FileNote, Scope, shown_path

if TYPE_CHECKING:
    from buzz_host.settings import Home

CORE_AGENTS: Final = Path(__file__).resolve().parent / "core"

Signature: TypeAlias = "tuple[tuple[str, int, int, int], ...]"
"""What tells one state of the folders from another: path, inode, size and time of change of each file."""


class UnknownAgent(BuzzError, LookupError):
    """There is no usable agent of that name."""


@attrs.frozen
class AgentFault:
    """A file that is no usable agent: where it stands, and the message that a person can act on."""

    scope: Scope
    note: FileNote

    def __str__(self) -> str:
        return str(self.note)


@attrs.frozen
class AgentCatalogue:
    """The agents of a home at one moment: `specs` by name, `faults` by path, `warnings` in the order of the specs."""

    specs: tuple[AgentSpec, ...]
    faults: tuple[AgentFault, ...]
    signature: Signature = attrs.field(eq=False, repr=False)

    @classmethod
    def load(cls, home: Home) -> AgentCatalogue:
        """Read every `*.md` file of the scopes of `home`; never raises for what is in them."""
        folders = _folders(home)
        # Taken before reading: a file that changes meanwhile is read again, rather than missed.
        signature = _signature(folders)
        resolved: dict[str, AgentSpec] = {}
        faults: list[AgentFault] = []
        for scope in SCOPES:
            found = _read_scope(scope, folders[scope], faults)
            resolved.update({folded(spec.name): spec for spec in found})
        return cls(
            tuple(sorted(resolved.values(), key=lambda spec: spec.name)),
            tuple(sorted(faults, key=lambda fault: (SCOPES.index(fault.scope), str(fault.note.path)))),
            signature,
        )

    def current(self, home: Home) -> AgentCatalogue:
        """This catalogue while the folders of `home` are as they were when it was loaded, else a fresh one.

        Looks at the files' states and opens none: fit to be asked before each turn.
        """
        return self if _signature(_folders(home)) == self.signature else self.load(home)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.specs)

    @property
    def warnings(self) -> tuple[FileNote, ...]:
        return tuple(note for spec in self.specs for note in spec.warnings)

    def get(self, name: str) -> AgentSpec:
        """The agent `name`. Raises `UnknownAgent`: one line with the agents there are, or with what is wrong in its
        file."""
        for spec in self.specs:
            if spec.name == name:
                return spec
        for fault in self.faults:
            if fault.note.path.stem == name:
                raise UnknownAgent(f"agent '{name}' cannot be used: {fault}")
        near = get_close_matches(folded(name), {folded(known): known for known in self.names}, n=1)
        asked = next((known for known in self.names if near and folded(known) == near[0]), None)
        suggestion = f"did you mean '{asked}'? " if asked else ""
        broken = "; ".join(str(fault) for fault in self.faults)
        more = f"; not usable is {broken}" if broken else ""
        raise UnknownAgent(f"no agent is called {name!r}; {suggestion}the agents are: {', '.join(self.names)}{more}")


def _folders(home: Home) -> Mapping[Scope, Path]:
    return {"core": CORE_AGENTS, "user": home.agents}


def _files(folder: Path) -> list[os.DirEntry[str]]:
    """The agent files of a folder, by name; none where it does not exist or cannot be read."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name.endswith(".md") and not entry.name.startswith(".")]
    except OSError:
        return []
    return sorted(found, key=lambda entry: entry.name)


def _signature(folders: Mapping[Scope, Path]) -> Signature:
    states = []
    for folder in folders.values():
        for entry in _files(folder):
            try:
                state = entry.stat()
            except OSError:  # a link that leads nowhere; or gone since
                states.append((entry.path, 0, 0, 0))
            else:
                states.append((entry.path, state.st_ino, state.st_size, state.st_mtime_ns))
    return tuple(states)


def _read_scope(scope: Scope, folder: Path, faults: list[AgentFault]) -> list[AgentSpec]:
    """The agents of one scope; two that share a name are both left out, with a fault for each."""
    by_name: dict[str, list[AgentSpec]] = {}
    for entry in _files(folder):
        try:
            spec = parse_agent_file(Path(entry.path), scope)
        except AgentFileError as error:
            faults.append(AgentFault(scope, FileNote(error.path, error.line, error.what)))
        else:
            by_name.setdefault(folded(spec.name), []).append(spec)
    unique: list[AgentSpec] = []
    for sharing in by_name.values():
        if len(sharing) == 1:
            unique += sharing
            continue
        for spec in sharing:
            others = ", ".join(shown_path(other.source_path) for other in sharing if other is not spec)
            what = f"the agent '{spec.name}' is also in {others}, expected one file a name ('_' is as '-')"
            faults.append(AgentFault(scope, FileNote(spec.source_path, 1, what)))
    return unique
