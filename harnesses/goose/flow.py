"""Which run the program works on: its updates become our events, one end for each turn and each steer.

A steered message comes back with the id that goose gave it once it was read; what was not read when the run ends is
given back. What goose replays of an earlier conversation belongs to no run, and is passed over.

No input or output here: messages in, events out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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
COMPACTING: Final = "goose is compacting"


@attrs.define
class _Open:
    """The turn that was handed over and has not ended."""

    turn: str
    run: str | None = None
    started: bool = False
    texts: dict[str, str] = attrs.field(factory=dict)
    """What was said, by message, in its order."""
    calls: set[str] = attrs.field(factory=set)
    over: bool = False
    """Whether goose has said that the run is over; its last count comes behind that."""
    answered: bool = False
    """Whether the model has said or called anything."""
    held: tuple[str, str] | None = None
    """A message, with its id, that tells a fault unless something follows it."""
    notice: str | None = None
    """The last thing that goose told a person, unless the model has answered since."""
    compacting: bool = False
    counts: dict[str, int] = attrs.field(factory=dict)
    """Tokens by kind, over all answers of the model."""


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

    def answered(self, status: TurnStatus, error: HarnessError | None = None) -> None:
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
        if status == "interrupted":
            self._release()
        elif error is None:
            error = _fault(turn)
        if error is not None:
            status = "failed"
        self._open = None
        reply = "" if status == "failed" else TEXT_SEPARATOR.join(text for text in turn.texts.values() if text)
        self._emit(TurnEnded(turn.turn, status, reply, _usage(turn.counts), error))

    def is_calling(self, names: Collection[str] | None = None) -> bool:
        """Whether a call has not returned: of one of these tools, or of any."""
        calls = self._open.calls if self._open is not None else ()
        return any(names is None or self.tools[call] in names for call in calls)

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
            case "usage_update" if self._open is not None and not self._open.over:
                self._release()

    def told(self, update: JsonObject) -> None:
        """One update that goose has added to the protocol, which only those get who ask for it."""
        turn = self._open
        if turn is None:
            return
        match update.get("sessionUpdate"):
            case "status_message":
                status = _object(update.get("status"))
                said = str(status.get("message", ""))
                if said.startswith(COMPACTING):
                    turn.compacting = True
                elif status.get("type") == "notice":
                    turn.notice = said
                    self._compacted(turn)
            case "message_usage":
                for kind, count in _object(update.get("usage")).items():
                    if kind in _COUNTS and isinstance(count, int):
                        turn.counts[kind] = turn.counts.get(kind, 0) + count

    def _runs(self, run: JsonValue) -> None:
        if self._open is None:
            return
        if isinstance(run, str):
            self._open.run = run
            self._begin()
        else:
            self._open.over = True

    def _begin(self) -> None:
        if self._open is not None and not self._open.started:
            self._open.started = True
            self._emit(TurnStarted(self._open.turn))

    def _said(self, message: str, text: str) -> None:
        turn = self._open
        if turn is None or not text:
            return
        self._followed(turn, message)
        if message not in turn.texts and faults.may_be_told(message, text):
            turn.held = (message, text)
            return
        self._speaks(turn, message, text)

    def _speaks(self, turn: _Open, message: str, text: str) -> None:
        self._answers(turn)
        if message not in turn.texts:
            if any(turn.texts.values()):
                self._emit(TextDelta(turn.turn, TEXT_SEPARATOR))
            turn.texts[message] = ""
        turn.texts[message] += text
        self._emit(TextDelta(turn.turn, text))

    def _followed(self, turn: _Open, message: str) -> None:
        """More of what was held was said by the model; before something else, goose has told a fault and goes on."""
        if turn.held is not None and turn.held[0] != message:
            turn.held = None
        self._release()

    def _release(self) -> None:
        """It was the model that said what was held."""
        turn = self._open
        if turn is not None and turn.held is not None:
            held, turn.held = turn.held, None
            self._speaks(turn, *held)

    def _answers(self, turn: _Open) -> None:
        """The model is heard: what goose told before it went well."""
        self._begin()
        turn.answered, turn.notice = True, None
        self._compacted(turn)

    def _compacted(self, turn: _Open) -> None:
        if turn.compacting:
            turn.compacting = False
            self._emit(Compacted(turn.turn))

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
        self._followed(turn, str(_object(_object(update.get("_meta")).get("goose")).get("messageId", "")))
        self._answers(turn)
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


def _fault(turn: _Open) -> HarnessError | None:
    """The fault of a run that goose has ended as if all was well."""
    if turn.held is not None:
        return faults.told(turn.held[1])
    if turn.notice is not None:
        return faults.told(turn.notice)
    return None if turn.answered else HarnessError("unknown", faults.NO_ANSWER)


# What goose counts in an answer, by our names.
_COUNTS: Final = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadTokens": "cache_read_tokens",
    "cacheWriteTokens": "cache_write_tokens",
}


def _usage(counts: Mapping[str, int]) -> Usage | None:
    return Usage(**{_COUNTS[kind]: count for kind, count in counts.items()}) if counts else None
