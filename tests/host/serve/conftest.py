"""What tests of a running host stand on: a host that serves in this process, on a socket of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest

from buzz_host.serve.listening import Listening
from buzz_host.services.host import Host
from buzz_host.services.place import socket_path
from buzz_host.settings import Home

STOP_DEADLINE_S = 5.0


@attrs.frozen
class Served:
    """A host that serves, and its socket."""

    host: Host
    listening: Listening

    @property
    def path(self) -> Path:
        """Where it listens."""
        return self.listening.path


@pytest.fixture
async def served(home: Path) -> AsyncIterator[Served]:
    """The host of `home`; what is in its plugin folder by then runs."""
    async with Host(home) as host:
        listening = Listening(socket_path(Home(home)), host)
        await listening.start()
        try:
            yield Served(host, listening)
        finally:
            await listening.stop(STOP_DEADLINE_S)
