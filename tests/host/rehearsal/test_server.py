"""The real server, asked over real sockets: what it answers, what it refuses, what it writes down first."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import resource
import socket
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from buzz_host.rehearsal import Rehearsal, RehearsalError, read_record
from buzz_host.rehearsal.server import BODY_MAX_BYTES, CONNECTIONS_MAX, HEAD_MAX_S
from tests.host.rehearsal.asking import ask, exchange, post, trace, user

pytestmark = [pytest.mark.anyio, pytest.mark.req("HAR-05")]

EVENT_DEADLINE_S = 10.0


def lines_of(rehearsal: Rehearsal) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rehearsal.record_path.read_bytes().split(b"\n") if line]


def event_of(rehearsal: Rehearsal, event: str) -> dict[str, Any]:
    """Waits for the first line that tells of this event."""
    deadline = time.monotonic() + EVENT_DEADLINE_S
    while time.monotonic() < deadline:
        for line in lines_of(rehearsal):
            if line.get("event") == event:
                return line
        time.sleep(0.01)
    raise AssertionError(f"no {event} within {EVENT_DEADLINE_S} s: {lines_of(rehearsal)}")


def head(
    rehearsal: Rehearsal, *headers: str, line: str = "POST /v1/messages HTTP/1.1", host: str | None = None
) -> bytes:
    place = urlsplit(rehearsal.url).netloc if host is None else host
    return "\r\n".join([line, f"Host: {place}", *headers, "", ""]).encode("latin-1")


async def test_a_request_is_written_down_exactly_before_it_is_answered(rehearsal: Rehearsal) -> None:
    written = "é\u2028\u2029\x85 ＜ 😀 \x7f " + "x" * 100_000
    body = json.dumps({"model": "m", "messages": user(written)}, ensure_ascii=False, indent=1).encode()
    reply = await asyncio.to_thread(post, rehearsal.url, "/v1/messages?beta=true", body)
    assert reply.status == 200
    (request,) = rehearsal.requests()
    assert (request.n, request.method, request.path) == (1, "POST", "/v1/messages?beta=true")
    assert request.raw == body
    assert request.body == json.loads(body)
    assert request.newest_user_text == written
    line = lines_of(rehearsal)[0]
    assert list(line) == ["v", "run", "at", "n", "method", "path", "headers", "raw", "sha256", "body"]
    assert line["sha256"] == hashlib.sha256(body).hexdigest()
    assert rehearsal.record_path.read_bytes().isascii()
    assert stat.S_IMODE(rehearsal.record_path.stat().st_mode) == 0o600
    answered = await asyncio.to_thread(event_of, rehearsal, "answered")
    assert (answered["n"], answered["status"]) == (1, 200)


async def test_credentials_are_not_written_down(rehearsal: Rehearsal) -> None:
    secret = [f"{name}: sk-secret" for name in ("X-Api-Key", "AUTHORIZATION", "cookie", "X-Session-Token", "a-secret")]
    octets = head(rehearsal, *secret, "X-Kept: one", "X-Kept: two", "Content-Length: 2", "Connection: close") + b"{}"
    assert b"400" in await asyncio.to_thread(exchange, rehearsal.url, octets)
    assert b"sk-secret" not in rehearsal.record_path.read_bytes()
    headers = lines_of(rehearsal)[0]["headers"]
    assert headers["X-Api-Key"] == headers["AUTHORIZATION"] == headers["a-secret"] == "[redacted]"
    assert headers["X-Kept"] == "one, two"


async def test_a_body_that_is_not_utf8_is_kept_to_the_byte(rehearsal: Rehearsal) -> None:
    reply = await asyncio.to_thread(post, rehearsal.url, "/v1/messages", b"\xff\xfe\x00")
    assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
    line = lines_of(rehearsal)[0]
    assert "raw" not in line
    assert base64.b64decode(line["raw_base64"]) == b"\xff\xfe\x00"
    assert rehearsal.requests()[0].raw == b"\xff\xfe\x00"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "rehearsal: the body is not valid JSON: "),
        (b'{"model": NaN}', "rehearsal: the body is not valid JSON: NaN is not a JSON number"),
        (b"[" * 200_000, "rehearsal: the body is not valid JSON: "),
        (b"1" * 20_000, "rehearsal: the body is not valid JSON: "),
        (b"", "rehearsal: the body must be a JSON object"),
        (b"[]", "rehearsal: the body must be a JSON object"),
    ],
)
async def test_a_bad_body_is_recorded_and_answered_with_an_error(rehearsal: Rehearsal, body: bytes, told: str) -> None:
    reply = await asyncio.to_thread(post, rehearsal.url, "/v1/messages", body)
    assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
    assert reply.error["message"].startswith(told)
    assert rehearsal.requests()[0].raw == body


async def test_a_deeply_nested_body_harms_nothing(rehearsal: Rehearsal) -> None:
    for depth in (500, 900, 990, 5_000, 50_000):
        nested = b'{"model":"m","messages":[{"role":"user","content":"x"}],"metadata":%b%b}'
        body = nested % (b'{"a":' * depth + b"1", b"}" * depth)
        reply = await asyncio.to_thread(post, rehearsal.url, "/v1/messages", body)
        assert reply.status in (200, 400)
    assert len(rehearsal.requests()) == 5


@pytest.mark.parametrize(
    "host", ["example.com", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.example.com:{port}", "", "[::1]:{port}"]
)
async def test_another_host_is_refused_before_its_body_is_read(rehearsal: Rehearsal, host: str) -> None:
    octets = head(rehearsal, "Content-Length: 1000000", host=host.format(port=urlsplit(rehearsal.url).port))
    received = await asyncio.to_thread(exchange, rehearsal.url, octets, half_close=True)
    assert received.startswith(b"HTTP/1.1 403 ")
    assert b"Host must be 127.0.0.1:" in received
    refused = event_of(rehearsal, "refused")
    assert (refused["n"], refused["status"], refused["path"]) == (None, 403, "/v1/messages")
    assert rehearsal.requests() == []


async def test_localhost_is_our_name_too(rehearsal: Rehearsal) -> None:
    octets = head(
        rehearsal, "Connection: close", line="GET / HTTP/1.1", host=f"LocalHost:{urlsplit(rehearsal.url).port}"
    )
    assert b"no model is behind" in await asyncio.to_thread(exchange, rehearsal.url, octets)


@pytest.mark.parametrize(
    ("headers", "body", "status", "told"),
    [
        (["Origin: http://127.0.0.1"], b"", 403, "web pages are not served"),
        (["Host: example.com"], b"", 403, "Host must be"),
        (["Content-Encoding: gzip"], b"", 415, "compressed bodies are not read"),
        ([f"Content-Length: {BODY_MAX_BYTES + 1}"], b"{", 413, f"the body is larger than {BODY_MAX_BYTES} bytes"),
        (["Content-Length: " + "9" * 5000], b"{", 413, f"the body is larger than {BODY_MAX_BYTES} bytes"),
        (["Content-Length: -1"], b"", 400, "Content-Length must be one number"),
        (["Content-Length: 2", "Content-Length: 3"], b"{}", 400, "Content-Length must be one number"),
        (["Content-Length: 10"], b"{}", 400, "the connection ended inside the body"),
        (["Transfer-Encoding: gzip"], b"", 400, "Transfer-Encoding must be chunked, without a Content-Length"),
        (["Transfer-Encoding: chunked", "Content-Length: 2"], b"{}", 400, "without a Content-Length"),
        (["Transfer-Encoding: chunked"], b"zz\r\n", 400, "malformed chunk: its size is not a number"),
        (["Transfer-Encoding: chunked"], b"-1\r\n", 400, "malformed chunk: its size is not a number"),
        (["Transfer-Encoding: chunked"], b"2\r\n{}XX0\r\n\r\n", 400, "malformed chunk: it is not followed by CR LF"),
        (["Transfer-Encoding: chunked"], b"2\r\n{", 400, "the connection ended inside the body"),
        (["Transfer-Encoding: chunked"], b"2;" + b"x" * 5000, 400, "malformed chunk: a line is too long or cut off"),
        (["Transfer-Encoding: chunked"], b"7fffffff\r\n", 413, f"the body is larger than {BODY_MAX_BYTES} bytes"),
        (["Transfer-Encoding: chunked"], b"0\r\n" + b"A: b\r\n" * 200, 400, "malformed chunk: too many trailers"),
    ],
)
async def test_a_request_that_is_not_taken_is_told_why(
    rehearsal: Rehearsal, headers: list[str], body: bytes, status: int, told: str
) -> None:
    received = await asyncio.to_thread(exchange, rehearsal.url, head(rehearsal, *headers) + body, half_close=True)
    first, _, rest = received.partition(b"\r\n\r\n")
    assert first.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"access-control" not in first.lower()
    assert json.loads(rest)["type"] == "error"
    assert told in json.loads(rest)["error"]["message"]
    assert told in event_of(rehearsal, "refused")["reason"]
    assert rehearsal.requests() == []


@pytest.mark.parametrize(
    "octets", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", b"A" * 70_000 + b"\r\n", b"OPTIONS / HTTP/1.1\r\n\r\n"]
)
async def test_what_is_no_request_of_ours_is_refused_and_the_server_lives_on(
    rehearsal: Rehearsal, octets: bytes
) -> None:
    received = await asyncio.to_thread(exchange, rehearsal.url, octets)
    assert b'"type": "error"' in received
    event_of(rehearsal, "refused")
    assert (await asyncio.to_thread(ask, rehearsal.url, user("hello"))).status == 200


async def test_a_chunked_body_is_read_like_any_other(rehearsal: Rehearsal) -> None:
    body = json.dumps({"model": "m", "messages": user("in chunks")}).encode()
    chunked = b"".join(b"%X;x=y\r\n%b\r\n" % (len(part), part) for part in (body[:5], body[5:])) + b"0\r\nA: b\r\n\r\n"
    octets = head(rehearsal, "Transfer-Encoding: chunked", "Connection: close") + chunked
    assert b"HTTP/1.1 200 OK" in await asyncio.to_thread(exchange, rehearsal.url, octets)
    assert rehearsal.requests()[0].raw == body


async def test_a_body_that_is_promised_with_expect_is_asked_for_or_refused(rehearsal: Rehearsal) -> None:
    fine = head(rehearsal, "Expect: 100-continue", "Content-Length: 2", "Connection: close") + b"{}"
    assert (await asyncio.to_thread(exchange, rehearsal.url, fine)).startswith(b"HTTP/1.1 100 Continue\r\n")
    wrong = head(rehearsal, "Expect: 100-continue", "Content-Length: 2", host="example.com")
    assert (await asyncio.to_thread(exchange, rehearsal.url, wrong)).startswith(b"HTTP/1.1 403 ")


async def test_a_body_of_the_largest_size_is_recorded_whole(rehearsal: Rehearsal) -> None:
    frame = json.dumps({"model": "m", "messages": user("")}).encode()
    body = frame.replace(b'"text": ""', b'"text": "' + b"x" * (BODY_MAX_BYTES - len(frame)) + b'"')
    assert len(body) == BODY_MAX_BYTES
    assert (await asyncio.to_thread(post, rehearsal.url, "/v1/messages", body)).status == 200
    (request,) = rehearsal.requests()
    assert request.raw == body


async def test_side_requests_have_their_answers(rehearsal: Rehearsal) -> None:
    body = json.dumps({"model": "m", "messages": user("x" * 4000)}).encode()
    counted = await asyncio.to_thread(post, rehearsal.url, "/v1/messages/count_tokens?beta=true", body)
    assert counted.message is not None
    assert 1000 <= counted.message["input_tokens"] <= 1100
    assert (await asyncio.to_thread(post, rehearsal.url, "/v1/messages/count_tokens", b"{}")).status == 400
    assert (await asyncio.to_thread(post, rehearsal.url, "/", b"", method="HEAD")).status == 200
    unknown = await asyncio.to_thread(post, rehearsal.url, "/v1/files", b"", method="GET")
    assert (unknown.status, unknown.error["type"]) == (404, "not_found_error")
    assert "GET /v1/files is not spoken here; POST " in unknown.error["message"]
    assert all(path in unknown.error["message"] for path in ("/v1/messages", "/v1/responses", "/v1/chat/completions"))
    assert len(rehearsal.requests()) == 4


async def test_twenty_at_once_are_each_recorded_once_and_never_interleave(rehearsal: Rehearsal) -> None:
    texts = [f"request {number} " + "é\u2028" * 20_000 for number in range(20)]
    with ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(lambda text: ask(rehearsal.url, user("rehearse: echo\n" + text)), texts))
    assert [reply.text for reply in replies] == ["rehearse: echo\n" + text for text in texts]
    requests = rehearsal.requests()
    assert [request.n for request in requests] == list(range(1, 21))
    assert sorted(request.newest_user_text for request in requests) == sorted(
        "rehearse: echo\n" + text for text in texts
    )


async def test_two_servers_may_share_a_record_and_each_tells_its_own(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    async with Rehearsal.start(record=record) as one, Rehearsal.start(record=record) as two:
        urls = [one.url, two.url] * 10
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda url: ask(url, user(url + " " + "x" * 50_000)), urls))
        assert {request.newest_user_text.partition(" ")[0] for request in one.requests()} == {one.url}
        assert len(one.requests()) == len(two.requests()) == 10
    assert len(read_record(record)) == 20


async def test_a_fault_is_counted_for_each_turn_of_each_session(rehearsal: Rehearsal) -> None:
    text = "rehearse: fail 500 1 time\nrehearse: say ok"
    for session in ("one", "two"):
        assert await asyncio.to_thread(trace, rehearsal.url, text, session=session) == ["status: 500", "text: ok"]
    again = [*user(text), {"role": "assistant", "content": "ok"}, *user(text)]
    assert (await asyncio.to_thread(ask, rehearsal.url, again)).status == 500
    assert (await asyncio.to_thread(ask, rehearsal.url, again)).status == 200


async def test_a_dropped_answer_breaks_the_connection_in_both_forms(rehearsal: Rehearsal) -> None:
    for stream in (True, False):
        assert (await asyncio.to_thread(ask, rehearsal.url, user("rehearse: drop"), stream=stream)).dropped
    assert event_of(rehearsal, "dropped")["n"] == 1


async def test_a_hang_ends_when_the_program_gives_up(rehearsal: Rehearsal) -> None:
    body = json.dumps({"model": "m", "messages": user("rehearse: hang")}).encode()
    place = urlsplit(rehearsal.url)
    with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
        connection.sendall(head(rehearsal, f"Content-Length: {len(body)}") + body)
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    assert (await asyncio.to_thread(event_of, rehearsal, "disconnected"))["n"] == 1


async def test_a_slow_answer_is_slow_before_and_between_its_parts(rehearsal: Rehearsal) -> None:
    started = time.monotonic()
    reply = await asyncio.to_thread(
        ask, rehearsal.url, user(f"rehearse: wait 0.3\nrehearse: pace 0.1\nrehearse: say {'x' * 48}")
    )
    assert reply.text == "x" * 48
    assert time.monotonic() - started >= 0.5


async def test_calls_that_are_not_of_this_script_do_not_start_it_again(rehearsal: Rehearsal) -> None:
    messages = [
        *user("rehearse: call again"),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_other", "name": "t", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_other", "is_error": True}]},
    ]
    reply = await asyncio.to_thread(ask, rehearsal.url, messages)
    assert reply.text == "rehearsal: t failed: "


async def test_a_lone_surrogate_comes_back_as_it_was_sent(rehearsal: Rehearsal) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"rehearse: echo \\ud800"}]}'
    refused = await asyncio.to_thread(post, rehearsal.url, "/v1/messages", body)
    assert refused.status == 400
    body = body.replace(b"echo ", b"echo\\n")
    reply = await asyncio.to_thread(post, rehearsal.url, "/v1/messages", body)
    assert reply.text == "rehearse: echo\n\ud800"
    assert rehearsal.requests()[1].newest_user_text == "rehearse: echo\n\ud800"


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of another process is set through prlimit")
async def test_what_cannot_be_recorded_is_not_answered(tmp_path: Path) -> None:
    async with Rehearsal.start(record=tmp_path / "record.jsonl") as rehearsal:
        assert (await asyncio.to_thread(ask, rehearsal.url, user("fits"))).status == 200
        event_of(rehearsal, "answered")
        full = rehearsal.record_path.stat().st_size + 100
        before = resource.prlimit(rehearsal.pid, resource.RLIMIT_FSIZE, (full, resource.RLIM_INFINITY))
        reply = await asyncio.to_thread(ask, rehearsal.url, user("does not fit"))
        assert (reply.status, reply.error["message"]) == (
            500,
            "rehearsal: the request could not be recorded: File too large",
        )
        resource.prlimit(rehearsal.pid, resource.RLIMIT_FSIZE, before)
        assert (await asyncio.to_thread(ask, rehearsal.url, user("fits again"))).status == 200
        assert [request.newest_user_text for request in rehearsal.requests()] == ["fits", "fits again"]
        assert [request.n for request in rehearsal.requests()] == [1, 2]


async def test_a_record_that_was_changed_is_not_believed(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    async with Rehearsal.start(record=record) as rehearsal:
        await asyncio.to_thread(ask, rehearsal.url, user("as it was sent"))
        event_of(rehearsal, "answered")
        kept = record.read_bytes()
        record.write_bytes(kept.replace(b"as it was sent", b"as it was sEnt", 1))
        with pytest.raises(
            RehearsalError, match=r"record\.jsonl:1: .* the body of request 1 does not match its sha256"
        ):
            rehearsal.requests()
        record.write_bytes(b"half a line\n" + kept)
        with pytest.raises(RehearsalError, match=r"record\.jsonl:1: not a line of a record"):
            rehearsal.requests()
        record.unlink()
        with pytest.raises(
            RehearsalError, match=r"record\.jsonl: the record cannot be read: No such file or directory"
        ):
            rehearsal.requests()


async def test_a_fault_of_the_server_itself_says_so() -> None:
    """The real server in this process, with an engine that breaks: nothing else makes it fail."""
    from buzz_host.rehearsal.engine import Engine
    from buzz_host.rehearsal.record import Record
    from buzz_host.rehearsal.server import RehearsalServer

    class Broken(Engine):
        def plan(self, asked: object) -> Any:
            raise KeyError("broken")

    with RehearsalServer(Record(None, "run"), Broken()) as server:
        serving = asyncio.ensure_future(asyncio.to_thread(server.serve_forever, 0.05))
        reply = await asyncio.to_thread(ask, f"http://127.0.0.1:{server.server_port}", user("hello"))
        server.shutdown()
        await serving
    assert (reply.status, reply.error["type"]) == (500, "api_error")
    assert reply.error["message"] == "rehearsal: a fault of the rehearsal server itself: KeyError: 'broken'"


async def test_connections_that_bring_no_request_keep_nobody_out(rehearsal: Rehearsal) -> None:
    place = urlsplit(rehearsal.url)
    silent = [socket.create_connection((place.hostname, place.port)) for _ in range(2 * CONNECTIONS_MAX)]
    try:
        for number, each in enumerate(silent):
            with contextlib.suppress(OSError):  # one of the first, which was closed for the others
                each.sendall(b"POST /v1/messages HTTP/1.1\r\nHo" if number % 2 else b"")
        begun = time.monotonic()
        for number in range(3):
            reply = await asyncio.to_thread(ask, rehearsal.url, user(f"say {number}"))
            assert reply.status == 200
        assert time.monotonic() - begun < 5
    finally:
        for each in silent:
            each.close()
    assert (await asyncio.to_thread(ask, rehearsal.url, user("after"))).status == 200


async def test_a_connection_that_brings_no_request_is_closed_in_seconds(
    rehearsal: Rehearsal,
) -> None:
    place = urlsplit(rehearsal.url)
    with socket.create_connection((place.hostname, place.port), timeout=2 * HEAD_MAX_S) as silent:
        silent.sendall(b"POST /v1/messages HTTP/1.1\r\nHo")
        begun = time.monotonic()
        assert silent.recv(1) == b""
    assert time.monotonic() - begun < HEAD_MAX_S + 3
