"""The services of a home, answered by its running host: calls go over the socket, one JSON object a line.

Blocking, on one thread, and light: a command that asks a host imports neither a loop nor the host. The host greets
first, so that a host of another version, or one that does not answer, is known before anything is asked.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from buzz_author.errors import BuzzError
from buzz_author.framing import LineFramer, NotJson, decode_line, encode_line
from buzz_host import VERSION
from buzz_host.services.connect import HostGone
from buzz_host.services.peers import same_person
from buzz_host.services.session_calls import CloseSession, InterruptSession, OpenedSession, SessionCall, TakeTurn
from buzz_host.services.wire import PROTOCOL_VERSION, structured, unstructured

if TYPE_CHECKING:
    from buzz_host.services.calls import Call, HomeCall, HostCall, TellingCall
    from buzz_host.services.conversation import Talk
    from buzz_host.services.place import Place
    from buzz_host.services.session_calls import Interruptible, OpenSession
    from buzz_host.sessions.turn_text import Event

GREETING_DEADLINE_S: Final = 5.0
CHUNK_BYTES: Final = 256 * 1024
# An answer of a host of ours may be the whole of a long turn; a request never is.
ANSWER_MAX_BYTES: Final = 1024 * 1024 * 1024
# An interrupted turn may take 15 s to come to rest, and its program 10 s to end.
LEAVE_DEADLINE_S: Final = 30.0
_RETRY_PAUSE_S: Final = 0.01

T = TypeVar("T")
E = TypeVar("E")


class HostUnreachable(BuzzError):
    """A host runs and cannot be asked: it does not answer, is of another version, or refuses."""


class HostFailed(Exception):
    """The host met a bug of ours while it answered; a note holds its traceback."""


def reach(place: Place) -> Remote | None:
    """The host at `place`; None where none lives there. Raises `HostUnreachable`, `ForeignPeer`."""
    connection = _connected(place)
    if connection is None:
        return None
    try:
        remote = Remote(connection, place.pid)
        if remote.greeted():
            return remote
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


class Remote:
    """`Services` of a running host. Made by `reach`."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._socket = connection
        self._pid = pid
        self._framer = LineFramer(ANSWER_MAX_BYTES)
        self._waiting: deque[bytes] = deque()
        self._asked = 0
        self._left = False

    def greeted(self) -> bool:
        """Read the greeting; False where the host ends instead. Raises `HostUnreachable`."""
        try:
            said = self._line()
        except TimeoutError:
            raise HostUnreachable(_silent(self._pid)) from None
        if said is None:
            return False
        self._socket.settimeout(None)
        if "error" in said:
            raise HostUnreachable(_message(said["error"]))
        if (said.get("v"), said.get("buzz")) != (PROTOCOL_VERSION, VERSION):
            raise HostUnreachable(
                f"the host that runs (process {self._pid}) is Buzz {said.get('buzz')}, and this command is {VERSION}: "
                f"end it with `kill {self._pid}`, and start `buzz serve` again"
            )
        return True

    def ask(self, call: HostCall[T] | HomeCall[T]) -> T:
        """The answer to `call`."""
        return self._answer(call, None)

    def follow(self, call: TellingCall[T, E], take: Callable[[E], None]) -> T:
        """The answer to `call`; `take` gets what it tells on the way."""
        return self._answer(call, lambda told: take(structured(told, call.told_type(), "event")))

    def run(self, opening: OpenSession, message: str, take: Callable[[Event], None], stoppable: Interruptible) -> str:
        """One turn in a session of its own."""
        opened: OpenedSession = structured(self._value(self._send(opening)), OpenedSession, "value")
        from buzz_host.sessions.turn_text import Event

        try:
            turn = self._send(TakeTurn(session=opened.session, message=message))
            with stoppable(lambda: self._interrupt(opened.session), self._leave):
                self._value(turn, lambda told: take(structured(told, Event, "event")))
                with suppress(BuzzError):  # the host closed it, or stops: the turn is over all the same
                    # While this is waited for, the program comes to its end.
                    self._value(self._send(CloseSession(session=opened.session)))
        except HostGone:
            raise
        except BaseException:
            self._leave()
            self._rest()
            raise
        return opened.session

    def converse(self, talk: Talk[T]) -> T:
        """Sessions of several turns."""
        import asyncio

        from buzz_host.services.remote_conversation import Connection

        async def conversed() -> T:
            self._socket.setblocking(False)
            connection = Connection(self._socket, self._framer, self._asked, gone=_gone(self._pid), raised=_raised)
            async with connection.read():
                return await talk(connection)

        try:
            return asyncio.run(conversed())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self.close()  # other answers may be lost in what was read

    def close(self) -> None:
        """Let go of the host; a turn that runs is interrupted by that."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, call: Call[T], told: Callable[[Any], None] | None) -> T:
        answer: T = structured(self._value(self._send(call), told), call.answer_type(), "value")
        return answer

    def _send(self, call: Call[Any] | SessionCall) -> int:
        self._asked += 1
        request = {"v": PROTOCOL_VERSION, "id": self._asked, "call": call.name, "arguments": unstructured(call)}
        with suppress(BrokenPipeError, ConnectionResetError):  # why is read, or seen, when its answer is
            self._socket.sendall(encode_line(request))
        return self._asked

    def _value(self, asked: int, told: Callable[[Any], None] | None = None) -> Any:
        """The value that answers the request `asked`; other answers are of no interest any more."""
        for said in self._lines():
            if said.get("id") not in (asked, None):
                continue
            if "error" in said:
                raise _raised(said["error"])
            if "event" in said:
                if told is not None and not self._left:
                    told(said["event"])
            elif said.get("id") == asked:
                return said.get("value")
        if self._left:
            raise KeyboardInterrupt
        raise HostGone(_gone(self._pid))

    def _interrupt(self, session: str) -> None:
        self._send(InterruptSession(session=session))

    def _leave(self) -> None:
        """Say that nobody is here any more: the host interrupts what runs, records it, and hangs up."""
        self._left = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _rest(self) -> None:
        """Wait until the host has hung up, for so long as it may take to interrupt a turn."""
        self._socket.settimeout(LEAVE_DEADLINE_S)
        with suppress(OSError, BuzzError):
            for _ in self._lines():
                pass

    def _lines(self) -> Iterator[Mapping[str, Any]]:
        while (said := self._line()) is not None:
            yield said

    def _line(self) -> Mapping[str, Any] | None:
        """The next line of the host; None at its end."""
        while not self._waiting:
            try:
                octets = self._socket.recv(CHUNK_BYTES)
            except ConnectionResetError:
                return None
            if not octets:
                return None
            self._waiting.extend(self._framer.feed(octets))
        try:
            value = decode_line(self._waiting.popleft()).value
        except NotJson as error:
            raise HostUnreachable(f"process {self._pid} does not speak as a host of Buzz: {error}") from None
        if not isinstance(value, Mapping):
            raise HostUnreachable(f"process {self._pid} does not speak as a host of Buzz")
        return value


def _connected(place: Place) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(GREETING_DEADLINE_S)
    until = time.monotonic() + GREETING_DEADLINE_S
    while True:
        try:
            connection.connect(os.fspath(place.socket or ""))
            same_person(connection)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except BlockingIOError:  # many clients at once: its queue is full
            if time.monotonic() > until:
                connection.close()
                raise HostUnreachable(_silent(place.pid)) from None
            time.sleep(_RETRY_PAUSE_S)
        except OSError as error:
            connection.close()
            raise HostUnreachable(
                f"the host that runs (process {place.pid}) cannot be reached: {place.socket}: {error.strerror}"
            ) from None
        except BaseException:
            connection.close()
            raise
        else:
            return connection


def _gone(pid: int) -> str:
    return f"the host (process {pid}) ended before it answered; what it did is in the ledger: buzz audit turns"


def _silent(pid: int) -> str:
    return (
        f"the host that runs (process {pid}) does not answer within {GREETING_DEADLINE_S:g} s: "
        f"wait, or end it with `kill {pid}`"
    )


def _message(error: Any) -> str:
    return str(error.get("message", "")) if isinstance(error, Mapping) else str(error)


def _raised(error: Any) -> Exception:
    if not isinstance(error, Mapping) or error.get("kind") != "bug":
        return BuzzError(_message(error))
    failed = HostFailed(_message(error))
    failed.add_note(f"In the host:\n{error.get('traceback', '')}")
    return failed
