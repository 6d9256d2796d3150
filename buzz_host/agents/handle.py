"""How an agent looks from outside: the read-only handle that guards and harnesses are given (INS-09, INS-14).

Backed by a tuple and nothing else: a frozen class can be written through `object.__setattr__`, and then one plugin's
guard would change what the next one sees.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NoReturn

from buzz_author.errors import BuzzError
from buzz_author.sections import Section

_ATTRIBUTES: Final = ("name", "scope", "harness", "model", "cwd", "instructions")
InstructionsOf = Callable[[], tuple[Section, ...]]


class TurnAgent(tuple[str, str, str, str | None, str, InstructionsOf]):
    """The host's `AgentHandle`: one agent, for one turn.

    `scope` is where its file stands, `model` what the file names, or None, and `cwd` a path that is made anew each time
    it is asked for, because a path can be written into as well.
    """

    __slots__ = ()

    def __new__(
        cls, name: str, scope: str, harness: str, model: str | None, cwd: Path, instructions: InstructionsOf
    ) -> TurnAgent:
        return super().__new__(cls, (name, scope, harness, model, str(cwd), instructions))

    def __getnewargs__(self) -> tuple[str, str, str, str | None, Path, InstructionsOf]:
        # For `copy`: a tuple's own answer would be one argument.
        return self[0], self[1], self[2], self[3], self.cwd, self[5]

    @property
    def name(self) -> str:
        return self[0]

    @property
    def scope(self) -> str:
        return self[1]

    @property
    def harness(self) -> str:
        return self[2]

    @property
    def model(self) -> str | None:
        return self[3]

    @property
    def cwd(self) -> Path:
        return Path(self[4])

    def instructions(self) -> tuple[Section, ...]:
        """The sections of the standing instructions that hold for this turn (INS-09).

        Raises `BuzzError` on a handle that was made for a guard.
        """
        return self[5]()

    def for_guard(self) -> TurnAgent:
        """A handle of the same agent for one `when`: it cannot be asked for the set that the guard helps to decide.

        Each guard gets one of its own: not even one that assigns to `__class__`, which Python cannot forbid, changes
        what others see.
        """
        # Past the constructor: a turn with a hundred guards makes a hundred of these.
        return tuple.__new__(TurnAgent, (*self[:5], _not_inside_a_guard))

    def __getattr__(self, name: str) -> NoReturn:
        near = get_close_matches(name, _ATTRIBUTES, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(_ATTRIBUTES)}"
        raise AttributeError(f"an agent's handle has no '{name}'; {hint}")

    def __repr__(self) -> str:
        return f"<agent {self[0]!r} ({self[1]}) on {self[2]}>"


def _not_inside_a_guard() -> NoReturn:
    raise BuzzError("agent.instructions() cannot be asked inside a `when`: it would ask for the set it is deciding on")
