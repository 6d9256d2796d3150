"""What the program may call: plugins' tools as servers in this process, and its own tools as the policy has them.

Each call of a plugin's tool goes to the host, which applies the policy and asks where it must, so the program is told
to allow all of them (PRM-01, ASM-02). The program's own tools are absent, or reading ones, or all, by the policy; what
is asked then is in `permissions`.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final
from uuid import uuid4

from claude_agent_sdk import McpSdkServerConfig, SdkMcpTool, ToolAnnotations, create_sdk_mcp_server
from claude_agent_sdk.types import PermissionMode, ToolsPreset

from buzz_author.harness import Policy, SessionHost
from buzz_author.tooling import plain
from buzz_author.tools import Image, Resource, Text, Tool, ToolResult, split_wire_name

# The program's own tools that only read files here; those that search the web leave the machine.
READING: Final = ("Read", "Glob", "Grep")
# These would lead the conversation out of what a turn is: another folder or mode, a time of their own, other sessions.
NEVER: Final = (
    "CronCreate",
    "EnterPlanMode",
    "EnterWorktree",
    "ExitPlanMode",
    "ExitWorktree",
    "ListAgents",
    "Monitor",
    "ScheduleWakeup",
    "SendMessage",
    "Workflow",
)
# A result that is longer would be written to a file, which the program cannot read without tools of its own.
RESULT_INLINE_CHARACTERS: Final = 500_000


def own_tools(policy: Policy) -> list[str] | ToolsPreset:
    """The program's own tools under a policy."""
    match policy:
        case "plugin-tools-only":
            return []
        case "read-only":
            return list(READING)
        case _:
            return {"type": "preset", "preset": "claude_code"}


def mode(policy: Policy) -> PermissionMode:
    """What the program does with a tool that nothing allows: refuse it, or ask us."""
    return "dontAsk" if policy in ("plugin-tools-only", "read-only") else "default"


def allowed(policy: Policy, tools: Iterable[Tool]) -> list[str]:
    """What the program calls without asking: plugins' tools, whose policy is the host's business. Where it asks us, it
    asks for those as well, and `permissions` lets them pass."""
    if mode(policy) == "default":
        return []
    return [*(READING if policy == "read-only" else ()), *(each.name for each in tools)]


def servers(tools: Iterable[Tool], host: SessionHost) -> dict[str, McpSdkServerConfig]:
    """A server in this process for each plugin, with names that make the program's be exactly ours."""
    found: defaultdict[str, list[SdkMcpTool[Any]]] = defaultdict(list)
    for each in tools:
        server, name = split_wire_name(each.name)
        found[server].append(_served(name, each, host))
    return {server: create_sdk_mcp_server(server, tools=own) for server, own in sorted(found.items())}


def _served(name: str, tool: Tool, host: SessionHost) -> SdkMcpTool[Any]:
    async def serve(arguments: dict[str, Any]) -> dict[str, Any]:
        return _written(await host.call_tool(f"claude-{uuid4().hex}", tool.name, arguments))

    said = tool.annotations
    hints: dict[str, Any] = {
        "readOnlyHint": said.read_only,
        "destructiveHint": said.destructive,
        "idempotentHint": said.idempotent,
        "openWorldHint": said.open_world,
        "maxResultSizeChars": RESULT_INLINE_CHARACTERS,
    }
    # Without both, the SDK takes it for names with their types.
    schema = {"type": "object", "properties": {}, **plain(tool.input_schema)}
    return SdkMcpTool(name, tool.description, schema, serve, ToolAnnotations(**hints))


def _written(result: ToolResult) -> dict[str, Any]:
    return {"content": [_block(each) for each in result.content], "is_error": result.is_error}


def _block(piece: Text | Image | Resource) -> dict[str, str]:
    match piece:
        case Image():
            data = base64.b64encode(piece.content).decode("ascii")
            return {"type": "image", "data": data, "mimeType": piece.media_type}
        case Resource():
            return {"type": "text", "text": f"{piece.uri}\n{piece.text}" if piece.uri else piece.text}
        case Text():
            return {"type": "text", "text": piece.text}
