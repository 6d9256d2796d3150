"""JSON-RPC with a program over its pipes: requests that are answered or fail, and one handler for what it says.

When the program dies, every request that waits fails at once with the same fault.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from buzz_author.harness import HarnessError
from buzz_author.json_values import JsonValue
from buzz_author.jsonrpc import Conversation, MessageId, Notification, NotRpc, Request, RpcError
from harnesses.stdio.channel import LineChannel

ANSWER_DEADLINE_S: Final = 60.0


class RpcChannel:
    """A conversation over `channel`; `take` is called for each request and notification of the program, in order."""

    def __init__(
        self,
        channel: LineChannel,
        take: Callable[[Request | Notification], None],
        ended: Callable[[HarnessError], None],
        log: logging.Logger,
    ) -> None:
        """`ended` is called once, with the program's fault, when it says nothing more and all that waited were told."""
        self.channel: Final = channel
        self._take = take
        self._ended = ended
        self._log = log
        self._conversation = Conversation()
        self.reading: Final = asyncio.create_task(self._read(), name=f"reading {channel.title}")

    async def ask(
        self, method: str, params: Mapping[str, object], *, deadline_s: float | None = ANSWER_DEADLINE_S
    ) -> JsonValue:
        """The program's answer, waited for as long as `deadline_s` says; None waits for ever.

        Raises `RpcError` where it refuses, `HarnessError` where it is gone or does not answer in time.
        """
        message, answer = self._conversation.request(method, params)
        if not answer.done():
            await self.channel.send(message)
        try:
            async with asyncio.timeout(deadline_s):
                return await answer
        except TimeoutError as error:
            raise HarnessError("timeout", f"{self.channel.title} did not answer {method} in time") from error

    async def tell(self, method: str, params: Mapping[str, object] | None = None) -> None:
        """Say something that needs no answer. Raises `HarnessError`."""
        await self.channel.send(self._conversation.notification(method, params))

    async def answer(self, request: MessageId, value: object) -> None:
        """Answer a request of the program. Raises `HarnessError`."""
        await self.channel.send(self._conversation.result(request, value))

    async def refuse(self, request: MessageId, code: int, message: str) -> None:
        """Refuse a request of the program. Raises `HarnessError`."""
        await self.channel.send(self._conversation.error(request, code, message))

    async def _read(self) -> None:
        try:
            async for value in self.channel.messages():
                try:
                    said = self._conversation.received(value)
                except NotRpc as error:
                    self._log.debug("%s: a message was passed over: %s", self.channel.title, error)
                    continue
                if said is not None:
                    self._follow(said)
            fault = await self.channel.died()
        except HarnessError as error:
            fault = error
        self._conversation.gone(fault)
        self._ended(fault)

    def _follow(self, said: Request | Notification) -> None:
        try:
            self._take(said)
        except Exception:  # one message that cannot be followed must not end the conversation
            self._log.exception("a message of %s could not be followed: %s", self.channel.title, said.method)


__all__ = ["RpcChannel", "RpcError"]
