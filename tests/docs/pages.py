"""The pages as a reader sees them: prose, tables, and fenced blocks whose info strings say what a block is.

Behind the language of a fence stands what a test does with the block: `file=NAME` writes it, `run` executes it,
`output` is what the block before it printed, `exit=N` the code that its command ends with; a command with `background`
goes on while the rest of the page is read. GitHub shows none of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.quality.tree import ROOT, relative

# docs/rehearsal.md has tests of its own (tests/host/rehearsal/test_docs.py); the table of requirements shows no code.
PAGES = tuple(
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if path.name not in ("rehearsal.md", "requirements.md")
)
LANGUAGES = frozenset({"console", "json", "markdown", "python", "sh", "text", "toml"})
_FENCE = re.compile(r"^```(?P<language>[\w+-]*)(?P<info>[^\n]*)\n(?P<text>.*?)^``` *$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\|(?P<cells>.*)\|$")


@attrs.frozen
class Block:
    """One fenced block; `info` holds the words behind its language, a word without `=` with an empty value."""

    page: str
    line: int
    language: str
    info: dict[str, str]
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> tuple[Block, ...]:
    """The fenced blocks of `page`, in order."""
    return tuple(_blocks(page))


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        words = (word.partition("=") for word in shlex.split(found["info"]))
        info = {name: value for name, _, value in words}
        yield Block(relative(page), text.count("\n", 0, found.start()) + 1, found["language"], info, found["text"])


def tables(page: Path) -> dict[str, list[list[str]]]:
    """The tables of `page`: the heading row, as text, to the rows below it. Tables with one heading are joined."""
    made: dict[str, list[list[str]]] = {}
    rows: list[list[str]] | None = None
    lines = _FENCE.sub("", page.read_text(encoding="utf-8")).split("\n")
    for number, line in enumerate(lines):
        cells = _cells(line)
        if cells is None:
            rows = None
        elif rows is None and set(lines[number + 1]) <= set("|-: "):
            rows = made.setdefault(" | ".join(cells), [])
        elif rows is not None and not set(line) <= set("|-: "):
            rows.append(cells)
    return made


def _cells(line: str) -> list[str] | None:
    row = _ROW.match(line)
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row["cells"])] if row else None


def code(cell: str) -> list[str]:
    """The words in backticks of one cell."""
    return re.findall(r"`([^`]+)`", cell)
