"""An endpoint that speaks Chat Completions and nothing else: what stands behind it, without OpenAI Responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from buzz_host.rehearsal import RecordedRequest, Rehearsal

NOT_FOUND = b'{"error":{"message":"404 page not found"}}'
REFUSED = b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


class ChatOnly:
    """A rehearsal behind an address that knows no `/responses`; `refused` counts who asked for it."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal
        self._behind = urlsplit(rehearsal.url)
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.refused = 0

    def requests(self) -> list[RecordedRequest]:
        return self._rehearsal.requests()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[ChatOnly]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=2**24)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            behind, to_behind = await asyncio.open_connection(self._behind.hostname, self._behind.port, limit=2**24)
            answers = asyncio.create_task(_carry(behind, writer))
            try:
                await self._requests_of(reader, writer, to_behind)
            except (asyncio.IncompleteReadError, OSError):
                pass  # the client has gone, or was cut off
            finally:
                answers.cancel()
                to_behind.close()
                writer.close()
        finally:
            self._tasks.discard(task)

    async def _requests_of(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, behind: asyncio.StreamWriter
    ) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
            body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
            if b"/responses" in head.partition(b"\r\n")[0]:
                self.refused += 1
                writer.write(REFUSED % (len(NOT_FOUND), NOT_FOUND))
                continue
            own = urlsplit(self.url).netloc.encode()
            behind.write(head.replace(own, self._behind.netloc.encode(), 1) + body)
            await behind.drain()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while octets := await reader.read(2**16):
        writer.write(octets)
        await writer.drain()
    writer.close()
