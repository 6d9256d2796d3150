"""Tools as values: what an agent can call, what a call is, and what comes back.

Harness-neutral: the names and meanings are those of the Model Context Protocol, so that every harness can carry them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal

import attrs

from buzz_author.json_values import JsonObject

TOOL_TIMEOUT_S: Final = 60.0
WIRE_NAME_MAX_CHARS: Final = 64
_WIRE_PREFIX: Final = "mcp__"
_WIRE_SEPARATOR: Final = "__"
_DIGEST_CHARS: Final = 8


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
    """The call that a tool's handler serves: for which agent, in which session.

    `progress(part, message)` tells how far it is, 0 to 1, where the harness can show it; `cancelled()` is True once
    nobody waits for the result any more. Both may be called from any thread.
    """

    agent: str
    session: str
    progress: Callable[[float, str], None]
    cancelled: Callable[[], bool]


@attrs.frozen
class Tool:
    """A tool: `handler(arguments, call)` serves it; `timeout_s` bounds one call. Made with `buzz_author.tool`."""

    name: str
    description: str
    input_schema: JsonObject
    handler: Callable[[JsonObject, ToolCall], Awaitable[ToolResult]]
    annotations: Annotations = Annotations()
    timeout_s: float = TOOL_TIMEOUT_S

    @classmethod
    def from_sdk(cls, made: object) -> Tool:
        """The tool for one that was made with `claude_agent_sdk.tool`. Raises `RegistrationError`."""
        from buzz_author.tooling import from_sdk

        return from_sdk(made)


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


def wire_name(plugin: str, tool: str, limit: int = WIRE_NAME_MAX_CHARS) -> str:
    """The name by which every model calls `tool` of `plugin`: `mcp__<plugin>__<tool>`, the form that MCP clients make.

    At most `limit` characters, all of `[A-Za-z0-9_-]`. A part that is too long, or would make the name ambiguous, is
    cut and ends in eight hexadecimal digits of its hash, so that equal parts give equal names, and others do not
    (ASM-05). Which tool a name stands for is known to the session that offers it.
    """
    server, name = _part(plugin, server=True), _part(tool, server=False)
    room = limit - len(_WIRE_PREFIX) - len(_WIRE_SEPARATOR)
    if len(server) + len(name) > room:
        server = _shortened(plugin, server, max(room // 3, room - len(name)))
        name = _shortened(tool, name, room - len(server))
    return f"{_WIRE_PREFIX}{server}{_WIRE_SEPARATOR}{name}"


def split_wire_name(name: str) -> tuple[str, str]:
    """The server's and the tool's part of a `wire_name`, for a program that puts the two together by itself.

    Raises `ValueError` for what is no wire name.
    """
    server, separator, tool = name.removeprefix(_WIRE_PREFIX).partition(_WIRE_SEPARATOR)
    if not name.startswith(_WIRE_PREFIX) or not separator or not server or not tool:
        raise ValueError(f"{name!r} is not the name of a tool: expected mcp__<plugin>__<tool>")
    return server, tool


def _part(given: str, *, server: bool) -> str:
    """`given`, if a name can hold it as it is; else a form of it that one can."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in given)
    ambiguous = server and (_WIRE_SEPARATOR in plain or plain.endswith("_"))
    leading = not server and plain.startswith("_")
    if plain == given and not ambiguous and not leading:
        return given
    while _WIRE_SEPARATOR in plain:
        plain = plain.replace(_WIRE_SEPARATOR, "_")
    return f"{plain.strip('_')}-{_digest(given)}"


def _shortened(given: str, part: str, room: int) -> str:
    if len(part) <= room:
        return part
    return f"{part[: room - _DIGEST_CHARS - 1].rstrip('_-')}-{_digest(given)}"


def _digest(given: str) -> str:
    from hashlib import sha256

    return sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
