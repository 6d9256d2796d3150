"""A harness without a program, for tests of the verbs: it does what its message says, one directive a line.

`say TEXT` says a JSON string; `tool`, `retry`, `compact` report such events; `fail`, `die`, `crash` end the turn in
other ways than well; `hang` waits to be interrupted, `hang deaf` for ever. Without a directive it repeats the message.
"""

import asyncio
import json

from buzz_author import PluginContext
from buzz_author.events import (
    Compacted,
    HarnessEvent,
    Retrying,
    SessionEnded,
    TextDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    Usage,
)
from buzz_author.harness import Capabilities, HarnessError, HarnessSession, Probe, SessionHost, SessionSpec
from buzz_author.turns import Turn

inject = ("agents",)
OVERLOADED = HarnessError("overloaded", "too \x1b[31mmany\nparrots", 529, True)


class Conversation:
    def __init__(self, spec: SessionSpec) -> None:
        self.native_id = spec.resume or "polly"
        self._events: asyncio.Queue[HarnessEvent] = asyncio.Queue()
        self._running: Turn | None = None

    async def send(self, turn: Turn) -> None:
        self._running = turn
        self._tell(TurnStarted(turn.id))
        said = []
        for number, line in enumerate(turn.message.split("\n")):
            word, _, rest = line.partition(" ")
            match word:
                case "say":
                    said.append(json.loads(rest))
                    for each in said[-1]:
                        self._tell(TextDelta(turn.id, each))
                case "tool":
                    call = f"call-{number}"
                    self._tell(ToolCalled(turn.id, call, "look\x1b[2J", {"where": "\u2028\ud800\x9b"}, "parrot"))
                    self._tell(ToolReturned(turn.id, call, False, "seen \x1b]0;owned\x07"))
                case "retry":
                    self._tell(Retrying(turn.id, 1, OVERLOADED))
                case "compact":
                    self._tell(Compacted(turn.id))
                case "fail":
                    return self._end(TurnEnded(turn.id, "failed", "".join(said), error=OVERLOADED))
                case "die":
                    return self._tell(SessionEnded(HarnessError("process-died", "the parrot is no more")))
                case "crash":
                    raise RuntimeError("a fault of the parrot's own")
                case "hang":
                    return None
        if not said:
            said.append(turn.message)
            self._tell(TextDelta(turn.id, turn.message))
        return self._end(TurnEnded(turn.id, "completed", "".join(said), Usage(12, 3)))

    async def steer(self, turn: Turn) -> None:
        raise AssertionError("a parrot cannot be steered")

    async def interrupt(self) -> None:
        if self._running is not None and "hang deaf" not in self._running.message:
            self._end(TurnEnded(self._running.id, "interrupted", "so far"))

    async def answer(self, request_id: str, decision: str, *, reason: str | None = None, reply: object = None) -> None:
        raise AssertionError("a parrot asks nothing")

    async def events(self):
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, SessionEnded):
                return

    async def close(self, *, deadline_s: float) -> None:
        await self.interrupt()
        self._tell(SessionEnded())

    def _end(self, event: TurnEnded) -> None:
        self._running = None
        self._tell(event)

    def _tell(self, event: HarnessEvent) -> None:
        self._events.put_nowait(event)


class Parrot:
    id = "parrot"
    title = "Parrot"
    capabilities = Capabilities(resume=True)

    async def probe(self) -> Probe:
        return Probe(version="1.0", path=None)

    def encode(self, text: str, spec: SessionSpec) -> str:
        return text

    async def open(self, spec: SessionSpec, host: SessionHost) -> HarnessSession:
        return Conversation(spec)


def apply(ctx: PluginContext) -> None:
    ctx.agents.registerHarness(Parrot())
