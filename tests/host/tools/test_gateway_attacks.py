"""The gateway under attack: whoever lacks the session's own token, or comes from a web page, gets nothing.

Requests go through plain sockets, so that each byte is ours (SEC-01, SEC-02).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import attrs
import pytest

from buzz_author.harness import Gateway as Address
from buzz_author.json_values import JsonObject
from buzz_author.tools import Text, Tool, ToolCall, ToolResult
from buzz_host.tools import gateway as module
from buzz_host.tools.gateway import Gateway

pytestmark = pytest.mark.anyio
DEADLINE_S = 20.0


async def never(arguments: JsonObject, call: ToolCall) -> ToolResult:
    raise AssertionError("the gateway calls through the session")


def offered(*names: str) -> tuple[Tool, ...]:
    return tuple(Tool(name, "d", {"type": "object", "properties": {}}, never) for name in sorted(names))


@attrs.define
class Served:
    """One session behind the gateway, with the calls that reached it."""

    address: Address
    revoke: Callable[[], None]
    calls: list[tuple[str, JsonObject]]
    called: asyncio.Event
    cancelled: asyncio.Event

    @property
    def path(self) -> str:
        return urlsplit(self.address.url).path

    @property
    def authority(self) -> str:
        return urlsplit(self.address.url).netloc


Serving = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serving() -> AsyncIterator[Serving]:
    gateway = Gateway()

    async def serve(*names: str) -> Served:
        calls: list[tuple[str, JsonObject]] = []
        called, cancelled = asyncio.Event(), asyncio.Event()

        async def call(call_id: str, name: str, arguments: JsonObject) -> ToolResult:
            calls.append((name, arguments))
            called.set()
            try:
                if "hold" in name:
                    await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return ToolResult((Text(f"{name} for this session"),))

        tools = offered(*(names or ("mcp__notes__hold", "mcp__notes__remember", "mcp__other__look")))
        address, revoke = await gateway.serve(tools, call)
        return Served(address, revoke, calls, called, cancelled)

    yield serve
    await gateway.close()


def request(
    served: Served,
    *,
    server: str = "notes",
    path: str | None = None,
    token: str | None = "",
    host: str | None = None,
    body: bytes | None = None,
    method: str = "POST",
    length: int | None = None,
    headers: tuple[str, ...] = (),
    tool: str = "remember",
) -> bytes:
    """The bytes of one request; by default the right one, a call of `remember` without any greeting."""
    if body is None:
        call = {"name": tool, "arguments": {"fact": "tea"}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode()
    lines = [
        f"{method} {path if path is not None else f'{served.path}/{server}'} HTTP/1.1",
        f"Host: {served.authority if host is None else host}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {len(body) if length is None else length}",
        "Connection: close",
        *headers,
    ]
    if token is not None:
        lines.append(f"Authorization: Bearer {token or served.address.token}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def connected(served: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = served.authority.partition(":")
    return await asyncio.open_connection(host, int(port))


async def answer(served: Served, sent: bytes) -> tuple[int, str]:
    """The status and the body of the answer; 0 where the connection was closed without one."""
    reader, writer = await connected(served)
    try:
        async with asyncio.timeout(DEADLINE_S):
            try:
                writer.write(sent)
                await writer.drain()
                got = await reader.read()
            except ConnectionError:
                return 0, ""
    finally:
        writer.close()
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"access-control" not in head.lower()
    return (int(head.split()[1]) if head else 0), body.decode()


async def taken(served: Served, sent: bytes) -> bool:
    status, body = await answer(served, sent)
    return status == 200 and "remember for this session" in body


@pytest.mark.req("SEC-02", "HAR-03")
async def test_a_call_needs_no_greeting(serving: Serving) -> None:
    served = await serving()
    assert await taken(served, request(served))
    assert served.calls == [("mcp__notes__remember", {"fact": "tea"})]
    listing = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    status, body = await answer(served, request(served, body=listing))
    assert status == 200
    assert [each["name"] for each in json.loads(body)["result"]["tools"]] == ["hold", "remember"]
    assert (await answer(served, request(served, body=listing)))[1] == body, "the same bytes each time"


@pytest.mark.req("SEC-01", "SEC-02")
async def test_without_the_sessions_own_token_nothing_is_called(serving: Serving) -> None:
    served, other = await serving(), await serving()
    token = served.address.token
    attempts = [
        request(served, token=None),
        request(served, token=other.address.token),
        request(served, token=token[:-1]),
        request(served, token=token + "A"),
        request(served, token=token.swapcase()),
        request(served, token="\xe9" * 43),
        request(served, token=None, headers=(f"Authorization: Basic {token}",)),
        request(served, token=None, headers=(f"Authorization: {token}",)),
        request(served, token=None, headers=(f"Authorization: bearer  {token}",)),
        request(served, headers=(f"Authorization: Bearer {other.address.token}",)),  # two of them
        request(served, token=None, headers=(f"Cookie: token={token}", f"X-Token: {token}")),
        request(served, token=None, path=f"{served.path}/notes?token={token}"),
        request(served, path=f"{other.path}/notes"),  # the right token at another session's address
        request(served, path="/"),
        request(served, path="//"),
        request(served, path=f"/x{served.path}/notes"),
        request(served, path=f"/nothing/..{served.path}"),
    ]
    for number, attempt in enumerate(attempts):
        status, body = await answer(served, attempt)
        assert status in (400, 401), f"attempt {number}: {status}"
        assert token not in body
        assert other.address.token not in body
    assert served.calls == []
    assert other.calls == []


@pytest.mark.req("SEC-01")
async def test_only_our_exact_host_is_answered_and_no_web_page(serving: Serving) -> None:
    served = await serving()
    port = served.authority.partition(":")[2]
    hosts = [
        "localhost:" + port,
        "127.0.0.1",
        "127.0.0.1:80",
        f"127.0.0.1:{port}.evil.example",
        f"evil.example:{port}",
        f"127.0.0.1.evil.example:{port}",
        f"127.0.0.1:0{port}",
        f"[::1]:{port}",
        f"0.0.0.0:{port}",
        f"127.0.0.1:{port}, evil.example",
        "",
    ]
    for host in hosts:
        status, _ = await answer(served, request(served, host=host))
        assert status in (400, 403), host
    for origin in ("null", f"http://{served.authority}", "https://evil.example", ""):
        assert (await answer(served, request(served, headers=(f"Origin: {origin}",))))[0] == 403, origin
    two = request(served).replace(b"Host: ", b"Host: evil.example\r\nHost: ", 1)
    assert (await answer(served, two))[0] in (400, 403)
    status, _ = await answer(served, request(served, method="OPTIONS", token=None, headers=("Origin: http://a",)))
    assert status == 403
    assert served.calls == []


@pytest.mark.req("SEC-01")
async def test_bodies_are_bounded_in_size_and_time(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_MAX_BYTES", 64 * 1024)
    monkeypatch.setattr(module, "BODY_DEADLINE_S", 0.3)
    served = await serving()
    assert (await answer(served, request(served, body=b'"' + b"a" * (200 * 1024) + b'"')))[0] in (0, 413)
    # In chunks, so that no length is said.
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    head = request(served, body=b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    assert (await answer(served, head + chunk * 4 + b"0\r\n\r\n"))[0] in (0, 413)
    # More is promised than comes.
    assert (await answer(served, request(served, length=60_000)))[0] in (0, 408)
    assert served.calls == []
    assert await taken(served, request(served))


@pytest.mark.req("SEC-01")
async def test_what_is_no_call_is_an_error_and_the_gateway_goes_on(serving: Serving) -> None:
    served = await serving()
    garbage = [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"1.0","id":1,"method":"tools/call"}',
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"remember","arguments":[]}}',
        b'{"jsonrpc":"2.0","id":1,"method":"no/such"}',
    ]
    for body in garbage:
        status, said = await answer(served, request(served, body=body))
        assert status >= 400 or "error" in json.loads(said), body[:60]
    for junk in (b"\r\n\r\n", b"\x16\x03\x01" * 100, b"GET\r\n\r\n", b"A" * 200_000 + b"\r\n\r\n"):
        assert (await answer(served, junk))[0] in (0, 400, 431), junk[:20]
    assert served.calls == []
    assert await taken(served, request(served))


@pytest.mark.req("SEC-02")
async def test_another_plugins_and_another_sessions_tools_are_not_there(serving: Serving) -> None:
    served, other = await serving("mcp__notes__remember"), await serving("mcp__secret__dump")
    assert (await answer(served, request(served, server="secret", tool="dump")))[0] == 404
    assert (await answer(served, request(served, server="")))[0] == 404
    assert (await answer(served, request(served, server="notes/more")))[0] == 404
    for name in ("dump", "mcp__secret__dump", "look", "../remember", ""):
        status, body = await answer(served, request(served, tool=name))
        assert status == 200
        result = json.loads(body)["result"]
        assert result["isError"], name
        assert "dump" not in json.dumps(result).replace(name, "")
    assert served.calls == []
    assert other.calls == []


@pytest.mark.req("SEC-02")
async def test_a_revoked_address_is_dead_at_once_and_its_calls_are_ended(serving: Serving) -> None:
    served, other = await serving(), await serving()
    reader, writer = await connected(served)
    writer.write(request(served, tool="hold"))
    async with asyncio.timeout(DEADLINE_S):
        await served.called.wait()
        served.revoke()
        assert (await answer(served, request(served)))[0] in (401, 404)
        await served.cancelled.wait()
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        await reader.read()
    writer.close()
    assert len(served.calls) == 1
    served.revoke()  # again: nothing happens
    assert await taken(other, request(other))


@pytest.mark.req("HAR-03")
async def test_a_client_that_leaves_ends_its_call(serving: Serving) -> None:
    served = await serving()
    _, writer = await connected(served)
    writer.write(request(served, tool="hold"))
    async with asyncio.timeout(DEADLINE_S):
        await served.called.wait()
        writer.close()
        await served.cancelled.wait()
    assert await taken(served, request(served))


@pytest.mark.req("SEC-02")
async def test_twenty_sessions_at_once_each_reach_their_own(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sessions = [await serving(f"mcp__p{number}__remember") for number in range(20)]
    assert len({each.address.token for each in sessions}) == 20
    assert len({each.address.url for each in sessions}) == 20
    sent = [answer(each, request(each, server=f"p{number}")) for number, each in enumerate(sessions) for _ in range(5)]
    answers = await asyncio.gather(*sent)
    for number, (status, body) in enumerate(answers):
        assert status == 200
        assert f"mcp__p{number // 5}__remember for this session" in body
    assert [len(each.calls) for each in sessions] == [5] * 20
    for each in sessions:
        assert each.address.token not in caplog.text
        assert each.address.token not in repr(each.address)
        assert each.address.token not in each.address.url
