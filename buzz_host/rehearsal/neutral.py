"""What was asked and what is answered, in terms of no protocol.

A dialect (one module per protocol, beside this one) turns a request into `Asked` and an `Answer` into bytes; the
engine between them knows neither HTTP nor JSON bodies. Values are named tuples and not attrs classes because the
server starts on the standard library alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol


class NotUnderstood(ValueError):
    """A request that its protocol does not allow, or a directive that means nothing; answered with status 400."""


class NewestText(NamedTuple):
    """The newest text that a user wrote. `place` tells two equal texts of one conversation apart."""

    text: str
    place: str


class ToolReturn(NamedTuple):
    """What a tool gave back after the newest user text; `name` is empty where the request does not tell.

    `notices` are texts that the program itself put into the tool's result, such as a message that arrived meanwhile.
    """

    call_id: str
    name: str
    text: str
    is_error: bool
    notices: tuple[str, ...] = ()


class Asked(NamedTuple):
    """One request for an answer.

    `namespaced` names the tools that the request offers in two parts, namespace and name, by both joined with `__`.
    `freeform` are tools that take a text and no JSON object. `counted`: whether the answer tells its tokens.
    """

    model: str
    stream: bool
    session: str
    newest: NewestText
    returns: tuple[ToolReturn, ...]
    input_tokens: int
    namespaced: Mapping[str, tuple[str, str]] = MappingProxyType({})
    freeform: frozenset[str] = frozenset()
    counted: bool = True


class Said(NamedTuple):
    """A block of text in an answer."""

    text: str


class Called(NamedTuple):
    """A tool call in an answer; a dialect puts what its ids begin with in front of `call_id`.

    `freeform` is the text for a tool that takes no JSON object.
    """

    call_id: str
    name: str
    arguments: Mapping[str, object]
    namespace: str = ""
    freeform: str | None = None


class Answer(NamedTuple):
    """One whole answer of the model."""

    answer_id: str
    model: str
    parts: tuple[Said | Called, ...]
    input_tokens: int
    output_tokens: int
    counted: bool = True


class Piece(NamedTuple):
    """One part of a streamed answer; a slow answer pauses before each delta but the first."""

    octets: bytes
    is_delta: bool


class Dialect(Protocol):
    """One wire protocol. A module with these names is one."""

    ANSWER_PATHS: frozenset[str]

    def understand(self, body: object) -> Asked:
        """The request as asked; raises `NotUnderstood` with what is wrong and where."""

    def newest_user_text(self, body: object) -> NewestText | None:
        """The newest text of a user in a request body; None where there is none, or it is no request."""

    def other(self, method: str, path: str, body: object) -> object | None:
        """The JSON answer of a side request (counting tokens, …); None where this dialect has no such path."""

    def whole(self, answer: Answer) -> object:
        """The answer as one JSON value."""

    def pieces(self, answer: Answer) -> Iterator[Piece]:
        """The answer as a stream of server-sent events."""

    def failure(self, status: int, message: str) -> object:
        """The error body for a status."""


def estimated_tokens(octets: int) -> int:
    """A plausible count for a text of that many bytes: four bytes a token, at least one."""
    return max(1, octets // 4)
