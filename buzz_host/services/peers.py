"""Who is at the other end of a Unix socket, as the kernel says, and where a host's socket may stand (SEC-01).

Both ends judge each other by the same rule: only processes of the same person take part. This does not tell one program
of a person's from another, and does not cover a superuser, who can read the person's memory anyway.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

import attrs

from buzz_author.errors import BuzzError

_CREDENTIALS: Final = struct.Struct("3i")


class ForeignPeer(BuzzError):
    """A process of somebody else's is at the other end."""


@attrs.frozen
class Peer:
    """The process at the other end of a socket, when it connected or began to listen."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """The other end of `connection`. Raises `BuzzError` on a system that does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        raise BuzzError("this system does not say who is at the other end of a socket: a host cannot be reached safely")
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return Peer(pid, uid)


def same_person(connection: socket.socket) -> Peer:
    """The other end of `connection`. Raises `ForeignPeer` where it runs under another uid, the superuser's included."""
    peer = peer_of(connection)
    if peer.uid != os.geteuid():
        raise ForeignPeer(
            f"process {peer.pid} of uid {peer.uid} is at the other end, and this one has uid {os.geteuid()}: "
            "a host answers to its own person only"
        )
    return peer
