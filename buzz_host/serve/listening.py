"""The socket of a running host: made so that only its person can reach it, and every client in a task of its own.

Mode 0600 in a folder of mode 0700, and each client's uid as the kernel says it (SEC-01). What a dead host left at the
path is replaced: whoever holds the lock of the home owns the path.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from pathlib import Path
from typing import Final

from buzz_author.errors import BuzzError
from buzz_author.framing import encode_line
from buzz_host.serve.clients import Client
from buzz_host.services.host import Host

SOCKET_MODE: Final = 0o600
BACKLOG: Final = 512
# Each has a descriptor, and up to 16 MiB of an unfinished line.
CLIENTS_MAX: Final = 200

log = logging.getLogger(__name__)


class Listening:
    """The socket at `path`, from `start` until `stop`."""

    def __init__(self, path: Path, host: Host) -> None:
        self.path = path
        self._host = host
        self._server: asyncio.Server | None = None
        self._clients: dict[Client, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Begin to listen. Raises `BuzzError` where the socket cannot be made."""
        try:
            self.path.unlink(missing_ok=True)
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listening.bind(os.fspath(self.path))
                self.path.chmod(SOCKET_MODE)
                self._server = await asyncio.start_unix_server(self._come, sock=listening, backlog=BACKLOG)
            except BaseException:
                listening.close()
                raise
        except OSError as error:
            raise BuzzError(f"{self.path}: the socket cannot be made ({error.strerror})") from None

    async def stop(self, deadline_s: float) -> None:
        """Take no further client, and let those that are here come to their ends, within about `deadline_s`."""
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        await asyncio.gather(*(self._see_off(*each, deadline_s) for each in list(self._clients.items())))

    async def _see_off(self, client: Client, talk: asyncio.Task[None], deadline_s: float) -> None:
        try:
            await client.stop(deadline_s)
        except Exception:
            log.exception("a client could not be seen off in order")
        await asyncio.wait({talk}, timeout=deadline_s)

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= CLIENTS_MAX:
            message = f"the host has {CLIENTS_MAX} clients already: try again when some have gone"
            writer.write(encode_line({"id": None, "error": {"kind": "refused", "message": message}}))
            writer.close()
            return
        client = Client(self._host, reader, writer)
        talk = asyncio.current_task()
        assert talk is not None, "asyncio gives each client a task"
        self._clients[client] = talk
        try:
            await client.talk()
        except Exception:
            log.exception("a client's conversation ended in a fault of ours")
        finally:
            del self._clients[client]
