"""One way to the services of a home: through its running host when there is one, else in this process (CLI-01).

A face says `with connect(home) as services`, and makes its calls; it cannot tell which of the two answered. Further
plugins of one command (`--plugin`) are that command's own, so it is answered in this process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from buzz_author.errors import BuzzError
from buzz_host.services.place import place_of
from buzz_host.settings import Home

if TYPE_CHECKING:
    from buzz_host.services.call import HomeCall, HostCall, TellingCall
    from buzz_host.services.conversation import Talk
    from buzz_host.services.session_calls import Interruptible, OpenSession
    from buzz_host.sessions.turn_text import Event

T = TypeVar("T")
E = TypeVar("E")


class HostGone(BuzzError):
    """The running host ended before it answered."""


class Services(Protocol):
    """What can be asked about one home; use it as a context manager, from one thread."""

    def ask(self, call: HostCall[T] | HomeCall[T]) -> T:
        """The answer to `call`. Raises `BuzzError` in one line."""
        ...

    def follow(self, call: TellingCall[T, E], take: Callable[[E], None]) -> T:
        """The answer to `call`; `take` gets what it tells on the way, in order. Raises `BuzzError`."""
        ...

    def run(self, opening: OpenSession, message: str, take: Callable[[Event], None], stoppable: Interruptible) -> str:
        """One turn in a session of its own, to its end; the id of the session.

        `take` gets the events. `stoppable` is entered while the turn can be stopped. Raises `BuzzError` (`HostGone`
        where the host ended in the middle), and `KeyboardInterrupt` where the turn was left.
        """
        ...

    def converse(self, talk: Talk[T]) -> T:
        """Sessions of as many turns as `talk` takes, on a loop of its own; what `talk` gives.

        The last thing that is asked of these services. Raises what `talk` raises, and `KeyboardInterrupt` where it was
        cancelled.
        """
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def connect(home: Path | None = None, plugins: Sequence[Path | str] = ()) -> Services:
    """The services of `home` (`$BUZZ_HOME`, else `~/.buzz`), with further `plugins` if there are any.

    Raises `BuzzError` where a host runs that cannot be asked: one that does not answer, is of another version, or is
    somebody else's.
    """
    resolved = Home.resolve(home)
    if not plugins and (place := place_of(resolved)) is not None and place.socket is not None:
        from buzz_host.services.remote import reach

        remote = reach(place)
        if remote is not None:
            return remote
    from buzz_host.services.local import Local

    return Local(resolved, plugins)


def here() -> str:
    """The folder that the person is in, for calls. Raises `BuzzError` where it is gone."""
    try:
        return os.getcwd()  # noqa: PTH109 - a text goes to the host
    except FileNotFoundError:
        raise BuzzError("the folder that this command runs in is gone: change to one that is there") from None


def from_here(path: Path | str) -> str:
    """`path` as a text that means the same in another process; links in it are left as they are."""
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - `..` goes by the text
