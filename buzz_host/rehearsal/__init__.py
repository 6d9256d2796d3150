"""A model server that needs no model: what a harness sends is recorded, what it gets back is scripted (HAR-05).

It runs in a process of its own, so that its record is a second witness of what was sent. The host side is
`Rehearsal`; the server is `python -m buzz_host.rehearsal`. Names are imported on first use: the server starts
through this package and must not pay for the host side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from buzz_host.rehearsal.process import Rehearsal
    from buzz_host.rehearsal.recorded import RecordedRequest, RehearsalError, newest_user_text, read_record

__all__ = ["RecordedRequest", "Rehearsal", "RehearsalError", "newest_user_text", "read_record"]

_HOMES = {
    "RecordedRequest": "recorded",
    "Rehearsal": "process",
    "RehearsalError": "recorded",
    "newest_user_text": "recorded",
    "read_record": "recorded",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
