"""What a call of a face is: its name, its arguments, and what answers it. The calls themselves are in `calls`.

Apart from them because a command makes one call, and should not pay for the classes of all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from buzz_host.services.host import Host
    from buzz_host.settings import Home

T = TypeVar("T")
E = TypeVar("E")


class Call(Generic[T]):
    """What all calls share. `name` is the call's on the socket."""

    __slots__ = ()
    name: ClassVar[str]

    @staticmethod
    @abstractmethod
    def answer_type() -> object:
        """The type of the answer, for reading it off the socket."""


class HostCall(Call[T]):
    """A call that needs a host whose plugins run."""

    __slots__ = ()

    @abstractmethod
    async def answer(self, host: Host) -> T:
        """The answer of `host`. Raises `BuzzError`."""


class HomeCall(Call[T]):
    """A call that needs the files of a home alone; it may block, so a host answers it on a thread."""

    __slots__ = ()

    @abstractmethod
    def answer(self, home: Home) -> T:
        """The answer for `home`. Raises `BuzzError`."""


class TellingCall(Call[T], Generic[T, E]):
    """A `HomeCall` that tells what it meets on its way to the answer."""

    __slots__ = ()

    @staticmethod
    @abstractmethod
    def told_type() -> object:
        """The type of what it tells."""

    @abstractmethod
    def answer(self, home: Home, tell: Callable[[E], None]) -> T:
        """The answer for `home`; `tell` is called from the thread that answers. Raises `BuzzError`."""
