"""The host: finds plugins, composes turns, drives harnesses, keeps the ledger.

People's code needs `Host`, and the classes of the events that a session yields. Each is imported on first use: the
command line's help must not pay for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from buzz_host.services.host import Host
    from buzz_host.sessions.events import (
        Compacted,
        Event,
        PermissionRequested,
        PermissionSettled,
        Preview,
        QuestionAsked,
        Retrying,
        SectionRow,
        SessionEnded,
        SessionEvent,
        SteerSettled,
        TextDelta,
        ToolCall,
        ToolResult,
        TurnCompleted,
        TurnStarted,
    )
    from buzz_host.sessions.lease import SessionInUse
    from buzz_host.sessions.requests import NotAsked

__all__ = [
    "VERSION",
    "Compacted",
    "Event",
    "Host",
    "NotAsked",
    "PermissionRequested",
    "PermissionSettled",
    "Preview",
    "QuestionAsked",
    "Retrying",
    "SectionRow",
    "SessionEnded",
    "SessionEvent",
    "SessionInUse",
    "SteerSettled",
    "TextDelta",
    "ToolCall",
    "ToolResult",
    "TurnCompleted",
    "TurnStarted",
]

# The version that `pyproject.toml` says; read from there it would cost more than a command that asks a running host.
VERSION: Final = "0.1.0"
_MODULES: Final = {
    "Host": "services.host",
    "NotAsked": "sessions.requests",
    "SessionInUse": "sessions.lease",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'sessions.events')}"), name)
