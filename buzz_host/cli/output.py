"""What verbs print through: JSON Lines for programs, plain lines for people.

JSON is UTF-8 whatever the locale says, and holds no character that a terminal would obey or that a reader might take
for the end of a line. Lines for people are made safe for a terminal by whoever has the foreign text (`terminal`).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import click


def print_json(row: Mapping[str, Any]) -> None:
    """One JSON object on one line of stdout, at once."""
    write_bytes(json_line(row).encode("utf-8"))


def json_line(row: Mapping[str, Any]) -> str:
    """`row` as one line of JSON with its line end; text as it is, save what is no plain character."""
    line = json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return _no_plain_character().sub(_escaped, line) + "\n"


def write_bytes(octets: bytes) -> None:
    """`octets` on stdout as they are, at once, after whatever was printed before."""
    sys.stdout.flush()
    stream = sys.stdout.buffer
    left = memoryview(octets)
    while left:
        # With PYTHONUNBUFFERED this is the file itself, which may take a part only.
        left = left[stream.write(left) :]
    stream.flush()


def note(line: str, **style: Any) -> None:
    """A line beside the output, on stderr; `style` as `click.style` takes it."""
    click.secho(line, err=True, **style)


def is_terminal() -> bool:
    """Whether a person's terminal is what stdout leads to."""
    return sys.stdout.isatty()


@lru_cache(maxsize=1)
def _no_plain_character() -> re.Pattern[str]:
    # C1 controls and U+0085, what turns the direction of writing, line and paragraph separators, lone surrogates.
    return re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    # A lone surrogate is no character: readers that are strict refuse its escape as well.
    return "\ufffd" if "\ud800" <= character <= "\udfff" else f"\\u{ord(character):04x}"


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
