"""Tools as values: what an agent can call, what a call is, and what comes back.

Harness-neutral: the names and meanings are those of the Model Context Protocol, so that every harness can carry them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal

import attrs

from buzz_author.json_values import JsonObject

TOOL_TIMEOUT_S: Final = 60.0


@attrs.frozen
class Annotations:
    """What a tool says of itself (MCP tool annotations); None where it says nothing. Permissions follow them."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


@attrs.frozen
class Text:
    """A piece of text in a tool's result."""

    text: str


@attrs.frozen
class Image:
    """An image in a tool's result: its bytes and media type."""

    content: bytes
    media_type: str


@attrs.frozen
class Resource:
    """A resource in a tool's result: its address and text."""

    uri: str
    text: str


@attrs.frozen
class ToolResult:
    """What a tool gave back; `is_error` marks a failure that the model should read and correct."""

    content: tuple[Text | Image | Resource, ...]
    is_error: bool = False


@attrs.frozen
class ToolCall:
    """The call that a tool's handler serves: for which agent, in which session."""

    agent: str
    session: str
    progress: Callable[[float, str], None]
    cancelled: Callable[[], bool]


@attrs.frozen
class Tool:
    """A tool: `handler(arguments, call)` serves it; `timeout_s` bounds one call."""

    name: str
    description: str
    input_schema: JsonObject
    handler: Callable[[JsonObject, ToolCall], Awaitable[ToolResult]]
    annotations: Annotations = Annotations()
    timeout_s: float = TOOL_TIMEOUT_S


@attrs.frozen
class ToolRequest:
    """A call that a harness is about to make, in one normal form for all harnesses."""

    call: str
    name: str
    arguments: JsonObject
    command: str | None = None
    paths: tuple[str, ...] = ()
    read_only: bool | None = None


@attrs.frozen
class GateDecision:
    """The answer to a `ToolRequest`: what holds, why, and which gate or policy said so."""

    verdict: Literal["allow", "ask", "deny"]
    reason: str
    gate: str
