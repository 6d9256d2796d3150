"""The words for what is wrong in a TOML file that people write, the same for every such file.

A line names the file, the place and what was expected; an unknown key gets a suggestion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import tomllib

KeyPath: TypeAlias = tuple[str, ...]


def broken(file: str, error: tomllib.TOMLDecodeError, text: str) -> str:
    """The line for a `text` that is no TOML, with line and column."""
    message = str(error)
    # tomllib says the place at the end of its message, or that the document ended.
    placed = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.DOTALL)
    if placed:
        what, line, column = placed[1], int(placed[2]), int(placed[3])
    else:
        lines = text.split("\n")
        what, line, column = message.removesuffix(" (at end of document)"), len(lines), len(lines[-1]) + 1
    return f"{file}: line {line}, column {column}: {' '.join(what.split())}"


def unknown_keys(file: str, table: Mapping[str, object], known: Sequence[str], path: KeyPath = ()) -> list[str]:
    """A line for each key of the table at `path` that is not `known`, with a suggestion."""
    lines = []
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the keys here are {', '.join(known)}"
            lines.append(f"{file}: {dotted((*path, key))}: this key is not known; {hint}")
    return lines


def dotted(path: KeyPath) -> str:
    """A key's path as TOML writes it, quoted where it has to be."""
    return ".".join(key if re.fullmatch(r"[\w-]+(\[\d+\])?", key, re.ASCII) else _quoted(key) for key in path)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    shown = "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in escaped)
    return f'"{shown if len(shown) <= 80 else shown[:77] + "..."}"'


def found(value: object) -> str:
    """What a value is, for `expected …, found …`."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f"the text {_quoted(value)}"
        case int() | float():
            return f"the number {value}"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a table"
        case _:
            return "a date or time"
