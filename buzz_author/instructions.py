"""Standing instructions: a plugin's own short text that is part of every turn while the plugin is on (INS-01 … 14).

This is the author's half: the value, what a guard is given, and the checks of a registration. The host keeps what was
checked and asks the guards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import attrs

from buzz_author.errors import RegistrationError
from buzz_author.names import check_id
from buzz_author.sections import Section, Source, section
from buzz_author.text import exact, trim, well_formed

# Several times the attention note, the only other text that every turn carries; the same bound as in the system that
# this rule comes from (INS-02).
INSTRUCTION_MAX_BYTES: Final = 4096


class AgentHandle(Protocol):
    """A read-only view of one agent: what a guard is asked about, and what a harness session works for.

    `scope` is where the agent's file stands (`core` or `user`), `harness` the id of the harness that takes the turn,
    `model` the model that the agent's file names, or None, and `cwd` the working directory.
    """

    @property
    def name(self) -> str: ...
    @property
    def scope(self) -> str: ...
    @property
    def harness(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def cwd(self) -> Path: ...

    def instructions(self) -> tuple[Section, ...]:
        """The sections of the standing instructions that hold for this turn (INS-09). Raises inside a `when`."""
        ...


Guard = Callable[[AgentHandle], bool]


@attrs.frozen
class AgentInstructions:
    """Standing instructions: `text` is part of every turn for which `when` holds, while the plugin is on.

    Keep it short: it costs tokens on every turn. `text` is the plugin's own words, at most 4096 bytes of UTF-8 after
    trimming, never content from others. It is framing and no trust boundary: plugins are trusted code (INS-13).

    `when(agent)` is asked each time a turn's prompt is built and admits only by returning the literal `True`; it must
    be pure, quick (250 ms at most) and fit to run on any thread (INS-04, INS-14). Without it, the text holds for all
    agents.
    """

    id: str
    text: str
    when: Guard | None = None


@attrs.frozen
class CheckedInstructions:
    """What a registration keeps: the id, the finished section, and the guard; never the caller's object (INS-03)."""

    id: str
    section: Section
    when: Guard | None


def check_instructions(
    plugin: str,
    instructions: AgentInstructions | Mapping[str, object] | None = None,
    /,
    *,
    id: str | None = None,
    text: str | None = None,
    when: Guard | None = None,
) -> CheckedInstructions:
    """The checked form of what a plugin passed to `addInstructions`, in any of its three forms (INS-01 … 03).

    Raises `RegistrationError` or `InvalidName` with one line that names the plugin and the id.
    """
    if instructions is not None:
        if id is not None or text is not None or when is not None:
            raise RegistrationError(
                f"plugin '{plugin}': give addInstructions either one value or id=, text= and when=, not both"
            )
        id, text, when = _fields(plugin, instructions)
    identifier = check_id(id, f"plugin '{plugin}': instructions")
    where = f"plugin '{plugin}': instructions '{identifier}'"
    if not isinstance(text, str):
        raise RegistrationError(f"{where}: text must be a str, not {type(text).__name__}")
    if when is not None and not callable(when):
        raise RegistrationError(f"{where}: when must be a function of the agent, not {type(when).__name__}")
    trimmed = well_formed(trim(exact(text)))
    size = len(trimmed.encode("utf-8"))
    if size == 0:
        raise RegistrationError(f"{where}: the text is empty; say something, or register nothing")
    if size > INSTRUCTION_MAX_BYTES:
        raise RegistrationError(
            f"{where}: the text has {size} bytes of UTF-8 after trimming, the limit is {INSTRUCTION_MAX_BYTES}: "
            "shorten it"
        )
    made = section("plugin-instructions", trimmed, attributes=(("plugin", plugin),), source=Source(plugin, identifier))
    return CheckedInstructions(identifier, made, when)


def _fields(
    plugin: str, instructions: AgentInstructions | Mapping[str, object]
) -> tuple[str | None, str | None, Guard | None]:
    if isinstance(instructions, AgentInstructions):
        return instructions.id, instructions.text, instructions.when
    if not isinstance(instructions, Mapping):
        raise RegistrationError(
            f"plugin '{plugin}': addInstructions takes an AgentInstructions or a mapping with id, text and when, "
            f"not {type(instructions).__name__}"
        )
    given = dict(instructions)
    unknown = sorted(str(key) for key in given if key not in ("id", "text", "when"))
    if unknown:
        raise RegistrationError(
            f"plugin '{plugin}': addInstructions does not know {', '.join(map(repr, unknown))}; "
            "its keys are id, text and when"
        )
    # Their types are checked by the caller, for all three forms alike.
    return given.get("id"), given.get("text"), given.get("when")  # type: ignore[return-value]
