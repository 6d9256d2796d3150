"""The gateway: plugins' tools over MCP on loopback, for programs that call them by HTTP (SEC-01, SEC-02).

One listener for a host, an address and a bearer token for each session, dead at the session's end. Below a session's
address stands one MCP endpoint for each plugin that offers tools. Nothing is kept between requests, so a call may come
without any greeting. Only requests to our exact `Host`, without an `Origin`, with the session's token are read at all.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import itertools
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import attrs

from buzz_author.errors import BuzzError
from buzz_author.harness import Gateway as GatewayAddress
from buzz_author.json_values import JsonObject
from buzz_author.tools import Image, Resource, Text, Tool, ToolResult, split_wire_name

if TYPE_CHECKING:
    from mcp.types import CallToolResult

BODY_MAX_BYTES: Final = 16 * 1024 * 1024
BODY_DEADLINE_S: Final = 30.0
START_DEADLINE_S: Final = 10.0
CLOSE_DEADLINE_S: Final = 3.0
CONNECTIONS_MAX: Final = 256
INSTALL: Final = "pip install 'buzz-agents[tools]'"
SESSION: Final = "buzz.session"
SERVER: Final = "buzz.server"
UNAUTHORISED: Final = (401, "a bearer token of a session that runs is needed")

Caller = Callable[[str, str, JsonObject], Awaitable[ToolResult]]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class GatewayUnavailable(BuzzError):
    """The packages that the gateway needs are not installed, or it could not start."""


@attrs.frozen(eq=False)
class ServedSession:
    """The tools of one session, and who calls them: `call(call_id, name, arguments)`."""

    token: str = attrs.field(repr=False)
    tools: tuple[Tool, ...]
    call: Caller
    over: asyncio.Event = attrs.field(factory=asyncio.Event, repr=False)

    def of_server(self, server: str) -> tuple[tuple[str, Tool], ...]:
        """The tools of one plugin, each with its name there."""
        named = ((split_wire_name(each.name), each) for each in self.tools)
        return tuple((own, tool) for (place, own), tool in named if place == server)


class Gateway:
    """The gateway of one host, for one event loop. It starts with the first session that is served."""

    def __init__(self) -> None:
        self._sessions: dict[str, ServedSession] = {}
        self._task: asyncio.Task[None] | None = None
        self._server: Any = None
        self._host = ""
        self._starting = asyncio.Lock()
        self._calls = itertools.count(1)

    async def serve(self, tools: tuple[Tool, ...], call: Caller) -> tuple[GatewayAddress, Callable[[], None]]:
        """Serve a session's tools; the address, and the function that revokes it at once.

        Raises `GatewayUnavailable` in one line.
        """
        async with self._starting:
            if self._task is None or self._task.done():
                await self._start()
        path, token = secrets.token_urlsafe(18), secrets.token_urlsafe(32)
        self._sessions[path] = ServedSession(token, tools, call)
        return GatewayAddress(f"http://{self._host}/{path}", token), lambda: self._revoke(path)

    async def close(self) -> None:
        """End the listener and every call that runs."""
        for path in list(self._sessions):
            self._revoke(path)
        if self._task is not None:
            self._server.should_exit = True
            _, running = await asyncio.wait({self._task}, timeout=CLOSE_DEADLINE_S)
            if running:
                for each in self._server.servers:  # or the loop would go on watching a number that is another's by then
                    each.close()
                self._task.cancel()
                await asyncio.wait(running)
            self._task = None

    def _revoke(self, path: str) -> None:
        session = self._sessions.pop(path, None)
        if session is not None:
            session.over.set()  # its calls end, and are answered as if they came now

    async def _start(self) -> None:
        try:
            # In a thread: the import takes a second, and other sessions go on meanwhile.
            await asyncio.to_thread(_import)
            import uvicorn
        except ImportError as error:
            raise GatewayUnavailable(f"plugins' tools cannot be served: {error}; {INSTALL}") from None
        # The protocol is named, or asyncio leaves Nagle's algorithm on: every answer would take 40 ms more.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.bind(("127.0.0.1", 0))
        except OSError as error:
            listener.close()
            raise GatewayUnavailable(f"plugins' tools cannot be served on loopback: {error.strerror}") from None
        self._host = f"127.0.0.1:{listener.getsockname()[1]}"
        for name in ("uvicorn.error", "mcp.server.streamable_http", "mcp.server.streamable_http_manager"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # their faults are answered, and ours to tell

        class QuietServer(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                """Signals are the host's."""
                yield

        ready = asyncio.Event()
        config = uvicorn.Config(
            self._asgi_app(ready),
            log_config=None,
            access_log=False,
            lifespan="on",
            http="h11",
            ws="none",
            server_header=False,
            date_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=1,
        )
        self._server = QuietServer(config)
        self._task = asyncio.create_task(self._serve(listener), name="gateway of tools")
        started = asyncio.ensure_future(ready.wait())
        await asyncio.wait({started, self._task}, timeout=START_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if not ready.is_set():
            self._task.cancel()
            raise GatewayUnavailable("plugins' tools cannot be served: the gateway did not start")

    async def _serve(self, listener: socket.socket) -> None:
        with listener:
            await self._server.serve(sockets=[listener])

    def _asgi_app(self, ready: asyncio.Event) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        manager = StreamableHTTPSessionManager(
            self._mcp_server(), json_response=True, stateless=True, max_request_body_size=BODY_MAX_BYTES
        )

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await receive()
                async with manager.run():
                    await send({"type": "lifespan.startup.complete"})
                    ready.set()
                    await receive()
                await send({"type": "lifespan.shutdown.complete"})
            elif scope["type"] == "http":
                await self._answer(scope, receive, send, manager.handle_request)

        return app

    async def _answer(self, scope: Scope, receive: Receive, send: Send, handle: Any) -> None:
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        try:
            body = await _read_body(receive)
        except TimeoutError:
            await _refuse(send, 408, "the body did not come in time")
            return
        if body is None:
            await _refuse(send, 413, f"the body is larger than {BODY_MAX_BYTES} bytes")
            return
        await _until_over(scope, body, receive, send, handle)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is not taken, or None; sets whose tools are meant."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if headers.get("host") != [self._host]:
            return 403, f"Host must be {self._host}"
        if "origin" in headers:
            return 403, "web pages are not served: a request with an Origin is refused"
        path, _, server = scope["path"].removeprefix("/").partition("/")
        session = self._sessions.get(path)
        given = headers.get("authorization", [])
        wanted = f"Bearer {session.token if session is not None else secrets.token_urlsafe(32)}"
        if len(given) != 1 or not hmac.compare_digest(given[0].encode("latin-1"), wanted.encode("ascii")):
            return UNAUTHORISED
        assert session is not None
        if not session.of_server(server):
            return 404, "no plugin's tools are served here"
        scope[SESSION], scope[SERVER] = session, server
        return None

    def _mcp_server(self) -> Any:
        from mcp import types
        from mcp.server.lowlevel import Server

        def served(context: Any) -> tuple[ServedSession, str]:
            scope = context.request.scope
            return scope[SESSION], scope[SERVER]

        async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
            session, server = served(context)
            return types.ListToolsResult(tools=[_listed(own, tool) for own, tool in session.of_server(server)])

        async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            session, server = served(context)
            names = {own: tool.name for own, tool in session.of_server(server)}
            if params.name not in names:
                known = ", ".join(names)
                said = ToolResult((Text(f"there is no tool '{params.name}' here; the tools are: {known}"),), True)
                return _written(said)
            call_id = f"gateway-{next(self._calls)}"
            return _written(await session.call(call_id, names[params.name], params.arguments or {}))

        return Server("buzz", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


def _import() -> None:
    for name in ("mcp.server.lowlevel", "mcp.server.streamable_http_manager", "uvicorn.protocols.http.h11_impl"):
        import_module(name)


def _listed(name: str, tool: Tool) -> Any:
    from mcp import types

    said = tool.annotations
    return types.Tool(
        name=name,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        annotations=types.ToolAnnotations(
            read_only_hint=said.read_only,
            destructive_hint=said.destructive,
            idempotent_hint=said.idempotent,
            open_world_hint=said.open_world,
        ),
    )


def _written(result: ToolResult) -> CallToolResult:
    from mcp import types

    content: list[Any] = []
    for each in result.content:
        match each:
            case Text(text):
                content.append(types.TextContent(text=text))
            case Image(octets, media_type):
                content.append(types.ImageContent(data=base64.b64encode(octets).decode("ascii"), mime_type=media_type))
            case Resource(uri, text):
                content.append(types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text)))
    return types.CallToolResult(content=content, is_error=result.is_error)


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body; None where it is too large. Raises `TimeoutError` where it does not come."""
    body = bytearray()
    async with asyncio.timeout(BODY_DEADLINE_S):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise TimeoutError
            body += message.get("body", b"")
            if len(body) > BODY_MAX_BYTES:
                return None
            if not message.get("more_body", False):
                return bytes(body)


async def _until_over(scope: Scope, body: bytes, receive: Receive, send: Send, handle: Any) -> None:
    """Handle the request; a client that leaves ends the call that it made, and so does the end of its session."""
    session: ServedSession = scope[SESSION]
    begun = False

    async def told(message: MutableMapping[str, Any]) -> None:
        nonlocal begun
        begun = True
        await send(message)

    given: Iterator[MutableMapping[str, Any]] = iter([{"type": "http.request", "body": body, "more_body": False}])
    gone = asyncio.ensure_future(receive())

    async def replayed() -> MutableMapping[str, Any]:
        first = next(given, None)
        return first if first is not None else await asyncio.shield(gone)

    handling = asyncio.ensure_future(handle(scope, replayed, told))
    over = asyncio.ensure_future(session.over.wait())
    try:
        await asyncio.wait({handling, gone, over}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not handling.done():
            handling.cancel()
        gone.cancel()
        over.cancel()
        await asyncio.wait({handling})
    if session.over.is_set() and not begun:
        await _refuse(send, *UNAUTHORISED)
    if not handling.cancelled() and (error := handling.exception()) is not None:
        raise error


async def _refuse(send: Send, status: int, why: str) -> None:
    body = f'{{"error": "{why}"}}'.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


__all__ = ["Gateway", "GatewayUnavailable"]
