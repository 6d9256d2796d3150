"""A client without any code of ours: lines of JSON over a socket, from a test's own loop."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import TracebackType
from typing import Any

DEADLINE_S = 30.0


class Talk:
    """One connection. Use it as an async context manager; leaving it hangs up."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.greeting: dict[str, Any] = {}

    async def __aenter__(self) -> Talk:
        self._reader, self._writer = await asyncio.open_unix_connection(self._path, limit=64 * 1024 * 1024)
        greeting = await self.line()
        assert greeting is not None
        self.greeting = greeting
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.vanish()

    def vanish(self) -> None:
        """As a client does that was killed."""
        self._writer.transport.abort()

    async def send(self, octets: bytes) -> None:
        """Bytes, as they are."""
        self._writer.write(octets)
        await asyncio.wait_for(self._writer.drain(), DEADLINE_S)

    async def request(self, call: str, id: object = 1, **arguments: object) -> None:
        """One request in good order."""
        await self.send(json.dumps({"v": 1, "id": id, "call": call, "arguments": arguments}).encode() + b"\n")

    async def line(self) -> dict[str, Any] | None:
        """The next line; None where the host has hung up."""
        try:
            octets = await asyncio.wait_for(self._reader.readline(), DEADLINE_S)
        except ConnectionResetError:
            return None
        return json.loads(octets) if octets else None

    async def answer(self, id: object = 1) -> dict[str, Any]:
        """The line that ends the call `id`; what comes before it is skipped."""
        while (line := await self.line()) is not None:
            if line.get("id") == id and "event" not in line:
                return line
        raise AssertionError(f"the host hung up before it answered {id!r}")

    async def event(self, name: str) -> dict[str, Any]:
        """The next event of that kind; what comes before it is skipped."""
        while (line := await self.line()) is not None:
            if "event" in line and line["event"]["event"] == name:
                event: dict[str, Any] = line["event"]
                return event
        raise AssertionError(f"the host hung up before the event {name}")

    async def ask(self, call: str, id: object = 1, **arguments: object) -> Any:
        """The value that a call gives, or its error."""
        await self.request(call, id, **arguments)
        answer = await self.answer(id)
        return answer.get("error", answer.get("value"))
