# ruff: noqa: N802 - the ported API keeps its spelling (INS-01)
"""`ctx.agents`: what a plugin contributes to agents, checked and kept in the registry.

What the calls take, mean and raise stands in `buzz_author.plugins.Agents`. Each first asks whether its plugin still
runs, so that a late call is told `PluginClosed` whatever it passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NoReturn

from buzz_author.errors import RegistrationError
from buzz_author.instructions import check_instructions
from buzz_author.names import check_id, check_name
from buzz_author.plugins import Agents
from buzz_author.ported import pep8_name, ported
from buzz_author.sections import Source, section
from buzz_author.turns import steer_prompt, turn_note, turn_prompt, wake_prompt
from buzz_host.plugins.contributions import (
    HARNESSES,
    INSTRUCTIONS,
    NOTES,
    NOTES_WAITING_MAX,
    TOOLS,
    TOOLS_MAX,
    Note,
    OfferedTool,
    Scope,
)

if TYPE_CHECKING:
    from buzz_author.harness import Harness
    from buzz_author.instructions import AgentInstructions, Guard
    from buzz_author.plugins import Disposer, SdkTool
    from buzz_author.tools import Tool
    from buzz_author.turns import Turn, TurnRendering
    from buzz_host.plugins.threads import PluginThread


CONTRIBUTIONS: Final = ("addInstructions", "addNote", "addTool", "registerHarness", "harness")
"""What `ctx.agents` has, each camelCase name with its PEP 8 twin."""

_TO_COME: Final = frozenset({"addSkill", "addWatch", "addTimer", "registerHook"})


def missing_attribute(what: str, name: str, there: Sequence[str]) -> str:
    """The line for an attribute that `what` has not, with a suggestion from what is `there`."""
    if what == "ctx.agents" and name in {*_TO_COME, *map(pep8_name, _TO_COME)}:
        return f"this release of Buzz has no {what}.{name}; it has {', '.join(there)}"
    near = get_close_matches(name, [*there, *map(pep8_name, there)], n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(there)}"
    return f"{what} has no '{name}'; {hint}"


def no_attribute(what: str, name: str, there: Sequence[str]) -> AttributeError:
    """The error of `missing_attribute`. Without a name and an object, or Python would add a guess of its own."""
    return AttributeError(missing_attribute(what, name, there))


@ported
class Rendering:
    """`ctx.agents.harness`: the four faces of a turn's one text (TRN-02)."""

    def turnNote(self, turn: Turn) -> str:
        return turn_note(turn)

    def turnPrompt(self, turn: Turn) -> str:
        return turn_prompt(turn)

    def wakePrompt(self, turn: Turn) -> str:
        return wake_prompt(turn)

    def steerPrompt(self, turn: Turn) -> str:
        return steer_prompt(turn)


_RENDERING: Final = Rendering()


@ported
class HostAgents(Agents):
    """`ctx.agents` of one activation; what its calls take and raise stands in `buzz_author.plugins.Agents`."""

    def __init__(self, scope: Scope, next_note: Callable[[], str], thread: PluginThread) -> None:
        self._scope = scope
        self._next_note = next_note
        self._thread = thread

    def addInstructions(
        self,
        instructions: AgentInstructions | Mapping[str, object] | None = None,
        /,
        *,
        id: str | None = None,
        text: str | None = None,
        when: Guard | None = None,
    ) -> Disposer:
        self._scope.must_be_open()
        checked = check_instructions(self._scope.plugin, instructions, id=id, text=text, when=when)
        return self._scope.register(INSTRUCTIONS, checked.id, checked)

    def addNote(self, agent: str, text: str) -> Disposer:
        self._scope.must_be_open()
        plugin = self._scope.plugin
        check_name(agent, f"plugin '{plugin}': addNote: agent")
        if not isinstance(text, str):
            raise RegistrationError(f"plugin '{plugin}': addNote: text must be a str, not {type(text).__name__}")
        identifier = self._next_note()
        made = section("plugin-note", text, attributes=(("plugin", plugin),), source=Source(plugin, identifier))
        if not made.body:
            raise RegistrationError(f"plugin '{plugin}': addNote: the text is empty; say something, or add no note")
        return self._scope.register(NOTES, identifier, Note(agent, made), limit=NOTES_WAITING_MAX)

    def addTool(self, tool: Tool | SdkTool) -> Disposer:
        self._scope.must_be_open()
        from buzz_author.tooling import check_tool  # most plugins offer none

        checked = check_tool(self._scope.plugin, tool)
        offered = OfferedTool(checked, self._thread.run, self._thread.break_off)
        return self._scope.register(TOOLS, checked.name, offered, limit=TOOLS_MAX)

    def registerHarness(self, harness: Harness) -> Disposer:
        self._scope.must_be_open()
        where = f"plugin '{self._scope.plugin}': registerHarness"
        identifier = check_id(getattr(harness, "id", None), f"{where}: harness")
        for name in ("title", "capabilities", "probe", "encode", "open"):
            member = getattr(harness, name, None)
            if member is None or (name in ("probe", "encode", "open") and not callable(member)):
                raise RegistrationError(f"{where}: the harness '{identifier}' has no {name}; see buzz_author.Harness")
        return self._scope.register(HARNESSES, identifier, harness)

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute("ctx.agents", name, CONTRIBUTIONS)

    @property
    def harness(self) -> TurnRendering:
        return _RENDERING  # type: ignore[return-value]  # its PEP 8 twins come from @ported
