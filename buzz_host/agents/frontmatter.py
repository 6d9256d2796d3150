"""YAML frontmatter as text with line numbers: what a person wrote, not what YAML makes of it.

`name: no` is the text "no", a key that stands twice is an error with both lines, and nothing in a file can cost more
than its length: aliases, anchors, tags and deep nesting, which no agent file needs, are refused where they stand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from buzz_host.agents.spec import AgentFileError

# The YAML reader is pure Python and takes about a second for a megabyte; a long agent file has 2 KiB of frontmatter.
FRONTMATTER_MAX_CHARS: Final = 64 * 1024
FRONTMATTER_MAX_DEPTH: Final = 8

_FENCE: Final = re.compile(r"---[ \t]*")
# A line that means the same to anybody who knows no YAML at all: a word, a colon, and a text that begins with a letter
# and holds nothing that YAML could take for more.
_PLAIN_LINE: Final = re.compile(r"([a-z][a-z_]*): ([A-Za-z][A-Za-z0-9 .,;'()/_-]*)")


@attrs.frozen
class Scalar:
    """One value as its text. `plain` says that it stands without quotes, so that `null` may mean nothing."""

    text: str
    line: int
    plain: bool

    @property
    def is_blank(self) -> bool:
        """Whether it says nothing: left empty, or one of YAML's words for that."""
        return self.plain and self.text in ("", "~", "null", "Null", "NULL")


@attrs.frozen
class Items:
    """A list."""

    items: tuple[Node, ...]
    line: int


@attrs.frozen
class Table:
    """A mapping: key -> the line of the key, and its value."""

    entries: dict[str, tuple[int, Node]]
    line: int


Node: TypeAlias = "Scalar | Items | Table"


@attrs.frozen
class Document:
    """A file taken apart: its frontmatter, and the text below it, whose first line is `body_line`."""

    frontmatter: Table
    body: str
    body_line: int


def read_document(path: Path, text: str) -> Document:
    """The frontmatter and the body of `text`, which is the content of `path` with `\\n` as its only line end.

    Raises `AgentFileError` for text without frontmatter, and for YAML that is broken or is no plain mapping.
    """
    lines = text.split("\n")
    if not _FENCE.fullmatch(lines[0]):
        raise AgentFileError(path, 1, "no frontmatter, expected a first line of '---'")
    closing = next((number for number, line in enumerate(lines[1:], 1) if _FENCE.fullmatch(line)), None)
    if closing is None:
        raise AgentFileError(path, 1, "the frontmatter does not end, expected a second line of '---'")
    yaml = "\n".join(lines[1:closing]) + "\n"
    if len(yaml) > FRONTMATTER_MAX_CHARS:
        raise AgentFileError(
            path, 1, f"the frontmatter has {len(yaml)} characters, expected at most {FRONTMATTER_MAX_CHARS}"
        )
    frontmatter = plain_table(lines[1:closing])
    if frontmatter is None:
        from buzz_host.agents.yaml_reader import YamlReader

        # One empty line in place of the opening fence, so that the lines of the YAML are those of the file.
        frontmatter = YamlReader(path, "\n" + yaml).read()
    return Document(frontmatter, "\n".join(lines[closing + 1 :]), closing + 2)


def plain_table(lines: list[str]) -> Table | None:
    """What `lines`, which begin with the second of a file, say if all are plain `key: value` lines; else None.

    The same as a YAML reader gives, for the files that need none.
    """
    entries: dict[str, tuple[int, Node]] = {}
    for number, line in enumerate(lines, 2):
        match = _PLAIN_LINE.fullmatch(line)
        if match is None or match[1] in entries:
            return None
        entries[match[1]] = (number, Scalar(match[2].rstrip(" "), number, plain=True))
    return Table(entries, 2) if entries else None


def describe(node: Node) -> str:
    """What a node is, for a message."""
    if isinstance(node, Scalar):
        shown = node.text if len(node.text) <= 40 else node.text[:37] + "..."
        return "nothing" if node.is_blank else repr(shown)
    return "a list" if isinstance(node, Items) else "a mapping"
