"""One framer for every stream of JSON lines: cut at 0x0A and nowhere else, bounded, always whole text (DESIGN 13).

Text streams and `splitlines` also cut at U+2028, U+0085 and others, which may stand inside a JSON string. A lone
surrogate is no text: it becomes U+FFFD, and is counted. No I/O happens here: bytes go in, lines and values come out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NoReturn

import attrs

from buzz_author.errors import BuzzError
from buzz_author.json_values import JsonValue
from buzz_author.text import well_formed

LINE_MAX_BYTES: Final = 16 * 1024 * 1024
_REPLACEMENT: Final = "\ufffd"


class LineTooLong(BuzzError):
    """A line has more bytes than are taken; where the next one begins is not known, so the stream is of no use."""


class NotJson(BuzzError):
    """A line is no JSON value."""


class LineFramer:
    """Cuts one stream into lines of at most `limit_bytes`, in time that is linear in what is fed."""

    __slots__ = ("_limit_bytes", "_pieces", "_size")

    def __init__(self, limit_bytes: int = LINE_MAX_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, octets: bytes) -> list[bytes]:
        """The lines that `octets` complete, each without its 0x0A. Raises `LineTooLong` as soon as one is."""
        first, *others = octets.split(b"\n")
        self._keep(first)
        lines = []
        for piece in others:
            lines.append(b"".join(self._pieces))
            self._pieces.clear()
            self._size = 0
            self._keep(piece)
        return lines

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an unfinished line wait for the rest of it."""
        return self._size

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit_bytes:
            raise LineTooLong(f"a line has more than {self._limit_bytes:,} bytes, which is the most that is taken")
        if piece:
            self._pieces.append(piece)


@attrs.frozen
class DecodedLine:
    """The value of a line; `replaced` counts the lone surrogates, and bytes that are no UTF-8, which became U+FFFD."""

    value: JsonValue
    replaced: int = 0


def decode_line(line: bytes) -> DecodedLine:
    """The JSON value of `line`. Raises `NotJson`, with the place where it stops being JSON.

    Of two equal keys the last one counts. `NaN` and `Infinity` are refused: they are no JSON.
    """
    text, replaced = _text(line)
    try:
        value = json.loads(text, parse_constant=_no_constant)
        if _surrogate_escape().search(text):
            value, more = _without_surrogates(value)
            replaced += more
    except RecursionError:
        raise NotJson("expected a JSON value, found one that is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"expected a JSON value, found none: {error.msg} (character {error.pos})") from None
    except ValueError as error:  # a number of too many digits
        raise NotJson(f"expected a JSON value, found none: {error}") from None
    return DecodedLine(value, replaced)


def encode_line(value: object) -> bytes:
    """`value` as one line with its 0x0A; mappings of any class are taken, lone surrogates become U+FFFD.

    Raises `TypeError` for what JSON cannot say, `ValueError` for a number that is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_object)
    return well_formed(text).encode("utf-8") + b"\n"


def _text(line: bytes) -> tuple[str, int]:
    try:
        return line.decode("utf-8"), 0
    except UnicodeDecodeError:
        pass
    try:
        # A surrogate that was written as if it were a character is one character, not three bytes.
        text = well_formed(line.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        text = line.decode("utf-8", "replace")
    return text, text.count(_REPLACEMENT) - line.count(_REPLACEMENT.encode("utf-8"))


@lru_cache(maxsize=1)
def _surrogate_escape() -> re.Pattern[str]:
    return re.compile(r"\\u[dD][89a-fA-F]")


def _without_surrogates(value: Any) -> tuple[Any, int]:
    """`value` with each lone surrogate of a text or a key as U+FFFD, and how many there were."""
    if isinstance(value, str):
        whole = well_formed(value)
        return whole, whole.count(_REPLACEMENT) - value.count(_REPLACEMENT)
    replaced = 0
    if isinstance(value, list):
        items = []
        for each in value:
            item, more = _without_surrogates(each)
            items.append(item)
            replaced += more
        return items, replaced
    if isinstance(value, dict):
        members = {}
        for key, each in value.items():
            whole_key, of_key = _without_surrogates(key)
            members[whole_key], of_value = _without_surrogates(each)
            replaced += of_key + of_value
        return members, replaced
    return value, 0


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _as_object(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
