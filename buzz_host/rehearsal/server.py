"""The HTTP side: bounds, exact Host, one record line before each answer, and the answer as bytes.

Loopback only, no CORS, nothing that a web page could use: a request with an `Origin`, or with another `Host` than
our own address, is refused before its body is read. Faults of the script (a drop, a hang) are real faults of the
socket.
"""

from __future__ import annotations

import contextlib
import json
import math
import select
import socket
import threading
import time
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NoReturn

from buzz_host.rehearsal import anthropic, chat, responses
from buzz_host.rehearsal.engine import Engine, Plan
from buzz_host.rehearsal.neutral import Asked, Dialect, NotUnderstood, Piece
from buzz_host.rehearsal.record import Record

DIALECTS: tuple[Dialect, ...] = (anthropic, responses, chat)
BODY_MAX_BYTES = 64 * 1024 * 1024
CONNECTIONS_MAX = 128
HEAD_MAX_S = 10.0  # until a connection has brought its first request
IDLE_MAX_S = 600.0  # of a kept connection: longer than programs keep theirs, so that we never race them
PLACE_WAIT_S = 1.0  # for the place of a connection that was closed for a new one
SESSION_HEADERS = ("agent-session-id", "session-id")  # goose, Codex
LINGER_S = 2.0  # how long a refused client may go on sending, so that it can read why
CHUNK_LINE_MAX_BYTES = 1024


def dialect_at(path: str) -> Dialect | None:
    """The protocol that is spoken at a path (query included), or below it; None where none is."""
    place = path.partition("?")[0]
    for dialect in DIALECTS:
        if any(place == spoken or place.startswith(f"{spoken}/") for spoken in dialect.ANSWER_PATHS):
            return dialect
    return None


class Refused(Exception):
    """A request that is not taken: the status, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class ClientGone(Exception):
    """The client closed its connection before it had its answer."""


class RehearsalServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1, on a port that the system chooses."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, record: Record, engine: Engine) -> None:
        self.record = record
        self.engine = engine
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._idle: dict[socket.socket, None] = {}  # those that owe us a request, longest first
        self._idle_lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), RequestHandler)
        self.hosts = frozenset(f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost"))

    def server_bind(self) -> None:
        """As `TCPServer` does; `HTTPServer` would look its own name up, which can take seconds."""
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.server_address = self.socket.getsockname()

    def process_request(self, request: object, client_address: object) -> None:
        """A thread a connection. For one too many, the one that has owed a request for longest is closed."""
        assert isinstance(request, socket.socket)
        if not self._places.acquire(blocking=False) and not (
            self._close_idle() and self._places.acquire(timeout=PLACE_WAIT_S)
        ):
            self.shutdown_request(request)
            return
        self.owes(request)
        super().process_request(request, client_address)

    def owes(self, connection: socket.socket) -> None:
        """`connection` has brought no whole request yet, or none since its last answer."""
        with self._idle_lock:
            self._idle.pop(connection, None)
            self._idle[connection] = None

    def owes_nothing(self, connection: socket.socket) -> None:
        """`connection` has brought its request, or is closed."""
        with self._idle_lock:
            self._idle.pop(connection, None)

    def _close_idle(self) -> bool:
        with self._idle_lock:
            longest = next(iter(self._idle), None)
            if longest is None:
                return False
            del self._idle[longest]
            # Under the lock: its thread closes it only after it has taken it out of here.
            with contextlib.suppress(OSError):
                longest.shutdown(socket.SHUT_RDWR)
        return True

    def process_request_thread(self, request: object, client_address: object) -> None:
        """Gives the place back, whatever happened."""
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._places.release()

    def shutdown_request(self, request: object) -> None:
        """As the base class does; a closed connection owes nothing."""
        assert isinstance(request, socket.socket)
        self.owes_nothing(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """What a handler let escape is an ended connection; there is nobody on this process's stderr."""


class RequestHandler(BaseHTTPRequestHandler):
    """One connection."""

    server: RehearsalServer
    connection: socket.socket
    headers: HTTPMessage
    protocol_version = "HTTP/1.1"
    server_version = "buzz-rehearsal"
    sys_version = ""
    timeout = HEAD_MAX_S
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What `http.server` itself cannot read (a bad request line, an unknown method): refused in our form."""
        self._refuse(Refused(int(code), message or explain or "the request could not be read"))

    def handle_expect_100(self) -> bool:
        """Says `100 Continue` only to a request that will be taken."""
        try:
            self._check()
        except Refused as refused:
            self._refuse(refused)
            return False
        return super().handle_expect_100()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the standard library
        """Nothing on stderr: the record has it."""

    def _serve(self) -> None:
        try:
            self._check()
            octets = self._body()
        except Refused as refused:
            self._refuse(refused)
            return
        self.server.owes_nothing(self.connection)
        self.connection.settimeout(IDLE_MAX_S)
        try:
            self._record_and_answer(octets)
        finally:
            self.server.owes(self.connection)

    def _record_and_answer(self, octets: bytes) -> None:
        try:
            body, fault = json.loads(octets, parse_constant=_no_number) if octets else None, None
        except (ValueError, RecursionError) as error:
            body, fault = None, f"the body is not valid JSON: {error}"
        try:
            n = self.server.record.request(self.command, self.path, self.headers.items(), octets, body)
        except OSError as error:
            self._refuse(Refused(500, f"the request could not be recorded: {error.strerror}"), record=False)
            return
        started = time.monotonic()
        try:
            outcome = self._answer(body, fault)
        except (ClientGone, OSError):
            self.close_connection = True
            outcome = {"event": "disconnected"}
        self._note(n, **outcome, seconds=round(time.monotonic() - started, 3))

    def _answer(self, body: object, fault: str | None) -> dict[str, object]:
        """Answers a recorded request; returns what became of it."""
        path = self.path.partition("?")[0]
        dialect = next((d for d in DIALECTS if path in d.ANSWER_PATHS and self.command == "POST"), None)
        spoken = dialect_at(path) or DIALECTS[0]
        try:
            if dialect is None:
                return self._send(*self._side(path, body))
            if fault is not None:
                raise NotUnderstood(fault)
            asked = dialect.understand(body)
            named = (self.headers.get(name) for name in SESSION_HEADERS)
            asked = asked._replace(session=next(filter(None, named), asked.session))
            plan = self.server.engine.plan(asked)
        except NotUnderstood as error:
            return self._send(400, spoken.failure(400, f"rehearsal: {error}"))
        except RecursionError:
            return self._send(400, spoken.failure(400, "rehearsal: the body is nested too deeply"))
        except OSError:
            raise
        except Exception as error:  # a fault of ours must not look like a dropped stream of the script's
            told = f"rehearsal: a fault of the rehearsal server itself: {type(error).__name__}: {error}"
            return self._send(500, spoken.failure(500, told))
        return self._carry_out(dialect, asked, plan)

    def _side(self, path: str, body: object) -> tuple[int, object]:
        if path == "/" and self.command in ("GET", "HEAD"):  # some programs look whether the server is there
            return 200, {"rehearsal": "no model is behind this server"}
        for dialect in DIALECTS:
            answer = dialect.other(self.command, path, body)
            if answer is not None:
                return 200, answer
        spoken = ", ".join(sorted(path for dialect in DIALECTS for path in dialect.ANSWER_PATHS))
        message = f"rehearsal: {self.command} {path} is not spoken here; POST {spoken} is"
        return 404, (dialect_at(path) or DIALECTS[0]).failure(404, message)

    def _carry_out(self, dialect: Dialect, asked: Asked, plan: Plan) -> dict[str, object]:
        self._pause(plan.wait_s)
        if plan.fault == "hang":
            self._pause(math.inf)
        if plan.answer is None:
            return self._send(plan.status, dialect.failure(plan.status, plan.message))
        drop = plan.fault == "drop"
        if asked.stream:
            self._stream(list(dialect.pieces(plan.answer)), plan.pace_s, drop)
        elif drop:
            octets = json.dumps(dialect.whole(plan.answer)).encode("ascii")
            self._head(200, "application/json", [("Content-Length", str(len(octets)))])
            self.wfile.write(octets[: len(octets) // 2])
        else:
            return self._send(200, dialect.whole(plan.answer))
        if not drop:
            return {"event": "answered", "status": 200}
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
        return {"event": "dropped", "status": 200}

    def _stream(self, pieces: list[Piece], pace_s: float, drop: bool) -> None:
        """Sends an answer piece by piece; of one that is dropped only the first half."""
        self._head(200, "text/event-stream", [("Cache-Control", "no-cache"), ("Transfer-Encoding", "chunked")])
        if drop:
            pieces = pieces[: len(pieces) // 2]
        paced = False
        for piece in pieces:
            if piece.is_delta:
                self._pause(pace_s if paced else 0)
                paced = True
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece.octets), piece.octets))
        if not drop:
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, status: int, answer: object) -> dict[str, object]:
        octets = json.dumps(answer).encode("ascii")
        self._head(status, "application/json", [("Content-Length", str(len(octets)))])
        if self.command != "HEAD":
            self.wfile.write(octets)
        return {"event": "answered", "status": status}

    def _head(self, status: int, kind: str, more: list[tuple[str, str]]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in more:
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _refuse(self, refused: Refused, *, record: bool = True) -> None:
        """Says why, and closes: what else stands on this connection cannot be told apart from the body."""
        self.close_connection = True
        if record:
            method, path = getattr(self, "command", None), getattr(self, "path", None)
            self._note(None, event="refused", method=method, path=path, status=refused.status, reason=refused.reason)
        spoken = dialect_at(getattr(self, "path", "")) or DIALECTS[0]
        octets = json.dumps(spoken.failure(refused.status, f"rehearsal: {refused.reason}")).encode("ascii")
        try:
            if getattr(self, "request_version", "HTTP/0.9") != "HTTP/0.9":
                self._head(refused.status, "application/json", [("Content-Length", str(len(octets)))])
            self.wfile.write(octets)
            self.connection.shutdown(socket.SHUT_WR)
            self._linger()
        except OSError:
            return

    def _linger(self) -> None:
        """Reads on for a moment: closing with unread bytes would reset the connection under our answer."""
        deadline = time.monotonic() + LINGER_S
        while (left := deadline - time.monotonic()) > 0:
            self.connection.settimeout(left)
            if not self.connection.recv(64 * 1024):
                return

    def _note(self, n: int | None, *, event: object, **fields: object) -> None:
        try:
            self.server.record.event(str(event), n, **fields)
        except OSError:
            self.close_connection = True  # the request itself is recorded; what became of it is a courtesy

    def _check(self) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].strip().lower() not in self.server.hosts:
            raise Refused(403, f"Host must be 127.0.0.1:{self.server.server_port}")
        if "Origin" in self.headers:
            raise Refused(403, "web pages are not served: a request with an Origin is refused")
        if self.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise Refused(415, "compressed bodies are not read; send it plain")

    def _body(self) -> bytes:
        lengths = self.headers.get_all("Content-Length") or []
        if "Transfer-Encoding" in self.headers:
            if lengths or self.headers.get_all("Transfer-Encoding") != ["chunked"]:
                raise Refused(400, "Transfer-Encoding must be chunked, without a Content-Length")
            return self._chunks()
        if not lengths:
            return b""
        written = lengths[0].strip()
        if len(lengths) != 1 or not (written.isascii() and written.isdecimal()):
            raise Refused(400, "Content-Length must be one number")
        if len(written) > 12 or int(written) > BODY_MAX_BYTES:
            raise Refused(413, f"the body is larger than {BODY_MAX_BYTES} bytes")
        return self._read(int(written))

    def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            line = self._line()
            size = line.partition(b";")[0].strip()
            if not size or len(size) > 8 or not all(octet in b"0123456789abcdefABCDEF" for octet in size):
                raise Refused(400, "malformed chunk: its size is not a number")
            length = int(size, 16)
            if len(body) + length > BODY_MAX_BYTES:
                raise Refused(413, f"the body is larger than {BODY_MAX_BYTES} bytes")
            if length == 0:
                break
            body += self._read(length)
            if self._read(2) != b"\r\n":
                raise Refused(400, "malformed chunk: it is not followed by CR LF")
        for _ in range(100):
            if self._line() == b"":
                return bytes(body)
        raise Refused(400, "malformed chunk: too many trailers")

    def _line(self) -> bytes:
        line = self._received(self.rfile.readline, CHUNK_LINE_MAX_BYTES)
        if not line.endswith(b"\r\n"):
            raise Refused(400, "malformed chunk: a line is too long or cut off")
        return line[:-2]

    def _read(self, length: int) -> bytes:
        octets = self._received(self.rfile.read, length)
        if len(octets) != length:
            raise Refused(400, "the connection ended inside the body")
        return octets

    def _received(self, read: object, length: int) -> bytes:
        assert callable(read)
        try:
            octets = read(length)
        except OSError:
            raise Refused(400, "the connection ended inside the body") from None
        assert isinstance(octets, bytes)
        return octets

    def _pause(self, seconds: float) -> None:
        """Waits; raises `ClientGone` as soon as the client closes its end."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.connection, getattr(select, "POLLRDHUP", select.POLLIN))
        while (left := deadline - time.monotonic()) > 0:
            if not poll.poll(min(left, 60.0) * 1000):
                continue
            if self._closed_by_client():
                raise ClientGone
            time.sleep(min(left, 0.05))  # where a closed end cannot be told from a request that is early

    def _closed_by_client(self) -> bool:
        if hasattr(select, "POLLRDHUP"):
            return True
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
