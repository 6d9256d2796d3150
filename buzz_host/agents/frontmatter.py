"""YAML frontmatter as text with line numbers: what a person wrote, not what YAML makes of it.

`name: no` is the text "no", a key that stands twice is an error with both lines, and nothing in a file can cost more
than its length: aliases, anchors, tags and deep nesting, which no agent file needs, are refused where they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import attrs
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from buzz_author.text import well_formed
from buzz_host.agents.spec import AgentFileError

# The YAML reader is pure Python and takes about a second for a megabyte; a long agent file has 2 KiB of frontmatter.
FRONTMATTER_MAX_CHARS: Final = 64 * 1024
FRONTMATTER_MAX_DEPTH: Final = 8

_FENCE: Final = re.compile(r"---[ \t]*")


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
    # One empty line in place of the opening fence, so that the lines of the YAML are those of the file.
    frontmatter = _Reader(path, "\n" + yaml).read()
    return Document(frontmatter, "\n".join(lines[closing + 1 :]), closing + 2)


class _Reader:
    """Builds nodes from YAML events; recursion is bounded by `FRONTMATTER_MAX_DEPTH`."""

    def __init__(self, path: Path, yaml: str) -> None:
        self._path = path
        self._yaml = yaml

    def read(self) -> Table:
        events: Iterator[Event] = YAML(typ="safe", pure=True).parse(self._yaml)
        try:
            return self._document(events)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = self._line(mark.index) if mark else 1
            raise AgentFileError(self._path, line, self._explained(str(error.problem or error.context))) from error
        except YAMLError as error:
            # A character that YAML does not allow; it is the only error without a mark.
            position = getattr(error, "position", 0)
            shown = f"U+{ord(self._yaml[position]):04X}" if position < len(self._yaml) else "a character"
            raise AgentFileError(
                self._path, self._line(position), f"{shown} may not stand in YAML, expected printable text"
            ) from error

    def _document(self, events: Iterator[Event]) -> Table:
        next(events)  # the start of the stream
        start = next(events)
        if isinstance(start, StreamEndEvent):
            return Table({}, 1)
        if isinstance(start, DocumentStartEvent) and (start.version or start.tags):
            raise self._error(start, "a YAML directive, expected 'key: value' lines")
        root = self._node(next(events), events, 0)
        next(events)  # the end of the document
        after = next(events)
        if not isinstance(after, StreamEndEvent):
            raise self._error(after, "a second YAML document, expected one")
        if isinstance(root, Scalar) and root.is_blank:
            return Table({}, 1)
        if not isinstance(root, Table):
            raise AgentFileError(self._path, root.line, f"{describe(root)}, expected 'key: value' lines")
        return root

    def _node(self, event: Event, events: Iterator[Event], depth: int) -> Node:
        if isinstance(event, AliasEvent) or (isinstance(event, NodeEvent) and event.anchor is not None):
            mark = "*" if isinstance(event, AliasEvent) else "&"
            raise self._error(event, f"'{mark}{event.anchor}' (an anchor or alias), expected the value written out")
        if getattr(event, "tag", None) is not None:
            raise self._error(event, "a YAML tag, expected a plain value")
        if depth > FRONTMATTER_MAX_DEPTH:
            raise self._error(event, f"values nested too deeply, expected at most {FRONTMATTER_MAX_DEPTH} levels")
        line = self._line(event.start_mark.index)
        if isinstance(event, ScalarEvent):
            # An escape such as "\ud800" can write what no file can hold.
            return Scalar(well_formed(event.value), line, plain=event.style is None)
        if isinstance(event, SequenceStartEvent):
            items = []
            while not isinstance(item := next(events), SequenceEndEvent):
                items.append(self._node(item, events, depth + 1))
            return Items(tuple(items), line)
        return self._table(line, events, depth)

    def _table(self, line: int, events: Iterator[Event], depth: int) -> Table:
        entries: dict[str, tuple[int, Node]] = {}
        while not isinstance(event := next(events), MappingEndEvent):
            key = self._node(event, events, depth + 1)
            if not isinstance(key, Scalar):
                raise AgentFileError(self._path, key.line, f"{describe(key)} as a key, expected a word")
            if key.text in entries:
                raise AgentFileError(
                    self._path,
                    key.line,
                    f"the key {describe(key)} stands twice (first on line {entries[key.text][0]}), expected it once",
                )
            entries[key.text] = (key.line, self._node(next(events), events, depth + 1))
        return Table(entries, line)

    def _line(self, index: int) -> int:
        # Counted here: the reader's own marks also count U+0085 and U+2028 as line ends, editors do not.
        return self._yaml.count("\n", 0, index) + 1

    def _error(self, event: Event, what: str) -> AgentFileError:
        return AgentFileError(self._path, self._line(event.start_mark.index), what)

    @staticmethod
    def _explained(problem: str) -> str:
        if "mapping values are not allowed" in problem:
            return "a ': ' inside a value, expected the value in quotes (key: \"one: two\")"
        if "\\t" in problem:
            return "a tab, expected spaces for indenting"
        return f"broken YAML ({problem}), expected 'key: value' lines"


def describe(node: Node) -> str:
    """What a node is, for a message."""
    if isinstance(node, Scalar):
        shown = node.text if len(node.text) <= 40 else node.text[:37] + "..."
        return "nothing" if node.is_blank else repr(shown)
    return "a list" if isinstance(node, Items) else "a mapping"
