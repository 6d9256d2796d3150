"""The gateway with a client that nobody here wrote: that of the `mcp` package, with its greeting and all."""

from __future__ import annotations

import httpx2
import pytest
from mcp import ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import EmbeddedResource, ImageContent, TextContent

from buzz_author.json_values import JsonObject
from buzz_author.tools import Annotations, Image, Resource, Text, Tool, ToolCall, ToolResult
from buzz_host.tools.gateway import Gateway

pytestmark = pytest.mark.anyio
SCHEMA = {"type": "object", "properties": {"fact": {"type": "string"}}, "required": ["fact"]}


async def never(arguments: JsonObject, call: ToolCall) -> ToolResult:
    raise AssertionError("the gateway calls through the session")


@pytest.mark.req("ASM-02", "AGP-02", "AGP-05", "SEC-02")
async def test_a_client_of_mcp_lists_and_calls_the_tools_of_one_plugin() -> None:
    calls: list[tuple[str, JsonObject]] = []

    async def call(call_id: str, name: str, arguments: JsonObject) -> ToolResult:
        calls.append((name, arguments))
        return ToolResult((Text("kept"), Image(b"abc", "image/png"), Resource("notes://1", "tea")), "refuse" in name)

    tools = (
        Tool("mcp__notes__refuse", "Say no", {"type": "object"}, never),
        Tool("mcp__notes__remember", "Remember it", SCHEMA, never, Annotations(read_only=False, open_world=True)),
        Tool("mcp__other__look", "Look", {"type": "object"}, never),
    )
    gateway = Gateway()
    address, revoke = await gateway.serve(tools, call)
    try:
        headers = {"Authorization": f"Bearer {address.token}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            streamable_http_client(f"{address.url}/notes", http_client=http) as streams,
            ClientSession(streams[0], streams[1]) as client,
        ):
            assert (await client.initialize()).server_info.name == "buzz"
            refuse, remember = (await client.list_tools()).tools
            assert (refuse.name, remember.name, remember.description) == ("refuse", "remember", "Remember it")
            assert remember.input_schema == SCHEMA
            said = remember.annotations
            assert said is not None
            assert (said.read_only_hint, said.destructive_hint, said.open_world_hint) == (False, None, True)
            kept = await client.call_tool("remember", {"fact": "tea"})
            assert not kept.is_error
            text, image, resource = kept.content
            assert isinstance(text, TextContent)
            assert isinstance(image, ImageContent)
            assert isinstance(resource, EmbeddedResource)
            assert (text.text, image.data, image.mime_type) == ("kept", "YWJj", "image/png")
            assert str(resource.resource.uri) == "notes://1"
            assert (await client.call_tool("refuse", {})).is_error
            assert calls == [("mcp__notes__remember", {"fact": "tea"}), ("mcp__notes__refuse", {})]
            revoke()
            with pytest.raises(MCPError, match="error response"):
                await client.call_tool("remember", {"fact": "late"})
    finally:
        await gateway.close()
    assert len(calls) == 2
