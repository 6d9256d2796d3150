"""The tools of the suite: what a plugin may offer, and what may go wrong with it, each with a hand on its brake."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable
from typing import Final

from buzz_author.json_values import JsonObject
from buzz_author.testing.talk import DEADLINE_S
from buzz_author.tools import Annotations, Image, Text, Tool, ToolCall, ToolResult

PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
POLL_S: Final = 0.005
SLOW_S: Final = 1.0
DESCRIPTION: Final = "A tool of the conformance suite"
READS: Final = Annotations(read_only=True)


class StageTools:
    """`remember`, `refuse`, `broken`, `picture`, `slow`, `meet` (returns once called twice), and `hold` (returns once
    released). They run on the thread of their plugin."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()
        self._released = threading.Event()
        self._met = 0
        self.calls: list[tuple[str, JsonObject]] = []

    @property
    def all(self) -> tuple[Tool, ...]:
        """All of them, in no order."""
        word: JsonObject = {"type": "object", "properties": {"fact": {"type": "string"}}, "required": ["fact"]}
        nothing: JsonObject = {"type": "object", "properties": {}}
        return (
            Tool("remember", DESCRIPTION, word, self._remember),
            Tool("refuse", DESCRIPTION, nothing, self._refuse),
            Tool("broken", DESCRIPTION, nothing, self._broken),
            Tool("picture", DESCRIPTION, nothing, self._picture, annotations=READS),
            Tool("slow", DESCRIPTION, nothing, self._slow, annotations=READS),
            Tool("meet", DESCRIPTION, nothing, self._meet, annotations=READS),
            Tool("hold", DESCRIPTION, nothing, self._hold, annotations=READS),
        )

    @property
    def names(self) -> list[str]:
        """What the model knows them by, sorted."""
        return sorted(f"mcp__stage__{each.name}" for each in self.all)

    async def has_begun(self) -> None:
        """Wait until `hold` is held."""
        assert await asyncio.to_thread(self.begun.wait, DEADLINE_S)

    async def was_cancelled(self) -> None:
        """Wait until the call of `hold` was cancelled."""
        assert await asyncio.to_thread(self.cancelled.wait, DEADLINE_S)

    def release(self) -> None:
        """Let `hold` return."""
        self._released.set()

    async def _remember(self, arguments: JsonObject, call: ToolCall) -> ToolResult:
        self.calls.append(("remember", dict(arguments)))
        return ToolResult((Text(f"kept {arguments['fact']} for {call.agent}"),))

    async def _refuse(self, arguments: JsonObject, call: ToolCall) -> ToolResult:
        return ToolResult((Text("not today"),), is_error=True)

    async def _broken(self, arguments: JsonObject, call: ToolCall) -> ToolResult:
        raise KeyError("tea")

    async def _picture(self, arguments: JsonObject, call: ToolCall) -> ToolResult:
        return ToolResult((Text("drawn"), Image(PNG, "image/png")))

    async def _slow(self, arguments: JsonObject, call: ToolCall) -> ToolResult:
        await asyncio.sleep(SLOW_S)
        return ToolResult((Text("at last"),))

    async def _meet(self, arguments: JsonObject, call: ToolCall) -> ToolResult:
        self._met += 1
        await _until(lambda: self._met >= 2)
        return ToolResult((Text("met"),))

    async def _hold(self, arguments: JsonObject, call: ToolCall) -> ToolResult:
        self.begun.set()
        try:
            await _until(self._released.is_set)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return ToolResult((Text("let go"),))


async def _until(true: Callable[[], bool]) -> None:
    # What is waited for happens on another thread, or in another call: no event of this loop tells it.
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
