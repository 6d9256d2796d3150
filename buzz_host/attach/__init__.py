"""People's own sessions: the current sections on each prompt of the Claude Code that somebody runs in their terminal.

Nothing of ours drives that program. It runs a hook before each prompt; the hook is a tiny client that asks the running
host, or falls back to the last set on disk. What was handed over stands in the ledger; what the program made of it is
nothing that Buzz can know, and nothing that it claims (AUT-03).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from buzz_host.attach.inspection import findings, status
    from buzz_host.attach.listener import AttachListener, listening
    from buzz_host.attach.snapshots import write_snapshots
    from buzz_host.attach.spool import bring_in

__all__ = ["AttachListener", "bring_in", "findings", "listening", "status", "write_snapshots"]

_HOMES = {
    "AttachListener": "listener",
    "bring_in": "spool",
    "findings": "inspection",
    "listening": "listener",
    "status": "inspection",
    "write_snapshots": "snapshots",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
