"""Where things stand in a JSON file that belongs to somebody else, so that it can be edited without being rewritten.

Reading gives the places of an object's members and an array's elements in the text itself. An edit is then one
insertion or a few deletions; every other byte stays: comments, order, spacing, line ends, a byte-order mark, a missing
last line end. Comments and trailing commas are read as well: people write them, although not every program reads them.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, Final, NoReturn

import attrs

from buzz_author.errors import BuzzError

BYTE_ORDER_MARK: Final = "\ufeff"
# One that nothing closes runs to the end of the text, so that hostile text costs no more than its length.
_STRING: Final = r'"(?:[^"\\]|\\.)*+(?:"|\Z)'


class JsonTextError(BuzzError):
    """The text is no JSON, or not of the shape that is needed; the message says where, without the file's name."""


@attrs.frozen
class Member:
    """A member of an object: its key, where the key begins, and where its value stands."""

    key: str
    start: int
    value_start: int
    value_end: int


@attrs.frozen
class Element:
    """An element of an array: where it stands."""

    start: int
    end: int


class JsonText:
    """A JSON text, read: `value` is what it says, and the places in it can be asked for.

    `plain` is the text with comments and trailing commas blanked out, character by character, so that places in it are
    places in `text`. `lenient` says that there were such. Raises `JsonTextError` with line and column.
    """

    def __init__(self, text: str) -> None:
        self.text: Final = text
        plain = " " + text[1:] if text.startswith(BYTE_ORDER_MARK) else text
        without_comments = _blanked(_comment(), plain)
        self.plain: Final = _blanked(_trailing_comma(), without_comments)
        self.has_comments: Final = without_comments != plain
        self.lenient: Final = self.plain != plain
        self.empty: Final = not self.plain.strip()
        self.value: Final[Any] = {} if self.empty else self._parsed()

    def _parsed(self) -> Any:
        try:
            return json.loads(self.plain, parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            raise JsonTextError(f"line {error.lineno}, column {error.colno}: {error.msg}: it is no JSON") from None
        except (ValueError, RecursionError) as error:
            raise JsonTextError(f"it cannot be read as JSON ({error})") from None

    @property
    def root(self) -> int:
        """Where the one value of the text begins."""
        return self._skip(0)

    def members(self, opening: int) -> list[Member]:
        """The members of the object that opens at `opening`, in order."""
        found: list[Member] = []
        at = self._skip(opening + 1)
        while self.plain[at] != "}":
            key_end = self._string_end(at)
            value = self._skip(self._skip(key_end) + 1)
            end = self.value_end(value)
            found.append(Member(json.loads(self.plain[at:key_end]), at, value, end))
            at = self._after(end)
        return found

    def elements(self, opening: int) -> list[Element]:
        """The elements of the array that opens at `opening`, in order."""
        found: list[Element] = []
        at = self._skip(opening + 1)
        while self.plain[at] != "]":
            end = self.value_end(at)
            found.append(Element(at, end))
            at = self._after(end)
        return found

    def value_end(self, start: int) -> int:
        """Where the value that begins at `start` ends."""
        first = self.plain[start]
        if first == '"':
            return self._string_end(start)
        if first not in "{[":
            scalar = _scalar().match(self.plain, start)
            return scalar.end() if scalar else start
        depth, at = 0, start
        for token in _structure().finditer(self.plain, start):
            at = token.end()
            if token[0] in ("{", "["):
                depth += 1
            elif token[0] in ("}", "]"):
                depth -= 1
                if depth == 0:
                    break
        return at

    def line(self, at: int) -> int:
        """The number of the line at `at`, from 1."""
        return self.text.count("\n", 0, at) + 1

    def closing(self, opening: int) -> int:
        """Where the bracket stands that closes the object or array at `opening`."""
        return self.value_end(opening) - 1

    def _string_end(self, start: int) -> int:
        found = _string().match(self.plain, start)
        return found.end() if found else start

    def _skip(self, at: int) -> int:
        while at < len(self.plain) and self.plain[at] in " \t\r\n":
            at += 1
        return at

    def _after(self, end: int) -> int:
        at = self._skip(end)
        return self._skip(at + 1) if self.plain[at] == "," else at


def _blanked(pattern: re.Pattern[str], text: str) -> str:
    # Group 1 is what goes; a string is matched too, so that what stands in one is left alone.
    def blank(match: re.Match[str]) -> str:
        if match[1] is None or (match[1] == "," and not _follows_a_value(text, match.start())):
            return match[0]
        return _no_line_end().sub(" ", match[1])

    return pattern.sub(blank, text)


def _follows_a_value(text: str, at: int) -> bool:
    at -= 1
    while at >= 0 and text[at] in " \t\r\n":
        at -= 1
    return at >= 0 and text[at] not in ",:[{"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


@lru_cache(maxsize=1)
def _comment() -> re.Pattern[str]:
    return re.compile(rf"{_STRING}|(//[^\r\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)", re.DOTALL)


@lru_cache(maxsize=1)
def _trailing_comma() -> re.Pattern[str]:
    return re.compile(rf"{_STRING}|(,)(?=\s*+[\]}}])", re.DOTALL)


@lru_cache(maxsize=1)
def _no_line_end() -> re.Pattern[str]:
    return re.compile(r"[^\r\n]")


@lru_cache(maxsize=1)
def _string() -> re.Pattern[str]:
    return re.compile(_STRING, re.DOTALL)


@lru_cache(maxsize=1)
def _structure() -> re.Pattern[str]:
    return re.compile(rf"{_STRING}|[{{}}\[\]]", re.DOTALL)


@lru_cache(maxsize=1)
def _scalar() -> re.Pattern[str]:
    return re.compile(r"[^\s,\]}]+")
