"""The other faces of a running host: what listens beside its socket, for people's own sessions, the panel, an editor.

A face is started when the host is up, before it says that it is ready, and stopped before the host goes. What it serves
comes from the host that it is given, so all faces show the same.
"""

from __future__ import annotations

from typing import Protocol

from buzz_host.services.host import Host


class Face(Protocol):
    """Something that listens while a host runs."""

    async def start(self, host: Host) -> None:
        """Begin to listen. Raises `BuzzError` in one line where it cannot: the host then does not start."""
        ...

    async def stop(self) -> None:
        """End in order, within a few seconds; called once, and only after `start` returned."""
        ...


def faces() -> tuple[Face, ...]:
    """The faces of every running host, in the order in which they start; each call makes new ones."""
    from buzz_host.attach.listener import AttachListener

    return (AttachListener(),)
