"""Which turn the program works on: its events become ours, one end for each turn and each steer.

Pi has no ids of turns: one runs at a time, from the prompt that it takes to the point where it has settled. Each user
message that it takes in is told with its text: the first one of a run is the prompt, the others are steers, in their
order. What is still unsettled when it has settled was not read, and is given back by the session, which clears the
program's queue first.

No input or output here: events in, events out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
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
from harnesses.pi import faults

# Between two texts of one turn, as a reader needs it; in the stream as in the whole reply.
TEXT_SEPARATOR: Final = "\n\n"
_COUNTS: Final = ("input", "output", "cacheRead", "cacheWrite")


@attrs.define
class _Open:
    """The turn that was handed over and has not ended."""

    turn: str
    started: bool = False
    prompt_read: bool = False
    texts: list[str] = attrs.field(factory=list)
    streamed: dict[int, str] = attrs.field(factory=dict)
    """What was streamed of each text of the message that is not complete yet, by its place in it."""
    calls: set[str] = attrs.field(factory=set)
    used: dict[str, int] = attrs.field(factory=dict)
    stopped: str = ""
    """Why the newest message of the model ended, as the program calls it."""
    said_error: str = ""
    interrupted: bool = False
    error: HarnessError | None = None


class Flow:
    """The turns and steers of one session. `emit` gets each event."""

    def __init__(self, emit: Callable[[HarnessEvent], None], log: logging.Logger) -> None:
        self._emit = emit
        self._log = log
        self._open: _Open | None = None
        self._steers: dict[str, tuple[str, str]] = {}
        """Unsettled steers, each with the turn that it was meant for, and its text."""
        self._handed: set[str] = set()
        """Those of them that the program was given."""

    # What we hand over.

    def sent(self, turn: str) -> None:
        """A turn is about to be handed over."""
        self._open = _Open(turn)

    def accepted(self, turn: str) -> None:
        """The program has taken the turn."""
        if self._open is not None and self._open.turn == turn:
            self._begin()

    def not_taken(self, turn: str) -> bool:
        """Handing it over failed: forget it. False when its end was told already, or its beginning."""
        if self._open is None or self._open.turn != turn or self._open.started:
            return False
        self._open = None
        return True

    @property
    def turn(self) -> str | None:
        """The turn that runs."""
        return self._open.turn if self._open is not None else None

    @property
    def calling(self) -> bool:
        """Whether a tool runs: nobody waits for the model then."""
        return self._open is not None and bool(self._open.calls)

    @property
    def has_handed_steers(self) -> bool:
        """Whether the program may still hold a steer."""
        return bool(self._handed)

    def steered(self, steer: str, into: str | None, text: str) -> None:
        """A steer is ours to settle from now on."""
        self._steers[steer] = (into or self.turn or steer, text)

    def handed(self, steer: str) -> None:
        """The steer is about to be given to the program."""
        if steer in self._steers:
            self._handed.add(steer)

    def give_back(self, steer: str) -> None:
        """The program did not take it, or has not read it."""
        self._handed.discard(steer)
        if (found := self._steers.pop(steer, None)) is not None:
            self._emit(SteerSettled(found[0], steer, "returned"))

    def interrupting(self) -> None:
        """The turn that runs is about to be stopped."""
        if self._open is not None:
            self._open.interrupted = True

    def timed_out(self, error: HarnessError) -> None:
        """The turn that runs fails with this, whatever the program calls its end."""
        if self._open is not None and self._open.error is None:
            self._open.error = error

    def ended(self, status: TurnStatus, error: HarnessError | None) -> None:
        """The program is gone: give back what it has not read, end what is open."""
        for steer in list(self._steers):
            self.give_back(steer)
        if self._open is not None:
            self._begin()
            self._end(status, error)

    def settled(self) -> None:
        """The program will not go on by itself: the turn is over, and what it has not read is given back."""
        for steer in list(self._steers):
            self.give_back(steer)
        turn = self._open
        if turn is None:
            return
        self._begin()
        if turn.error is not None:
            self._end("failed", turn.error)
        elif turn.stopped == "aborted" or (turn.interrupted and turn.stopped not in ("stop", "length")):
            self._end("interrupted", None)
        elif turn.stopped == "error":
            self._end("failed", faults.of_words(turn.said_error or "Pi did not say what failed"))
        elif not turn.stopped:
            self._end("failed", HarnessError("unknown", "Pi ended the turn without an answer"))
        else:
            self._end("completed", None)

    # What the program says.

    def received(self, said: JsonObject) -> None:
        """One event of the program."""
        match said.get("type"):
            case "message_start":
                message = _object(said.get("message"))
                if message.get("role") == "user":
                    self._taken_in(_text_of(message.get("content"), ""))
            case "message_update":
                self._streamed(_object(said.get("assistantMessageEvent")))
            case "message_end":
                message = _object(said.get("message"))
                if message.get("role") == "assistant":
                    self._answered(message)
            case "tool_execution_start":
                self._called(str(said.get("toolCallId")), str(said.get("toolName")), _object(said.get("args")))
            case "tool_execution_end":
                self._returned(str(said.get("toolCallId")), said.get("isError") is True, _object(said.get("result")))
            case "auto_retry_start":
                self._retrying(said)
            case "compaction_end" if isinstance(said.get("result"), dict):
                self._emit(Compacted(self.turn))

    def _begin(self) -> None:
        if self._open is not None and not self._open.started:
            self._open.started = True
            self._emit(TurnStarted(self._open.turn))

    def _taken_in(self, text: str) -> None:
        turn = self._open
        if turn is None:
            return
        self._begin()
        if not turn.prompt_read:
            turn.prompt_read = True
            return
        waiting = [each for each in self._steers if each in self._handed]
        same = [each for each in waiting if self._steers[each][1] == text]
        steer = next(iter(same or waiting), None)
        if steer is None:
            self._log.debug("Pi took in a message that is none of ours")
            return
        self._handed.discard(steer)
        del self._steers[steer]
        self._emit(SteerSettled(turn.turn, steer, "folded"))

    def _streamed(self, event: JsonObject) -> None:
        place = event.get("contentIndex")
        if event.get("type") == "text_delta" and isinstance(place, int):
            self._say(place, str(event.get("delta", "")))

    def _say(self, place: int, text: str) -> None:
        turn = self._open
        if turn is None or not text:
            return
        self._begin()
        if place not in turn.streamed:
            if turn.texts or any(turn.streamed.values()):
                self._emit(TextDelta(turn.turn, TEXT_SEPARATOR))
            turn.streamed[place] = ""
        turn.streamed[place] += text
        self._emit(TextDelta(turn.turn, text))

    def _answered(self, message: JsonObject) -> None:
        """A whole message of the model, or what there is of one that broke off."""
        turn = self._open
        if turn is None:
            return
        turn.stopped = str(message.get("stopReason") or "stop")
        turn.said_error = str(message.get("errorMessage") or "")
        usage = _object(message.get("usage"))
        for name in _COUNTS:
            turn.used[name] = turn.used.get(name, 0) + _number(usage.get(name))
        if turn.stopped != "error":  # what a failed answer said is asked for again, or is no reply
            content = message.get("content")
            for place, piece in enumerate(content if isinstance(content, list) else []):
                text = str(_object(piece).get("text", "")) if _object(piece).get("type") == "text" else ""
                streamed = turn.streamed.get(place, "")
                if text.startswith(streamed):
                    self._say(place, text[len(streamed) :])
            turn.texts += [text for _, text in sorted(turn.streamed.items()) if text]
        turn.streamed.clear()

    def _called(self, call: str, name: str, arguments: JsonObject) -> None:
        if self._open is not None:
            self._begin()
            self._open.calls.add(call)
            self._emit(ToolCalled(self._open.turn, call, name, arguments))

    def _returned(self, call: str, is_error: bool, result: JsonObject) -> None:
        if self._open is not None and call in self._open.calls:
            self._open.calls.discard(call)
            text = _text_of(result.get("content"), "\n")
            self._emit(ToolReturned(self._open.turn, call, is_error, text))

    def _retrying(self, said: JsonObject) -> None:
        turn = self._open
        if turn is None:
            return
        self._begin()
        turn.streamed.clear()
        attempt = _number(said.get("attempt")) or 1
        self._emit(Retrying(turn.turn, attempt, faults.of_words(str(said.get("errorMessage") or "unknown error"))))

    def _end(self, status: TurnStatus, error: HarnessError | None) -> None:
        turn = self._open
        if turn is None:
            return
        for call in sorted(turn.calls):
            self._emit(ToolReturned(turn.turn, call, is_error=True, text="the turn ended before it returned"))
        self._open = None
        unfinished = [text for _, text in sorted(turn.streamed.items()) if text] if status == "interrupted" else []
        reply = "" if status == "failed" else TEXT_SEPARATOR.join([*turn.texts, *unfinished])
        usage = Usage(*(turn.used[name] for name in _COUNTS)) if any(turn.used.values()) else None
        self._emit(TurnEnded(turn.turn, status, reply, usage, error))


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0


def _text_of(content: JsonValue, joint: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    pieces = [_object(each) for each in content]
    return joint.join(str(each["text"]) if "text" in each else f"[{each.get('type')}]" for each in pieces)
