"""Which turn the program works on: its notifications become our events, one end for each turn and each steer.

Every message that we send carries our id of it, and comes back with that id when the program has taken it in; so a
steer is folded when it was read, and given back when its turn ended before. Turns of the program have ids of its own:
what belongs to another one than the one that runs is passed over.

No input or output here: messages in, events out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from buzz_author.events import (
    Compacted,
    HarnessEvent,
    Retrying,
    SteerSettled,
    TextDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    TurnStatus,
    Usage,
)
from buzz_author.harness import HarnessError
from buzz_author.json_values import JsonObject, JsonValue
from harnesses.codex import faults

# Between two texts of one turn, as a reader needs it; in the stream as in the whole reply.
TEXT_SEPARATOR: Final = "\n\n"
_STATUSES: Final[Mapping[str, TurnStatus]] = {
    "completed": "completed",
    "interrupted": "interrupted",
    "failed": "failed",
}
_COUNTS: Final = ("inputTokens", "outputTokens", "cachedInputTokens", "cacheWriteInputTokens")


@attrs.define
class _Open:
    """The turn that was handed over and has not ended."""

    turn: str
    native: str | None = None
    started: bool = False
    texts: list[str] = attrs.field(factory=list)
    streamed: dict[str, str] = attrs.field(factory=dict)
    """What was streamed of each text that is not complete yet, by item."""
    calls: set[str] = attrs.field(factory=set)
    attempts: int = 0
    error: HarnessError | None = None


class Flow:
    """The turns and steers of one session. `emit` gets each event."""

    def __init__(self, emit: Callable[[HarnessEvent], None], log: logging.Logger) -> None:
        self._emit = emit
        self._log = log
        self._open: _Open | None = None
        self._steers: dict[str, str] = {}
        """Unsettled steers, each with the turn that it was meant for."""
        self._total: dict[str, int] = {}
        self._total_before: dict[str, int] = {}
        self._over: set[str] = set()
        """The program's ids of turns that have ended."""

    # What we hand over.

    def sent(self, turn: str) -> None:
        """A turn is about to be handed over."""
        self._open = _Open(turn)
        self._total_before = dict(self._total)

    def accepted(self, turn: str, native: str) -> None:
        """The program has taken the turn, under this id of its own."""
        if self._open is not None and self._open.turn == turn and native not in self._over:
            self._open.native = native

    def not_taken(self, turn: str) -> bool:
        """Handing it over failed: forget it. False when its end was told already."""
        if self._open is None or self._open.turn != turn:
            return False
        self._open = None
        return True

    @property
    def running(self) -> str | None:
        """The program's id of the turn that runs."""
        return self._open.native if self._open is not None else None

    @property
    def turn(self) -> str | None:
        """Our id of the turn that runs."""
        return self._open.turn if self._open is not None else None

    def steered(self, steer: str, into: str | None) -> None:
        """A steer is ours to settle from now on."""
        self._steers[steer] = into or (self._open.turn if self._open is not None else steer)

    def give_back(self, steer: str) -> None:
        """The program did not take it."""
        if (into := self._steers.pop(steer, None)) is not None:
            self._emit(SteerSettled(into, steer, "returned"))

    def timed_out(self, error: HarnessError) -> None:
        """The turn that runs fails with this, whatever the program calls its end."""
        if self._open is not None:
            self._open.error = error

    def ended(self, status: TurnStatus, error: HarnessError | None) -> None:
        """The program is gone: end what is open, give back what it has not read."""
        for steer in list(self._steers):
            self.give_back(steer)
        if self._open is not None:
            self._begin()
            self._end(status, error)

    # What the program says.

    def notified(self, method: str, params: JsonObject) -> None:
        """One notification of the program."""
        native = params.get("turnId")
        if isinstance(native, str) and self._open is not None and self._open.native not in (None, native):
            return  # of another turn
        match method:
            case "turn/started":
                self._started(_object(params.get("turn")))
            case "item/started":
                self._item_started(_object(params.get("item")))
            case "item/agentMessage/delta":
                self._streamed(str(params.get("itemId", "")), str(params.get("delta", "")))
            case "item/completed":
                self._item_completed(_object(params.get("item")))
            case "error":
                self._failed(_object(params.get("error")), will_retry=params.get("willRetry") is True)
            case "thread/tokenUsage/updated":
                total = _object(_object(params.get("tokenUsage")).get("total"))
                self._total = {name: _number(total.get(name)) for name in _COUNTS}
            case "thread/compacted":
                self._emit(Compacted(self._open.turn if self._open is not None else None))
            case "turn/completed":
                self._completed(_object(params.get("turn")))

    def _started(self, turn: JsonObject) -> None:
        native = turn.get("id")
        if self._open is not None and isinstance(native, str) and self._open.native in (None, native):
            self._open.native = native
            self._begin()

    def _begin(self) -> None:
        if self._open is not None and not self._open.started:
            self._open.started = True
            self._emit(TurnStarted(self._open.turn))

    def _item_started(self, item: JsonObject) -> None:
        turn = self._open
        if turn is None:
            return
        match item.get("type"):
            case "userMessage":
                self._taken_in(item.get("clientId"))
            case "mcpToolCall" | "commandExecution" | "fileChange" | "dynamicToolCall" | "webSearch" as kind:
                call = str(item.get("id"))
                turn.calls.add(call)
                self._emit(ToolCalled(turn.turn, call, _tool_name(kind, item), _arguments(kind, item)))

    def _taken_in(self, client: JsonValue) -> None:
        if isinstance(client, str) and self._steers.pop(client, None) is not None and self._open is not None:
            self._emit(SteerSettled(self._open.turn, client, "folded"))

    def _streamed(self, item: str, text: str) -> None:
        turn = self._open
        if turn is None or not text:
            return
        if item not in turn.streamed:
            turn.streamed[item] = ""
            if turn.texts:
                self._emit(TextDelta(turn.turn, TEXT_SEPARATOR))
        turn.streamed[item] += text
        self._emit(TextDelta(turn.turn, text))

    def _item_completed(self, item: JsonObject) -> None:
        turn = self._open
        if turn is None:
            return
        match item.get("type"):
            case "agentMessage":
                text, identifier = str(item.get("text", "")), str(item.get("id", ""))
                streamed = turn.streamed.get(identifier, "")
                if text.startswith(streamed):
                    self._streamed(identifier, text[len(streamed) :])
                turn.streamed.pop(identifier, None)
                if text:
                    turn.texts.append(text)
            case "contextCompaction":
                self._emit(Compacted(turn.turn))
            case _ if (call := str(item.get("id"))) in turn.calls:
                turn.calls.discard(call)
                failed = item.get("status") in ("failed", "declined") or item.get("success") is False
                text, is_error = _returned(item)
                self._emit(ToolReturned(turn.turn, call, failed or is_error, text))

    def _failed(self, error: JsonObject, *, will_retry: bool) -> None:
        turn = self._open
        if turn is None:
            return
        fault = faults.of_turn(error)
        if will_retry:
            self._begin()
            turn.attempts += 1
            self._emit(Retrying(turn.turn, turn.attempts, fault))
        elif turn.error is None:
            turn.error = fault

    def _completed(self, turn: JsonObject) -> None:
        native, current = turn.get("id"), self._open
        if current is None or native != current.native:
            return
        status = _STATUSES.get(str(turn.get("status")), "failed")
        error = None
        if current.error is not None and (status == "failed" or current.error.kind == "timeout"):
            status, error = "failed", current.error
        elif status == "failed":
            error = faults.of_turn(_object(turn.get("error")))
        for steer in list(self._steers):
            self.give_back(steer)
        self._end(status, error)

    def _end(self, status: TurnStatus, error: HarnessError | None) -> None:
        turn = self._open
        if turn is None:
            return
        for call in sorted(turn.calls):
            self._emit(ToolReturned(turn.turn, call, is_error=True, text="the turn ended before it returned"))
        if turn.native is not None:
            self._over.add(turn.native)
        self._open = None
        unfinished = [text for text in turn.streamed.values() if text] if status == "interrupted" else []
        reply = "" if status == "failed" else TEXT_SEPARATOR.join([*turn.texts, *unfinished])
        self._emit(TurnEnded(turn.turn, status, reply, self._usage(), error))

    def _usage(self) -> Usage | None:
        if not self._total:
            return None
        used = [self._total[name] - self._total_before.get(name, 0) for name in _COUNTS]
        return Usage(*used)


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0


def _tool_name(kind: str, item: JsonObject) -> str:
    """The name of a tool as the model sees it; for one of the program's own, what the program calls it."""
    if kind == "mcpToolCall":
        return f"mcp__{item.get('server')}__{item.get('tool')}"
    if kind == "dynamicToolCall":
        return str(item.get("tool"))
    return {"commandExecution": "shell", "fileChange": "apply_patch"}.get(kind, "web_search")


def _arguments(kind: str, item: JsonObject) -> JsonObject:
    if kind in ("mcpToolCall", "dynamicToolCall"):
        return _object(item.get("arguments"))
    return {key: item[key] for key in ("command", "cwd", "changes", "query") if key in item}


def _returned(item: JsonObject) -> tuple[str, bool]:
    """What a tool gave back, as text, and whether it says itself that it failed."""
    error = item.get("error")
    if isinstance(error, Mapping):
        return str(error.get("message", "")), True
    if item.get("type") == "commandExecution":
        return str(item.get("aggregatedOutput") or ""), item.get("exitCode") not in (0, None)
    result = _object(item.get("result"))
    content = result.get("content", item.get("contentItems"))
    texts = [
        str(block["text"]) if isinstance(block.get("text"), str) else f"[{block.get('type')}]"
        for block in (content if isinstance(content, list) else [])
        if isinstance(block, Mapping)
    ]
    return "\n".join(texts), result.get("isError") is True
