"""YAML by its own rules, for frontmatter that is more than plain `key: value` lines.

Apart from `frontmatter`, because the YAML library costs more to import than all else that a preview needs; most agent
files do without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
from buzz_host.agents.frontmatter import FRONTMATTER_MAX_DEPTH, Items, Node, Scalar, Table, describe
from buzz_host.agents.spec import AgentFileError


class YamlReader:
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
