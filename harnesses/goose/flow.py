"""Which run the program works on: its updates become our events, one end for each turn and each steer.

A steered message comes back with the id that goose gave it once it was read; what was not read when the run ends is
given back. What goose replays of an earlier conversation belongs to no run, and is passed over.

No input or output here: messages in, events out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from buzz_author.events import (
    Compacted,
    HarnessEvent,
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
from harnesses.goose import faults

TEXT_SEPARATOR: Final = "\n\n"
COMPACTED: Final = ("Compaction complete", "Conversation compacted")


@attrs.define
class _Open:
    """The turn that was handed over and has not ended."""

    turn: str
    run: str | None = None
    started: bool = False
    texts: dict[str, str] = attrs.field(factory=dict)
    """What was said, by message, in its order."""
    calls: set[str] = attrs.field(factory=set)
    counted: bool = False
    error: HarnessError | None = None


class Flow:
    """The turns and steers of one session. `emit` gets each event."""

    def __init__(self, emit: Callable[[HarnessEvent], None]) -> None:
        self._emit = emit
        self._open: _Open | None = None
        self._steers: dict[str, str] = {}
        """Unsettled steers, each with the turn that it was meant for."""
        self._named: dict[str, str] = {}
        """Goose's ids of those that it has queued."""
        self._read: set[str] = set()
        """Goose's ids of steers that were read before we knew whose they are."""
        self.tools: dict[str, str] = {}
        """The names of the tools of calls, for what is asked about them."""

    # What we hand over.

    def sent(self, turn: str) -> None:
        """A turn is about to be handed over."""
        self._open = _Open(turn)
        self.tools.clear()

    def not_taken(self, turn: str) -> bool:
        """Handing it over failed: forget it. False when its end was told already."""
        if self._open is None or self._open.turn != turn:
            return False
        self._open = None
        return True

    @property
    def run(self) -> str | None:
        """Goose's id of the run; None before it has told it."""
        return self._open.run if self._open is not None else None

    @property
    def turn(self) -> str | None:
        """Our id of the turn that runs."""
        return self._open.turn if self._open is not None else None

    def steered(self, steer: str, into: str | None) -> None:
        """A steer is ours to settle from now on."""
        self._steers[steer] = into or (self._open.turn if self._open is not None else steer)

    def queued(self, steer: str, message: str) -> None:
        """Goose has queued it, under this id."""
        if message in self._read:
            self._read.discard(message)
            self._fold(steer)
        else:
            self._named[message] = steer

    def give_back(self, steer: str) -> None:
        """The program did not take it."""
        if (into := self._steers.pop(steer, None)) is not None:
            self._emit(SteerSettled(into, steer, "returned"))

    def answered(self, status: TurnStatus, usage: JsonValue = None, error: HarnessError | None = None) -> None:
        """The run is over: its turn ends, what it has not read is given back."""
        turn = self._open
        for steer in list(self._steers):
            self.give_back(steer)
        self._named.clear()
        self._read.clear()
        if turn is None:
            return
        self._begin()
        for call in sorted(turn.calls):
            self._emit(ToolReturned(turn.turn, call, is_error=True, text="the turn ended before it returned"))
        error = error or turn.error
        if error is not None:
            status = "failed"
        self._open = None
        reply = "" if status == "failed" else TEXT_SEPARATOR.join(text for text in turn.texts.values() if text)
        self._emit(TurnEnded(turn.turn, status, reply, _usage(usage) if turn.counted else None, error))

    # What the program says.

    def updated(self, update: JsonObject) -> None:
        """One `session/update` of the program."""
        goose = _object(_object(update.get("_meta")).get("goose"))
        match update.get("sessionUpdate"):
            case "session_info_update" if "activeRunId" in goose:
                self._runs(goose.get("activeRunId"))
            case "agent_message_chunk":
                self._said(str(update.get("messageId", "")), _text(update.get("content")))
            case "user_message_chunk":
                self._taken_in(str(update.get("messageId", "")))
            case "tool_call":
                self._called(update, str(_object(goose.get("toolCall")).get("toolName") or update.get("title")))
            case "tool_call_update":
                self._returned(update)
            case "usage_update" if self._open is not None:
                self._open.counted = True

    def _runs(self, run: JsonValue) -> None:
        if self._open is not None and isinstance(run, str):
            self._open.run = run
            self._begin()

    def _begin(self) -> None:
        if self._open is not None and not self._open.started:
            self._open.started = True
            self._emit(TurnStarted(self._open.turn))

    def _said(self, message: str, text: str) -> None:
        turn = self._open
        if turn is None or not text:
            return
        if faults.OWN_ID.fullmatch(message) and text.startswith(COMPACTED):
            self._emit(Compacted(turn.turn))
            return
        fault = faults.told(message, text) if message not in turn.texts else None
        if fault is not None:
            turn.error = fault
            return
        self._begin()
        if message not in turn.texts:
            if any(turn.texts.values()):
                self._emit(TextDelta(turn.turn, TEXT_SEPARATOR))
            turn.texts[message] = ""
        turn.texts[message] += text
        self._emit(TextDelta(turn.turn, text))

    def _taken_in(self, message: str) -> None:
        if self._open is None:
            return
        steer = self._named.pop(message, None)
        if steer is None:
            self._read.add(message)
        else:
            self._fold(steer)

    def _fold(self, steer: str) -> None:
        if self._open is not None and self._steers.pop(steer, None) is not None:
            self._emit(SteerSettled(self._open.turn, steer, "folded"))

    def _called(self, update: JsonObject, name: str) -> None:
        turn = self._open
        if turn is None:
            return
        call = str(update.get("toolCallId"))
        turn.calls.add(call)
        self.tools[call] = name
        self._emit(ToolCalled(turn.turn, call, name, _object(update.get("rawInput"))))

    def _returned(self, update: JsonObject) -> None:
        turn, call, status = self._open, str(update.get("toolCallId")), update.get("status")
        if turn is None or call not in turn.calls or status not in ("completed", "failed"):
            return
        turn.calls.discard(call)
        content = update.get("content")
        blocks = content if isinstance(content, list) else []
        texts = [_text(_object(block).get("content")) for block in blocks]
        self._emit(ToolReturned(turn.turn, call, status == "failed", "\n".join(texts)))


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _text(content: JsonValue) -> str:
    block = _object(content)
    return str(block["text"]) if isinstance(block.get("text"), str) else f"[{block.get('type')}]" if block else ""


def _usage(value: JsonValue) -> Usage | None:
    told = _object(value)
    counts = [told.get(name) for name in ("inputTokens", "outputTokens")]
    known = [count if isinstance(count, int) else None for count in counts]
    return Usage(known[0], known[1]) if any(count is not None for count in known) else None
