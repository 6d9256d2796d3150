"""JSON-RPC 2.0 as values, without input or output: messages in and out, and who waits for which answer.

For harnesses whose programs speak it over lines (Codex's app-server, goose's ACP). A `Conversation` gives each request
its id, hands an answer to whoever waits for it, and fails all that wait at once when the program is gone.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Final, TypeAlias

import attrs

from buzz_author.errors import BuzzError
from buzz_author.json_values import JsonObject, JsonValue

METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
MessageId: TypeAlias = int | str


@attrs.frozen
class RpcError(BuzzError):
    """The other side refused a request: its code, its words, and what else it told."""

    code: int
    message: str
    details: JsonValue = None

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


@attrs.frozen
class NotRpc(BuzzError):
    """A value that is no message of JSON-RPC."""

    why: str

    def __str__(self) -> str:
        return self.why


@attrs.frozen
class Request:
    """The other side asks, and waits for `Conversation.result` or `Conversation.error` with this id."""

    id: MessageId
    method: str
    params: JsonObject


@attrs.frozen
class Notification:
    """The other side tells; nobody answers."""

    method: str
    params: JsonObject


class Conversation:
    """One side of one connection; used in one event loop."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._waiting: dict[MessageId, asyncio.Future[JsonValue]] = {}
        self._gone: BaseException | None = None

    def request(self, method: str, params: Mapping[str, object]) -> tuple[JsonObject, asyncio.Future[JsonValue]]:
        """The message to send, and the future of its answer; the future raises `RpcError` where it is refused.

        After `gone` the future holds that error from the beginning.
        """
        identifier = next(self._ids)
        answer: asyncio.Future[JsonValue] = asyncio.get_running_loop().create_future()
        # Whoever asked may have been cancelled meanwhile; an answer that nobody wants is no fault of the loop's.
        answer.add_done_callback(_looked_at)
        if self._gone is not None:
            answer.set_exception(self._gone)
        else:
            self._waiting[identifier] = answer
        return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": _json(params)}, answer

    def notification(self, method: str, params: Mapping[str, object] | None = None) -> JsonObject:
        """A message that nobody answers."""
        return {"jsonrpc": "2.0", "method": method, **({"params": _json(params)} if params is not None else {})}

    def result(self, request: MessageId, value: object) -> JsonObject:
        """The answer to a request of the other side."""
        return {"jsonrpc": "2.0", "id": request, "result": _json(value)}

    def error(self, request: MessageId, code: int, message: str) -> JsonObject:
        """The refusal of a request of the other side."""
        return {"jsonrpc": "2.0", "id": request, "error": {"code": code, "message": message}}

    def received(self, value: JsonValue) -> Request | Notification | None:
        """Take one message: what the other side wants, or None where it was an answer, which is handed on.

        The member `jsonrpc` may be missing. Raises `NotRpc` for what is no message.
        """
        if not isinstance(value, Mapping):
            raise NotRpc("expected an object")
        method, identifier = value.get("method"), value.get("id")
        if method is None:
            self._answered(identifier, value)
            return None
        params = value.get("params")
        if not isinstance(method, str):
            raise NotRpc("method: expected a string")
        given = params if isinstance(params, Mapping) else {}
        if identifier is None:
            return Notification(method, given)
        if isinstance(identifier, bool) or not isinstance(identifier, int | str):
            raise NotRpc("id: expected a number or a string")
        return Request(identifier, method, given)

    def gone(self, error: BaseException) -> None:
        """The other side is gone: everybody who waits is told `error` now, and whoever asks later as well."""
        self._gone = error
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(error)

    def _answered(self, identifier: JsonValue, value: JsonObject) -> None:
        answer = self._waiting.pop(identifier, None) if isinstance(identifier, int | str) else None
        if answer is None or answer.done():
            return  # it was cancelled, or is none of ours
        fault = value.get("error")
        if fault is None:
            answer.set_result(value.get("result"))
            return
        said = fault if isinstance(fault, Mapping) else {}
        code, message = said.get("code"), said.get("message")
        answer.set_exception(
            RpcError(code if isinstance(code, int) else INTERNAL_ERROR, str(message or fault), said.get("data"))
        )


def _looked_at(answer: asyncio.Future[JsonValue]) -> None:
    if not answer.cancelled():
        answer.exception()


def _json(value: object) -> JsonValue:
    # What is sent is made by us, of JSON's own types and read-only mappings; `encode_line` refuses all else.
    return value  # type: ignore[return-value]
