"""What a harness session reports: one stream of values, each with the id of its turn.

Laws that the host checks: one `TurnEnded` for each `TurnStarted`, one `SteerSettled` for each steer, and `SessionEnded`
last, even when the program dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from buzz_author.json_values import JsonObject

if TYPE_CHECKING:
    from buzz_author.harness import HarnessError

SteerOutcome = Literal["folded", "own-turn", "returned"]
TurnStatus = Literal["completed", "interrupted", "failed"]


@attrs.frozen
class Usage:
    """Tokens of a turn as the model told them; None where it did not."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


@attrs.frozen
class TurnStarted:
    """The program has begun to work on the turn, or on a steered message as a turn of its own."""

    turn: str


@attrs.frozen
class TextDelta:
    """A piece of the reply."""

    turn: str
    text: str


@attrs.frozen
class ToolCalled:
    """The model called a tool; `plugin` is None for a tool of the program's own."""

    turn: str
    call: str
    name: str
    arguments: JsonObject
    plugin: str | None = None


@attrs.frozen
class ToolReturned:
    """What a tool gave back, as text."""

    turn: str
    call: str
    is_error: bool
    text: str


@attrs.frozen
class Retrying:
    """The program asks the model again; `attempt` counts from 1."""

    turn: str
    attempt: int
    error: HarnessError


@attrs.frozen
class SteerSettled:
    """How a steered message went: folded into the running turn, a turn of its own after it, or returned unread.

    `turn` is the turn that carries it: the running one, or for `own-turn` the steer's own id; for `returned`, the one
    that it was meant for. Of several that a program takes up together, the first is a turn of its own, and the others
    are folded into that.
    """

    turn: str
    steer: str
    outcome: SteerOutcome


@attrs.frozen
class PermissionRequested:
    """The program asks whether it may use a tool; it waits for `answer`."""

    turn: str
    request: str
    tool: str
    arguments: JsonObject
    read_only: bool | None = None


@attrs.frozen
class QuestionAsked:
    """The program asks the person something; it waits for `answer`."""

    turn: str
    request: str
    questions: tuple[JsonObject, ...]


@attrs.frozen
class Compacted:
    """The program has replaced its history by a summary."""

    turn: str | None


@attrs.frozen
class TurnEnded:
    """The turn is over: its whole reply, what it cost, and the error of a failed one."""

    turn: str
    status: TurnStatus
    reply: str = ""
    usage: Usage | None = None
    error: HarnessError | None = None


@attrs.frozen
class SessionEnded:
    """The program is gone; `error` says why, unless it was asked to go."""

    error: HarnessError | None = None


HarnessEvent: TypeAlias = (
    TurnStarted
    | TextDelta
    | ToolCalled
    | ToolReturned
    | Retrying
    | SteerSettled
    | PermissionRequested
    | QuestionAsked
    | Compacted
    | TurnEnded
    | SessionEnded
)
