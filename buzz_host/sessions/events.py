"""What a session tells its listeners: one stream, each event with its time, session and turn.

These are the values behind `buzz run --json`; their JSON form is stable and documented (CLI-01). A harness's own events
become these once they stand in the ledger.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias

import attrs

from buzz_author import events as native
from buzz_author.events import SteerOutcome, TurnStatus, Usage
from buzz_author.harness import HarnessError
from buzz_author.json_values import JsonObject
from buzz_host.sessions.turn_text import (
    EVENT_VERSION,
    Event,
    Preview,
    SectionRow,
    TurnText,
    moment_json,
    section_rows,
)

__all__ = [
    "EVENT_VERSION",
    "Compacted",
    "Decision",
    "Event",
    "PermissionRequested",
    "PermissionSettled",
    "Preview",
    "QuestionAsked",
    "Retrying",
    "SectionRow",
    "SessionEnded",
    "SessionEvent",
    "SettledBy",
    "SteerSettled",
    "TextDelta",
    "ToolCall",
    "ToolResult",
    "TurnCompleted",
    "TurnStarted",
    "TurnText",
    "error_json",
    "from_native",
    "moment_json",
    "outcome_json",
    "section_rows",
]

Decision = Literal["allow", "deny"]
# Who settled a request: the agent's policy, a person, the deadline, that nobody can be asked, an interrupt of the turn,
# or whoever asked, who does not wait any more.
SettledBy = Literal["policy", "person", "deadline", "nobody", "interrupt", "withdrawn"]


@attrs.frozen(kw_only=True)
class TurnStarted(TurnText):
    """The turn stands in the ledger and is on its way to the program."""

    event: ClassVar[Literal["turn_started"]] = "turn_started"


@attrs.frozen(kw_only=True)
class TextDelta(Event):
    """A piece of the reply."""

    event: ClassVar[Literal["text_delta"]] = "text_delta"
    text: str

    def fields(self) -> dict[str, Any]:
        return {"text": self.text}


@attrs.frozen(kw_only=True)
class ToolCall(Event):
    """The model calls a tool; `plugin` is None for one of the program's own."""

    event: ClassVar[Literal["tool_call"]] = "tool_call"
    call: str
    name: str
    plugin: str | None
    arguments: JsonObject

    def fields(self) -> dict[str, Any]:
        return {"call": self.call, "name": self.name, "plugin": self.plugin, "arguments": self.arguments}


@attrs.frozen(kw_only=True)
class ToolResult(Event):
    """A tool answered with so many bytes."""

    event: ClassVar[Literal["tool_result"]] = "tool_result"
    call: str
    is_error: bool
    bytes: int

    def fields(self) -> dict[str, Any]:
        return {"call": self.call, "is_error": self.is_error, "bytes": self.bytes}


@attrs.frozen(kw_only=True)
class Retrying(Event):
    """The program asks its model again; `attempt` counts from 1."""

    event: ClassVar[Literal["retrying"]] = "retrying"
    attempt: int
    error: HarnessError

    def fields(self) -> dict[str, Any]:
        return {"attempt": self.attempt, "error": error_json(self.error)}


@attrs.frozen(kw_only=True)
class SteerSettled(Event):
    """How a steered message went; a `returned` one follows as the next turn."""

    event: ClassVar[Literal["steer_settled"]] = "steer_settled"
    steer: str
    outcome: SteerOutcome

    def fields(self) -> dict[str, Any]:
        return {"steer": self.steer, "outcome": self.outcome}


@attrs.frozen(kw_only=True)
class PermissionRequested(Event):
    """A call waits for a person's yes or no; `plugin` is None for a tool of the program's own."""

    event: ClassVar[Literal["permission_requested"]] = "permission_requested"
    request: str
    tool: str
    plugin: str | None
    arguments: JsonObject
    read_only: bool | None

    def fields(self) -> dict[str, Any]:
        return {
            "request": self.request,
            "tool": self.tool,
            "plugin": self.plugin,
            "arguments": self.arguments,
            "read_only": self.read_only,
        }


@attrs.frozen(kw_only=True)
class QuestionAsked(Event):
    """The program waits for a person's answer."""

    event: ClassVar[Literal["question_asked"]] = "question_asked"
    request: str
    questions: tuple[JsonObject, ...]

    def fields(self) -> dict[str, Any]:
        return {"request": self.request, "questions": list(self.questions)}


@attrs.frozen(kw_only=True)
class PermissionSettled(Event):
    """A request, or a question, has its answer; `reason` is what the program is told."""

    event: ClassVar[Literal["permission_settled"]] = "permission_settled"
    request: str
    decision: Decision
    by: SettledBy
    reason: str

    def fields(self) -> dict[str, Any]:
        return {"request": self.request, "decision": self.decision, "by": self.by, "reason": self.reason}


@attrs.frozen(kw_only=True)
class Compacted(Event):
    """The program replaced its history by a summary."""

    event: ClassVar[Literal["compacted"]] = "compacted"


@attrs.frozen(kw_only=True)
class TurnCompleted(Event):
    """The turn is over."""

    event: ClassVar[Literal["turn_completed"]] = "turn_completed"
    status: TurnStatus
    reply: str
    usage: Usage | None
    error: HarnessError | None

    def fields(self) -> dict[str, Any]:
        return {"status": self.status, **outcome_json(self.reply, self.usage, self.error)}


@attrs.frozen(kw_only=True)
class SessionEnded(Event):
    """The program is gone; `error` says why, unless it was asked to go."""

    event: ClassVar[Literal["session_ended"]] = "session_ended"
    error: HarnessError | None

    def fields(self) -> dict[str, Any]:
        return {"error": error_json(self.error)}


# What a session's stream yields: a checker knows from `event.event == "…"` which of these it is, and its fields.
SessionEvent: TypeAlias = (
    TurnStarted
    | TextDelta
    | ToolCall
    | ToolResult
    | Retrying
    | SteerSettled
    | PermissionRequested
    | QuestionAsked
    | PermissionSettled
    | Compacted
    | TurnCompleted
    | SessionEnded
)


def outcome_json(reply: str | None, usage: Usage | None, error: HarnessError | None) -> dict[str, Any]:
    """How a turn ended, as JSON: reply (None: none is known), usage and error."""
    return {"reply": reply, "usage": attrs.asdict(usage) if usage else None, "error": error_json(error)}


def error_json(error: HarnessError | None) -> dict[str, Any] | None:
    """A harness's error as JSON; None for None."""
    if error is None:
        return None
    return {"kind": error.kind, "status": error.status, "native": error.native, "retryable": error.retryable}


def from_native(event: native.HarnessEvent, *, at: datetime, session: str) -> SessionEvent | None:
    """The event that listeners are told for one of a harness's; None for what only the host needs to know."""
    common: dict[str, Any] = {"at": at, "session": session, "turn": getattr(event, "turn", None)}
    match event:
        case native.TextDelta():
            return TextDelta(**common, text=event.text)
        case native.ToolCalled():
            return ToolCall(**common, call=event.call, name=event.name, plugin=event.plugin, arguments=event.arguments)
        case native.ToolReturned():
            return ToolResult(
                **common, call=event.call, is_error=event.is_error, bytes=len(event.text.encode("utf-8", "replace"))
            )
        case native.Retrying():
            return Retrying(**common, attempt=event.attempt, error=event.error)
        case native.SteerSettled():
            return SteerSettled(**common, steer=event.steer, outcome=event.outcome)
        case native.PermissionRequested():
            return PermissionRequested(
                **common,
                request=event.request,
                tool=event.tool,
                plugin=None,
                arguments=event.arguments,
                read_only=event.read_only,
            )
        case native.QuestionAsked():
            return QuestionAsked(**common, request=event.request, questions=event.questions)
        case native.Compacted():
            return Compacted(**common)
        case native.TurnEnded():
            return TurnCompleted(**common, status=event.status, reply=event.reply, usage=event.usage, error=event.error)
        case native.SessionEnded():
            return SessionEnded(**common, error=event.error)
        case native.TurnStarted():
            return None
