"""What a plugin is and what it is given: the module's contract, its context, and its contributions.

A plugin is a module with `inject` (names of the host's services that it waits for) and `apply(ctx)`, which may be
async. Importing it has no effect; everything that it registers ends with it (PLG-01).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from buzz_author.json_values import JsonObject

if TYPE_CHECKING:
    from logging import Logger

    from buzz_author.harness import FoundProgram, Harness, NpmProgram, Process
    from buzz_author.instructions import AgentInstructions, Guard
    from buzz_author.tools import Tool
    from buzz_author.turns import TurnRendering

Disposer = Callable[[], None]
"""Takes one contribution back; calling it again does nothing."""

Effect = Callable[[], "None | Awaitable[None]"]
"""A clean-up of a plugin's own; it may be async."""


@attrs.frozen
class PluginIdentity:
    """Which plugin this is: `revision` is the content hash of the code that runs, `data_dir` a folder of its own."""

    id: str
    version: str
    revision: str
    data_dir: Path


@attrs.frozen
class PluginEntry:
    """One plugin of a `PluginManifest`: what it is called, and where to import it from (`package.module:Name`)."""

    type_name: str
    name: str
    import_path: str


def _entries(given: Iterable[PluginEntry]) -> tuple[PluginEntry, ...]:
    # Named, so that type checkers know what an author may pass; of `tuple` itself they cannot tell.
    return tuple(given)


@attrs.frozen
class PluginManifest:
    """The plugins that a package brings, given by an entry point of the group `buzz.plugins` (PLG-04)."""

    plugins: tuple[PluginEntry, ...] = attrs.field(converter=_entries)


class SdkTool(Protocol):
    """The shape of a tool that was made with `claude_agent_sdk.tool`."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> Any: ...
    @property
    def handler(self) -> Callable[[Any], Awaitable[Any]]: ...


class Agents(Protocol):
    """`ctx.agents`: what a plugin contributes to agents. Each call returns a disposer and ends with the plugin.

    Every name has its PEP 8 twin, which is the same function. All calls may be made from any thread.
    """

    def addInstructions(
        self,
        instructions: AgentInstructions | Mapping[str, object] | None = None,
        /,
        *,
        id: str | None = None,
        text: str | None = None,
        when: Guard | None = None,
    ) -> Disposer:
        """Register standing instructions: part of every turn for which `when` holds, while the plugin is on (INS-01).

        Keep the text short: it costs tokens on every turn. It is the plugin's own text, at most 4096 bytes of UTF-8
        after trimming, never content from others; it is framing, not a trust boundary, since plugins are trusted code
        (INS-13). `id` matches `[a-z0-9][a-z0-9._-]*`, at most 64 characters. `when(agent)` must return the literal
        `True` to admit, be pure and quick (250 ms), and may run on any thread.

        Takes keywords, one mapping with the same keys, or one `AgentInstructions`. Raises `RegistrationError` for an
        empty, too long or repeated one, `InvalidName` for the id, `PluginClosed` after the plugin was stopped.
        """
        ...

    def addNote(self, agent: str, text: str) -> Disposer:
        """A one-time note for the next turn of `agent`, shown as data and not as instructions (INS-12).

        Use it for something that happened; use `addInstructions` for what the agent should do. The disposer takes back
        a note that no turn has carried yet. Raises `RegistrationError` for an empty text.
        """
        ...

    def addTool(self, tool: Tool | SdkTool) -> Disposer:
        """Offer a tool that agents can call, in every harness (AGP-02).

        `tool` is made with `buzz_author.tool`, or with `claude_agent_sdk.tool`. A model knows it as
        `mcp__<plugin>__<tool>`, from the agent's next session on; a call of it in a session that began before this
        plugin was switched off is answered with an error that names the plugin (REG-02). The function runs on this
        plugin's own loop. Raises `RegistrationError` for a name, a description, a schema or a function that cannot be
        used, and for a name that this plugin has used already.
        """
        ...

    def registerHarness(self, harness: Harness) -> Disposer:
        """Offer a harness: a program, or a loop of your own, that takes an agent's turns (HAR-02)."""
        ...

    @property
    def harness(self) -> TurnRendering:
        """The text of a turn, for harness plugins: `turnPrompt`, `turnNote`, `wakePrompt`, `steerPrompt`."""
        ...

    add_instructions = addInstructions  # type: ignore[misc]
    add_note = addNote  # type: ignore[misc]
    add_tool = addTool  # type: ignore[misc]
    register_harness = registerHarness  # type: ignore[misc]


class Programs(Protocol):
    """`ctx.programs`, for harness plugins that ask for it (`inject = ("agents", "programs")`)."""

    def find(self, harness: str, program: NpmProgram) -> FoundProgram | None:
        """Where the program of the harness with this id is: what `buzz harness install` fetched, else what is on the
        PATH under the name of its executable; None where it is not here. Looks at files only."""
        ...


class PluginContext(Protocol):
    """What `apply(ctx)` is given. Every call may be made from any thread; after the plugin has stopped it raises
    `PluginClosed`, so that a late result registers nothing (PLG-02)."""

    @property
    def plugin(self) -> PluginIdentity: ...
    @property
    def agents(self) -> Agents: ...
    @property
    def settings(self) -> JsonObject:
        """The plugin's own table of `buzz.toml`, `[plugins.<id>]`, with the defaults of its `plugin.toml`."""
        ...

    @property
    def log(self) -> Logger: ...
    def effect(self, disposer: Effect) -> Disposer:
        """Run `disposer` when the plugin stops (the last one first), or when the returned disposer is called."""
        ...

    async def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Process:
        """Start a program in a process group of its own; it dies with the plugin."""
        ...


class HarnessContext(PluginContext, Protocol):
    """The context of a harness plugin that asks for `programs` with `inject = ("agents", "programs")`."""

    @property
    def programs(self) -> Programs: ...


class PluginModule(Protocol):
    """The shape of a plugin's module; `inject` may be left out when it needs nothing."""

    inject: Sequence[str]

    def apply(self, ctx: PluginContext) -> None | Awaitable[None]: ...
