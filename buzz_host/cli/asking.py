"""How a verb asks: one call about the home that the command names, through its running host when there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from buzz_host.cli.options import home_path

if TYPE_CHECKING:
    from buzz_host.services.calls import HomeCall, HostCall

T = TypeVar("T")


def ask(call: HostCall[T] | HomeCall[T], plugins: Sequence[str] = ()) -> T:
    """The answer to `call`, with further `plugins` of this command. Raises `BuzzError` in one line."""
    from buzz_host.services.connect import connect

    with connect(home_path(), plugins) as services:
        return services.ask(call)
