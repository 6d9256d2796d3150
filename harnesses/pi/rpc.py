"""Pi's own protocol over its pipes: commands that are answered or fail, and one handler for everything else it says.

When the program dies, every command that waits fails at once with the same fault.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from buzz_author.harness import HarnessError
from buzz_author.json_values import JsonObject, JsonValue
from harnesses.pi.faults import refusal
from harnesses.stdio.channel import LineChannel

ANSWER_DEADLINE_S: Final = 60.0


class PiChannel:
    """A conversation over `channel`; `take` is called for each event of the program, in order."""

    def __init__(
        self,
        channel: LineChannel,
        take: Callable[[JsonObject], None],
        ended: Callable[[HarnessError], None],
        log: logging.Logger,
    ) -> None:
        """`ended` is called once, with the program's fault, when it says nothing more and all that waited were told."""
        self.channel: Final = channel
        self._take = take
        self._ended = ended
        self._log = log
        self._waiting: dict[str, asyncio.Future[JsonValue]] = {}
        self._count = 0
        self._fault: HarnessError | None = None
        self.reading: Final = asyncio.create_task(self._read(), name=f"reading {channel.title}")

    async def ask(self, command: str, *, deadline_s: float | None = ANSWER_DEADLINE_S, **fields: object) -> JsonValue:
        """What the program answers to a command. Raises `HarnessError` where it refuses, is gone, or does not answer
        in time."""
        if self._fault is not None:
            raise self._fault
        self._count += 1
        name = f"buzz-{self._count}"
        answer: asyncio.Future[JsonValue] = asyncio.get_running_loop().create_future()
        self._waiting[name] = answer
        try:
            await self.channel.send({"id": name, "type": command, **fields})
            async with asyncio.timeout(deadline_s):
                await asyncio.wait({answer})
            return answer.result()
        except TimeoutError as error:
            raise HarnessError("timeout", f"{self.channel.title} did not answer {command} in time") from error
        finally:
            self._waiting.pop(name, None)

    async def tell(self, kind: str, **fields: object) -> None:
        """Say something that is not answered. Raises `HarnessError`."""
        await self.channel.send({"type": kind, **fields})

    async def _read(self) -> None:
        try:
            async for value in self.channel.messages():
                if isinstance(value, dict):
                    self._follow(value)
            fault = await self.channel.died()
        except HarnessError as error:
            fault = error
        self._fault = fault
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(fault)
                answer.exception()  # whoever waited may be gone
        self._ended(fault)

    def _follow(self, said: JsonObject) -> None:
        if said.get("type") == "response":
            self._answered(said)
            return
        try:
            self._take(said)
        except Exception:  # one event that cannot be followed must not end the conversation
            self._log.exception("an event of %s could not be followed: %s", self.channel.title, said.get("type"))

    def _answered(self, said: JsonObject) -> None:
        answer = self._waiting.get(str(said.get("id")))
        if answer is None or answer.done():
            self._log.debug("%s answered what nobody waits for: %s", self.channel.title, said.get("command"))
        elif said.get("success") is True:
            answer.set_result(said.get("data"))
        else:
            answer.set_exception(refusal(str(said.get("error") or f"{said.get('command')} was refused")))
