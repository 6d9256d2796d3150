"""The one registry of what plugins contribute, whatever its kind.

Each activation of a plugin registers through a `Scope` of its own. What it registered is hidden until the scope is
shown, and gone the moment the scope is closed, so a plugin that is starting, stopped, given up or replaced never shows
(PLG-03). All of it may be called from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar, cast

import attrs

from buzz_author.errors import PluginClosed, RegistrationError
from buzz_author.harness import Harness
from buzz_author.instructions import CheckedInstructions
from buzz_author.plugins import Disposer
from buzz_author.sections import Section
from buzz_author.tools import Tool, ToolResult
from buzz_host.plugins.listeners import Listeners
from buzz_host.plugins.threads import Job

T = TypeVar("T")

# A note waits until its agent's next turn. An agent that never runs must not make its notes pile up without bound.
NOTES_WAITING_MAX: Final = 100
# Far more than a model can choose from; a loop that registers tools for ever is told.
TOOLS_MAX: Final = 200


@attrs.frozen
class Note:
    """A one-time note for the next turn of `agent` (INS-12)."""

    agent: str
    section: Section


@attrs.frozen
class OfferedTool:
    """A tool of a plugin; `run` starts work on the plugin's own thread, from whatever loop it is called in.

    `break_off` ends what spins there and lets nothing else of the plugin run.
    """

    tool: Tool
    run: Callable[[Callable[[], Awaitable[ToolResult]]], Job[ToolResult]]
    break_off: Callable[[], None]


@attrs.frozen
class Kind(Generic[T]):
    """A kind of contribution; `label` is its noun in messages."""

    name: str
    label: str


INSTRUCTIONS: Final[Kind[CheckedInstructions]] = Kind("instructions", "instructions")
NOTES: Final[Kind[Note]] = Kind("notes", "note")
HARNESSES: Final[Kind[Harness]] = Kind("harness", "harness")
TOOLS: Final[Kind[OfferedTool]] = Kind("tools", "tool")


@attrs.frozen
class Contribution(Generic[T]):
    """One thing that a plugin contributes, as the registry keeps it; `revision` is the content hash of its plugin."""

    plugin: str
    id: str
    revision: str
    value: T

    @property
    def key(self) -> str:
        """`plugin/id`: unique within a kind."""
        return f"{self.plugin}/{self.id}"


class Contributions:
    """What holds now, per kind. `revision` counts the changes of what is visible."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._scopes: dict[str, Scope] = {}
        self._snapshots: dict[str, tuple[Contribution[object], ...]] = {}
        self._known: dict[tuple[str, str], frozenset[str]] = {}
        self._listeners: Listeners[[]] = Listeners()
        self._revision = 0
        self._notes = 0

    @property
    def revision(self) -> int:
        """Counts the changes of what is visible."""
        return self._revision

    def open(self, plugin: str, revision: str) -> Scope:
        """A scope for one activation of `plugin`. The one before it must be closed."""
        with self._lock:
            if plugin in self._scopes:
                raise RegistrationError(f"plugin '{plugin}' is running already: stop it before it is started again")
            scope = self._scopes[plugin] = Scope(self, plugin, revision)
            return scope

    def snapshot(self, kind: Kind[T]) -> tuple[Contribution[T], ...]:
        """What active plugins contribute of `kind`, sorted by plugin, then id (code points).

        The same tuple until something changes.
        """
        found = self._snapshots.get(kind.name)
        if found is None:
            with self._lock:
                found = self._snapshots[kind.name] = tuple(
                    scope.entries[kind.name][identifier]
                    for _, scope in sorted(self._scopes.items())
                    if scope.shown and kind.name in scope.entries
                    for identifier in sorted(scope.entries[kind.name])
                )
        return cast("tuple[Contribution[T], ...]", found)

    def known_ids(self, plugin: str, kind: Kind[T]) -> tuple[str, ...]:
        """The ids that `plugin` contributed of `kind` in its last activation, sorted; also when it is off now."""
        with self._lock:
            return tuple(sorted(self._known.get((plugin, kind.name), ())))

    def take_notes(self, agent: str) -> tuple[Contribution[Note], ...]:
        """The notes for the next turn of `agent`; each is handed out once. `put_back` undoes it."""
        with self._lock:
            taken = [each for each in self.snapshot(NOTES) if each.value.agent == agent]
            for note in taken:
                self._scopes[note.plugin].entries[NOTES.name].pop(note.id, None)
            if taken:
                self._drop([NOTES.name])
        if taken:
            self._listeners.tell()
        return tuple(taken)

    def put_back(self, notes: Iterable[Contribution[Note]]) -> None:
        """Give back notes of a turn that was never sent, save those whose plugin is gone since."""
        returned = False
        with self._lock:
            for note in notes:
                scope = self._scopes.get(note.plugin)
                if scope is not None and scope.revision == note.revision:
                    scope.entries.setdefault(NOTES.name, {})[note.id] = cast("Contribution[object]", note)
                    returned = True
            if returned:
                self._drop([NOTES.name])
        if returned:
            self._listeners.tell()

    def subscribe(self, listener: Callable[[], object]) -> Disposer:
        """Call `listener` after each visible change, on the thread that made it (REG-03)."""
        return self._listeners.subscribe(listener)

    def _drop(self, kinds: Iterable[str]) -> None:
        """Forget the snapshots of `kinds` and count a change. In the same hold of the lock as the change itself, so
        that nobody is handed what is gone."""
        for kind in kinds:
            self._snapshots.pop(kind, None)
        self._revision += 1

    def next_note(self) -> str:
        """The id of a new note: they sort in the order in which they were made."""
        with self._lock:
            self._notes += 1
            return f"note-{self._notes:09d}"


class Scope:
    """What one activation of one plugin contributes. Hidden until `show`, gone for good with `close`."""

    __slots__ = ("_registry", "closed", "entries", "plugin", "revision", "shown")

    def __init__(self, registry: Contributions, plugin: str, revision: str) -> None:
        self._registry = registry
        self.plugin = plugin
        self.revision = revision
        self.entries: dict[str, dict[str, Contribution[object]]] = {}
        self.shown = False
        self.closed = False

    def register(self, kind: Kind[T], identifier: str, value: T, *, limit: int | None = None) -> Disposer:
        """Keep `value` under `plugin/identifier` until the disposer is called or the scope is closed.

        `value` must be a frozen copy; `limit` is how many of the kind a plugin may have at once. Raises
        `RegistrationError` for an id that is taken or one too many, `PluginClosed` when the scope is closed.
        """
        kept = cast("Contribution[object]", Contribution(self.plugin, identifier, self.revision, value))
        with self._registry._lock:
            self.must_be_open()
            entries = self.entries.setdefault(kind.name, {})
            if identifier in entries:
                raise RegistrationError(
                    f"plugin '{self.plugin}': {kind.label} '{identifier}' is registered already: "
                    "choose another id, or dispose of the first one"
                )
            if limit is not None and len(entries) >= limit:
                raise RegistrationError(
                    f"plugin '{self.plugin}': there are {limit} of kind '{kind.label}' already, which is the most"
                )
            entries[identifier] = kept
            visible = self.shown
            if visible:
                self._remember(kind.name)
                self._registry._drop([kind.name])
        if visible:
            self._registry._listeners.tell()
        return lambda: self._take_back(kind, kept)

    def must_be_open(self) -> None:
        """Raise `PluginClosed` when this activation is over."""
        if self.closed:
            raise PluginClosed(f"plugin '{self.plugin}' was stopped: nothing can be registered any more")

    def show(self) -> bool:
        """Let what is registered be seen; False when the scope was closed meanwhile."""
        with self._registry._lock:
            if self.closed:
                return False
            self.shown = True
            for key in [key for key in self._registry._known if key[0] == self.plugin]:
                del self._registry._known[key]
            for name in self.entries:
                self._remember(name)
            self._registry._drop(self.entries)
        self._registry._listeners.tell()
        return True

    def close(self) -> None:
        """Take everything away, now and for good; what comes later raises `PluginClosed`."""
        with self._registry._lock:
            if self.closed:
                return
            self.closed = True
            del self._registry._scopes[self.plugin]
            visible, self.shown = self.shown, False
            if visible:
                self._registry._drop(self.entries)
        if visible:
            self._registry._listeners.tell()

    def _take_back(self, kind: Kind[T], kept: Contribution[object]) -> None:
        with self._registry._lock:
            entries = self.entries.get(kind.name, {})
            if self.closed or entries.get(kept.id) is not kept:
                return
            del entries[kept.id]
            visible = self.shown
            if visible:
                self._remember(kind.name)
                self._registry._drop([kind.name])
        if visible:
            self._registry._listeners.tell()

    def _remember(self, kind: str) -> None:
        self._registry._known[self.plugin, kind] = frozenset(self.entries[kind])
