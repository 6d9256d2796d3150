"""A gateway that is closed leaves the loop as it found it: what comes after may get its descriptors' numbers."""

from __future__ import annotations

import asyncio

import pytest

from buzz_author.tools import ToolResult
from buzz_host.tools.gateway import Gateway

DEADLINE_S = 5.0
CONNECTIONS = 20


async def nobody_calls(call_id: str, name: str, arguments: object) -> ToolResult:
    raise AssertionError("nobody calls")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()


@pytest.mark.anyio
@pytest.mark.req("SEC-02", "HAR-03")
async def test_connections_work_after_a_gateway_of_the_same_loop_was_closed() -> None:
    gateway = Gateway()
    await gateway.serve((), nobody_calls)
    await gateway.close()
    async with asyncio.timeout(DEADLINE_S), await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for n in range(CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"%d\n" % n)
            assert await reader.readline() == b"%d\n" % n
            writer.close()
            await writer.wait_closed()
