"""A small client that asks a rehearsal server as a harness does, so that tests can say what came back.

It goes by the protocol's public description and shares nothing with the server's code.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import attrs

REPLY_DEADLINE_S = 20.0
REQUESTS_PER_TURN_MAX = 20


@attrs.frozen
class Reply:
    """What one request got: a status, a message (or error) object, or nothing because the connection broke."""

    status: int
    message: dict[str, Any] | None
    dropped: bool = False

    @property
    def text(self) -> str:
        assert self.message is not None
        return "".join(block["text"] for block in self.message["content"] if block["type"] == "text")

    @property
    def error(self) -> dict[str, str]:
        assert self.message is not None
        return self.message["error"]


def user(text: str) -> list[dict[str, Any]]:
    """A conversation of one message."""
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


def ask(url: str, messages: Sequence[dict[str, Any]], *, stream: bool = True, **more: object) -> Reply:
    """Sends one request for an answer and reads it to its end."""
    body = {"model": "model-of-the-test", "max_tokens": 100, "stream": stream, "messages": messages, **more}
    return post(url, "/v1/messages?beta=true", json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def post(url: str, path: str, octets: bytes, *, method: str = "POST") -> Reply:
    """Sends these bytes; a stream that lacks its end counts as dropped."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=REPLY_DEADLINE_S)
    status = 0
    try:
        connection.request(method, path, octets, {"content-type": "application/json", "x-api-key": "sk-of-the-test"})
        response = connection.getresponse()
        status = response.status
        received = response.read()
    except (http.client.HTTPException, OSError) as error:
        if isinstance(error, TimeoutError):
            raise
        return Reply(status, None, dropped=True)
    finally:
        connection.close()
    if response.headers.get_content_type() == "text/event-stream":
        return Reply(status, assembled(received))
    return Reply(status, json.loads(received) if received else None)


def assembled(stream: bytes) -> dict[str, Any]:
    """The message that a stream of events makes, checking the order of the events on the way."""
    message: dict[str, Any] = {}
    partial = ""
    open_block: int | None = None
    ended = False
    for frame in stream.decode("utf-8").removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert not ended
        match event["type"]:
            case "message_start":
                assert not message
                message = event["message"]
            case "content_block_start":
                assert open_block is None
                open_block = event["index"]
                assert open_block == len(message["content"])
                message["content"].append(event["content_block"])
                partial = ""
            case "content_block_delta" if event["delta"]["type"] == "text_delta":
                assert event["index"] == open_block
                message["content"][-1]["text"] += event["delta"]["text"]
            case "content_block_delta":
                assert event["delta"]["type"] == "input_json_delta"
                partial += event["delta"]["partial_json"]
            case "content_block_stop":
                assert event["index"] == open_block
                if message["content"][-1]["type"] == "tool_use":
                    message["content"][-1]["input"] = json.loads(partial)
                open_block = None
            case "message_delta":
                message.update(event["delta"])
                message["usage"].update(event["usage"])
            case "message_stop":
                ended = True
            case other:
                raise AssertionError(f"an event that the protocol does not have: {other}")
    assert ended
    return message


def trace(url: str, text: str, *, session: str = "one", stream: bool = True) -> list[str]:
    """Plays a turn as a harness would, tool calls and retries included; a line for each thing that came back."""
    lines: list[str] = []
    messages = user(text)
    results = 0
    for _ in range(REQUESTS_PER_TURN_MAX):
        reply = ask(url, messages, stream=stream, metadata={"user_id": session})
        if reply.dropped:
            lines.append("dropped")
            continue
        if reply.status != 200:
            scripted = "the script asked for status" in reply.error["message"]
            lines.append(f"status: {reply.status}" + ("" if scripted else f" {reply.error['message']}"))
            if scripted:
                continue
            return lines
        assert reply.message is not None
        calls = []
        for block in reply.message["content"]:
            if block["type"] == "text":
                lines.append(f"text: {block['text']}")
            else:
                calls.append(block)
                lines.append(f"call: {block['name']} {json.dumps(block['input'])}")
        if not calls:
            assert reply.message["stop_reason"] == "end_turn"
            return lines
        assert reply.message["stop_reason"] == "tool_use"
        returned = []
        for call in calls:
            results += 1
            returned.append({"type": "tool_result", "tool_use_id": call["id"], "content": f"result {results}"})
        messages = [*messages, {"role": "assistant", "content": reply.message["content"]}]
        messages = [*messages, {"role": "user", "content": returned}]
    raise AssertionError(f"the turn did not end: {lines}")


def until(condition: Callable[[], object]) -> None:
    """Waits until something holds; fails where it never does."""
    deadline = time.monotonic() + REPLY_DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.005)


def exchange(url: str, octets: bytes, *, half_close: bool = False) -> bytes:
    """Sends raw bytes on a fresh connection and returns all that comes back until the server closes."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=REPLY_DEADLINE_S) as connection:
        connection.sendall(octets)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while octets := connection.recv(64 * 1024):
            received += octets
    return received
