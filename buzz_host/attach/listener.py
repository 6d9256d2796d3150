"""The listener for the clients of people's own sessions: loopback, a token, one line of request, one answer (SEC-01).

It is no HTTP, so that no web page can speak to it: the first line has to hold the token, which lies in a file of the
home that only its owner can read, and is another one at each start. It also keeps the sets on disk up to date, so that
sessions go on when the host ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_host.attach.attaching import write_speakers
from buzz_host.attach.client import write_client
from buzz_host.attach.current_set import SetTaker, resting_folder
from buzz_host.attach.handing import Handing
from buzz_host.attach.ledger_turns import HookInput
from buzz_host.attach.parts import hook_output
from buzz_host.attach.registry import ENTRIES_MAX, Attachment, Places, attachments, registry_lock
from buzz_host.attach.snapshots import write_snapshot
from buzz_host.attach.spool import bring_in
from buzz_host.services.host import Host
from buzz_host.settings import Home, replace_file

log = logging.getLogger(__name__)

PROTOCOL: Final = b"BUZZ1"
TOKEN_BYTES: Final = 24
FIRST_LINE_MAX_BYTES: Final = 256
INPUT_MAX_BYTES: Final = 64 * 1024
REQUEST_DEADLINE_S: Final = 2.0
TAKEN_DEADLINE_S: Final = 3.0
CONNECTIONS_MAX: Final = 64
LOOK_EVERY_S: Final = 1.0
ANYWAY_EVERY_S: Final = 60.0
TAKEN: Final = b"+"


@attrs.frozen
class Request:
    """What one client asks: which part of which attachment, and what the program told its hook."""

    attachment: str
    part: int
    hook: HookInput


class AttachListener:
    """Serves the attachments of one host, from `start` to `stop`."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._token = ""
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None
        self._looks: object = None
        self._open = 0

    async def start(self, host: Host) -> None:
        """Listen on a free port of 127.0.0.1, and write where into `attach/endpoint`. Raises `BuzzError`, `OSError`."""
        self._home = host.home
        self._places = Places(host.home)
        host.home.folder(self._places.folder)
        self._taker = SetTaker(host, self._now)
        self._handing = Handing(self._taker, host.store, self._now)
        self._store = host.store
        self._registry: tuple[object, dict[str, Attachment]] = (None, {})
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        await self._bring_in()
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, limit=INPUT_MAX_BYTES + FIRST_LINE_MAX_BYTES, backlog=128
        )
        port = self._server.sockets[0].getsockname()[1]
        replace_file(self._places.endpoint, endpoint_line(port, self._token).encode("ascii"), durable=False)
        self._looking = asyncio.create_task(self._look_after())

    async def stop(self) -> None:
        """Leave the sets on disk as they are now, and stop listening. Stopping twice is no fault."""
        if self._server is None:
            return
        self._places.endpoint.unlink(missing_ok=True)
        self._server.close()
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        await self._handing.close()
        await self._write_sets(anyway=True)
        await self._taker.close()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # somebody else's connection, or one that broke: nobody is told anything
        except Exception:
            log.exception("a prompt could not be answered")
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(REQUEST_DEADLINE_S):
            request = await self._request(reader)
        attachment = self._attachment(request.attachment) if request is not None else None
        if request is None or attachment is None:
            return
        answered = await self._handing.part(attachment, request.hook, request.part)
        if answered is None:
            return
        prompt, text = answered
        output = hook_output(text)
        taken = b""
        try:
            writer.write(b"%s %d\n%s" % (PROTOCOL, len(output), output))
            async with asyncio.timeout(TAKEN_DEADLINE_S):
                await writer.drain()
                taken = await reader.read(1)
        finally:
            if taken == TAKEN:
                self._handing.taken(prompt, request.part)
            else:
                self._handing.not_taken(prompt, request.part)

    async def _request(self, reader: asyncio.StreamReader) -> Request | None:
        """The request of a client that knows the token; None for anybody else."""
        line = await reader.readuntil(b"\n")
        words = line[:-1].split(b" ")
        if len(line) > FIRST_LINE_MAX_BYTES or len(words) != 5 or words[0] != PROTOCOL:
            return None
        _, token, attachment, part, length = words
        if not hmac.compare_digest(token, self._token.encode("ascii")):
            return None
        number, size = int(part), int(length)
        if not 1 <= number <= ENTRIES_MAX or not 0 <= size <= INPUT_MAX_BYTES:
            return None
        return Request(attachment.decode("ascii"), number, HookInput.read(await reader.readexactly(size)))

    def _attachment(self, identifier: str) -> Attachment | None:
        """The attachment of that id, as the registry is now."""
        try:
            status = self._places.registry.stat()
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        except OSError:
            seen = None
        if self._registry[0] != seen:
            try:
                self._registry = (seen, {each.id: each for each in attachments(self._home)})
            except BuzzError as error:
                log.warning("%s", error)
        return self._registry[1].get(identifier)

    async def _look_after(self) -> None:
        while True:
            await self._write_sets()
            await asyncio.sleep(LOOK_EVERY_S)
            self._handing.look_after()
            # A client that this host answered too late has left a note as well.
            await self._bring_in()

    async def _write_sets(self, *, anyway: bool = False) -> None:
        """Bring the sets on disk in line with what would be handed over now; a fault is told and stops nothing.

        Guards are asked only where something has changed that can be seen, or the last look is a minute ago.
        """
        try:
            await self._taker.refresh(LOOK_EVERY_S)
            attached = attachments(self._home)
            looks = (attached, self._taker.looks(attached), monotonic() // ANYWAY_EVERY_S)
            if looks == self._looks and not anyway:
                return
            self._looks = looks
            for each in attached:
                current = await self._taker.take(each, resting_folder(each), notes="leave")
                await asyncio.to_thread(write_snapshot, self._home, each, current)
            await asyncio.to_thread(self._keep_files, attached)
        except (BuzzError, OSError) as error:
            log.warning("the sets on disk could not be written: %s", error)

    def _keep_files(self, attached: tuple[Attachment, ...]) -> None:
        if attached:
            with registry_lock(self._home):
                write_speakers(self._home, attachments(self._home))
            write_client(self._home)

    async def _bring_in(self) -> None:
        try:
            await asyncio.to_thread(bring_in, self._home, self._store)
        except (BuzzError, OSError) as error:
            log.warning("notes of what was handed over meanwhile could not be brought into the ledger: %s", error)


def endpoint_line(port: int, token: str) -> str:
    """What stands in `attach/endpoint`: version, port, token, and which process it is, so that a port which a dead
    host left is never mistaken for its own."""
    return f"1 {port} {token} {os.getpid()} {started_at(os.getpid()) or '-'}\n"


def started_at(pid: int) -> str | None:
    """When the process `pid` was started, in the kernel's ticks; None where that cannot be told (no such process)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return stat.rpartition(b") ")[2].split()[19].decode("ascii")
    except (OSError, IndexError):
        return None


def listening(home: Home) -> int | None:
    """The process that listens for the clients of `home`; None where none does."""
    try:
        words = Places(home).endpoint.read_text(encoding="ascii").split()
        pid, started = int(words[3]), words[4]
        os.kill(pid, 0)
    except (OSError, ValueError, IndexError):
        return None
    now = started_at(pid)
    return pid if now in (started, None) else None
