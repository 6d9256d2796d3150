"""The host: finds plugins, composes turns, drives harnesses, keeps the ledger. People's code needs `Host` alone.

`Host` is imported on first use: the command line's help must not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from buzz_host.services.host import Host

__all__ = ["VERSION", "Host"]

# The version that `pyproject.toml` says; read from there it would cost more than a command that asks a running host.
VERSION: Final = "0.1.0"


def __getattr__(name: str) -> object:
    if name != "Host":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from buzz_host.services.host import Host

    return Host
