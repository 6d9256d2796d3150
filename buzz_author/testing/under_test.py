"""A harness in the conformance suite: how it is made, and the facts in which programs may differ.

A fact is declared, and the suite holds the harness to it. What a harness cannot do at all it declares where the host
reads it, in its `Capabilities`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from buzz_author.harness import ErrorKind, Harness

if TYPE_CHECKING:
    import pytest

ERROR_KINDS: Final[Mapping[int, ErrorKind]] = {
    400: "invalid-request",
    401: "authentication",
    403: "authentication",
    429: "rate-limit",
    500: "overloaded",
    529: "overloaded",
}
"""What an error status of the model is called (HAR-03)."""
RETRYABLE: Final[frozenset[ErrorKind]] = frozenset(
    {"rate-limit", "overloaded", "connection", "timeout", "process-died"}
)


@attrs.frozen
class HarnessUnderTest:
    """A harness and its facts.

    `make(**fixed)` makes the harness; a test may fix arguments of its constructor, such as `environ`.
    """

    id: str
    make: Callable[..., Harness]

    native_model: str = "rehearsal"
    """A name of a model that the harness passes on."""
    runs_program: bool = True
    """Whether a session is a process of its own; False for a loop inside the host."""
    behind: str = ""
    """What the program itself puts behind a turn's text in the same message: a regular expression, mostly empty."""
    own_tools: frozenset[str] = frozenset()
    """Names of the program's own tools that its model is offered although the policy allows none."""
    joint: str = "\n\n"
    """What stands in a reply between what the model said before a tool call, and after it."""
    tells_usage: bool = True
    """Whether a turn's end tells its tokens."""
    tells_status: bool = True
    """Whether an error carries the HTTP status that the model answered."""
    hidden_statuses: frozenset[int] = frozenset()
    """Statuses that the program keeps to itself although it tells others."""
    before_results: str = ""
    """What the program itself puts before the text of a tool's result: a regular expression, mostly empty."""
    message_max_characters: int | None = None
    """How long a message may be; a longer one is refused before a turn begins. None where nothing but the model
    bounds it."""
    tells_native_calls: bool = True
    """Whether a call of a tool that nobody offers is told as `ToolCalled` and `ToolReturned`."""
    error_kinds: Mapping[int, ErrorKind] = ERROR_KINDS
    """What each error status becomes; a program that hides the status may only tell `unknown`."""
    recovers_from: int | None = 529
    """A status after which the program asks the model again by itself; None where it never does."""
    recovers_from_drop: bool = True
    """Whether the program asks again by itself when a stream breaks off."""
    retries_max: int = 2
    """How often at most a program asks again by itself; more than two only where it cannot be told so."""
    tells_retries: bool = True
    """Whether asking again is told as `Retrying`."""
    images: bool = True
    """Whether an image in a tool's result reaches the model as an image."""
    own_call: Callable[[Path], str] | None = None
    """A call, as rehearsal's `call` takes it, of a tool of the program's own that makes this file; under the policy
    `ask` the program asks first. None where it asks nothing, as its `capabilities.permission_requests` says."""
    compact: str | None = None
    """A message that makes the program replace its history by a summary; None where it never does, or cannot be made
    to."""
    idle_s: Callable[[float], Mapping[str, object]] | None = None
    """Arguments for `make` that make a model which says nothing fail after so many seconds; None where the program
    waits for ever."""
    lower_line_bound: Callable[[pytest.MonkeyPatch, int], Mapping[str, object]] | None = None
    """Make the harness refuse lines that are longer than so many bytes: patches what it must, and returns arguments for
    `make`. None where it reads no lines."""
    leftovers: tuple[str, ...] = ()
    """Patterns below `config_dir` of files that exist while a session runs, and never after it."""

    def told_status(self, status: int) -> int | None:
        """The status that an error carries when the model answers with `status`."""
        return status if self.tells_status and status not in self.hidden_statuses else None

    def fitting(self, characters: int) -> int:
        """So many characters, or as many as a message may have beside a few more."""
        return min(characters, (self.message_max_characters or characters + 1000) - 1000)
