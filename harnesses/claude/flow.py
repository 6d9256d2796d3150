"""Which message the program works on: its stream of messages becomes ours, one end for each turn and each steer.

Every message that we send carries its turn's id; the program lists the ids that each request to the model, and each
result, took in. So a steer is known to be folded (listed beside the running turn) or a turn of its own. Several that
the program merged into one turn run under the id of the first, and the others count as folded into that.

No input or output here: messages in, events out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs
from claude_agent_sdk import (
    AssistantMessage,
    Message,
    ResultMessage,
    ServerToolUseBlock,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

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
from harnesses.claude import faults

# Between two texts of one turn, as a reader needs it; in the stream as in the whole reply.
TEXT_SEPARATOR: Final = "\n\n"
# The program lists at most 64 messages of a turn: the first 63 and the last. One more, and we could not know of it.
TAKEN_IN_MAX: Final = 63
_ABORTED: Final = frozenset({"aborted_streaming", "aborted_tools"})


@attrs.define
class _Open:
    """A turn that was handed over and has not ended."""

    started: bool = False
    texts: list[str] = attrs.field(factory=list)
    streamed: str = ""
    """What was streamed of a text that is not complete yet."""
    calls: set[str] = attrs.field(factory=set)
    said_error: str = ""
    named_error: str | None = None
    taken_in: int = 1
    """How many messages the program has taken into it, its own included."""


class Flow:
    """The turns and steers of one session. `emit` gets each event."""

    def __init__(self, emit: Callable[[HarnessEvent], None], log: logging.Logger) -> None:
        self._emit = emit
        self._log = log
        self._open: dict[str, _Open] = {}
        self._steers: dict[str, str] = {}
        """Unsettled steers, each with the turn that it was meant for."""
        self._handed: set[str] = set()
        """Those of them that the program was given."""
        self._running: str | None = None

    # What we hand over.

    def sent(self, turn: str) -> None:
        """A turn is about to be handed over."""
        self._open[turn] = _Open()

    def steered(self, steer: str, into: str | None) -> None:
        """A steer is ours to settle from now on."""
        self._steers[steer] = into or self._running or steer

    def handed(self, steer: str) -> None:
        """A steer is about to be handed over."""
        self._handed.add(steer)

    @property
    def has_room(self) -> bool:
        """Whether one more steer can be handed over and still be followed, whatever turn takes it in."""
        current = self.current
        taken_in = self._open[current].taken_in if current is not None else 0
        return taken_in + len(self._handed & self._steers.keys()) < TAKEN_IN_MAX

    def not_taken(self, turn: str) -> bool:
        """Handing it over failed: forget it. False when its end was told already."""
        return self._open.pop(turn, None) is not None or self._steers.pop(turn, None) is not None

    def ended(self, status: TurnStatus, error: HarnessError | None) -> None:
        """The program is gone: end what is open, give back what it has not read."""
        for steer, into in list(self._steers.items()):
            del self._steers[steer]
            self._emit(SteerSettled(into, steer, "returned"))
        for turn in list(self._open):
            self._begin(turn)
            self._end(turn, status, error=error)
        self._running = None

    # What the program says.

    def received(self, message: Message) -> None:
        """One message of the program."""
        match message:
            case SystemMessage():
                self._system(message.subtype, message.data)
            case StreamEvent() if message.parent_tool_use_id is None:
                self._taken_in(message.user_message_uuids)
                self._streamed(message.event)
            case AssistantMessage() if message.parent_tool_use_id is None:
                self._taken_in(message.user_message_uuids)
                self._answered(message)
            case UserMessage() if message.parent_tool_use_id is None:
                self._returned(message)
            case ResultMessage():
                self._result(message)

    def _system(self, subtype: str, fields: Mapping[str, object]) -> None:
        if subtype == "status":
            listed = fields.get("user_message_uuids")
            self._taken_in([str(each) for each in listed] if isinstance(listed, list) else None)
        elif subtype == "compact_boundary":
            self._emit(Compacted(self.current))
        elif subtype == "api_retry" and (turn := self.current) is not None:
            self._begin(turn)
            attempt = fields.get("attempt")
            error = faults.of_retry(fields.get("error_status"), fields.get("error"))
            self._emit(Retrying(turn, attempt if isinstance(attempt, int) else 1, error))

    def _taken_in(self, listed: Sequence[str] | None) -> None:
        """The program works on a turn that took in these messages."""
        ours = [each for each in listed or () if each in self._open or each in self._steers]
        if not ours:
            return
        turns = [each for each in ours if each in self._open]
        if self._running in turns:
            turn = self._running
        elif turns:
            turn = turns[0]
        else:
            turn = ours[0]
            del self._steers[turn]
            self._open[turn] = _Open()
            self._emit(SteerSettled(turn, turn, "own-turn"))
        self._begin(turn)
        self._running = turn
        for each in ours:
            if self._steers.pop(each, None) is not None:
                self._open[turn].taken_in += 1
                self._emit(SteerSettled(turn, each, "folded"))

    @property
    def current(self) -> str | None:
        """The turn that the program works on; before it has said so, the one that it was handed first."""
        return self._running or next(iter(self._open), None)

    def _begin(self, turn: str) -> None:
        if not self._open[turn].started:
            self._open[turn].started = True
            self._emit(TurnStarted(turn))

    def _streamed(self, event: Mapping[str, object]) -> None:
        turn = self.current
        if turn is None:
            return
        kind, delta = event.get("type"), event.get("delta")
        if kind == "content_block_start":
            self._open[turn].streamed = ""
        elif kind == "content_block_delta" and isinstance(delta, dict) and delta.get("type") == "text_delta":
            self._say(turn, str(delta.get("text", "")))

    def _say(self, turn: str, text: str) -> None:
        """A piece of a text that may have more pieces."""
        if not text:
            return
        open_turn = self._open[turn]
        if not open_turn.streamed and open_turn.texts:
            self._emit(TextDelta(turn, TEXT_SEPARATOR))
        open_turn.streamed += text
        self._emit(TextDelta(turn, text))

    def _answered(self, message: AssistantMessage) -> None:
        turn = self.current
        if turn is None:
            return
        open_turn = self._open[turn]
        if message.error is not None:  # the program's own words in place of an answer
            open_turn.named_error = message.error
            open_turn.said_error = "".join(block.text for block in message.content if isinstance(block, TextBlock))
            return
        for block in message.content:
            match block:
                case TextBlock():
                    self._complete(turn, block.text)
                case ToolUseBlock() | ServerToolUseBlock():
                    open_turn.calls.add(block.id)
                    self._emit(ToolCalled(turn, block.id, block.name, block.input))

    def _complete(self, turn: str, text: str) -> None:
        """A whole text; what of it was not streamed is said now."""
        open_turn = self._open[turn]
        if not text.startswith(open_turn.streamed):  # streamed by an answer that broke off; this is another one
            open_turn.streamed = ""
        self._say(turn, text[len(open_turn.streamed) :])
        open_turn.streamed = ""
        if text:
            open_turn.texts.append(text)

    def _returned(self, message: UserMessage) -> None:
        turn = self.current
        if turn is None or isinstance(message.content, str):
            return
        for block in message.content:
            if isinstance(block, ToolResultBlock) and block.tool_use_id in self._open[turn].calls:
                self._open[turn].calls.discard(block.tool_use_id)
                self._emit(ToolReturned(turn, block.tool_use_id, bool(block.is_error), _text_of(block.content)))

    def _result(self, result: ResultMessage) -> None:
        listed = result.user_message_uuids or ([result.user_message_uuid] if result.user_message_uuid else [])
        self._taken_in(listed)
        turn = self.current
        if turn is None:
            self._log.debug("a result for no turn of ours: %s", result.subtype)
            return
        self._begin(turn)
        open_turn = self._open[turn]
        status: TurnStatus = "completed"
        error: HarnessError | None = None
        if result.terminal_reason in _ABORTED:
            status = "interrupted"
        elif result.is_error:
            status, error = "failed", faults.of_result(result, open_turn.said_error, open_turn.named_error)
        elif not open_turn.texts and result.result:
            self._complete(turn, result.result)
        usage = _usage(result.usage)
        self._end(turn, status, error=error, usage=usage)
        self._running = None
        for each in listed:  # handed over as turns, taken in as one
            if each in self._open:
                self._begin(each)
                self._end(each, status, error=error)

    def _end(
        self, turn: str, status: TurnStatus, *, error: HarnessError | None = None, usage: Usage | None = None
    ) -> None:
        open_turn = self._open.pop(turn)
        texts = [*open_turn.texts, *([open_turn.streamed] if open_turn.streamed else [])]
        self._emit(TurnEnded(turn, status, TEXT_SEPARATOR.join(texts), usage, error))


def _usage(told: Mapping[str, object] | None) -> Usage | None:
    if not told:
        return None

    def count(name: str) -> int | None:
        number = told.get(name)
        return number if isinstance(number, int) else None

    return Usage(
        input_tokens=count("input_tokens"),
        output_tokens=count("output_tokens"),
        cache_read_tokens=count("cache_read_input_tokens"),
        cache_write_tokens=count("cache_creation_input_tokens"),
    )


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(block.get("text", f"[{block.get('type')}]")) for block in content if isinstance(block, dict))
