"""What was said in a conversation, in terms of no protocol, kept on disk line by line.

Each item is durable before anything follows from it, so a process that is killed leaves a conversation that can be gone
on with: a line that was cut off is dropped, and a call without a result gets one that says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

FOLDER: Final = "conversations"
CUT_OFF: Final = "the call was cut off before it returned"


@attrs.frozen
class Said:
    """A message of the user or of the assistant."""

    role: str
    text: str


@attrs.frozen
class Called:
    """A call that the assistant made; `arguments` is the JSON text that it wrote."""

    call: str
    name: str
    arguments: str


@attrs.frozen
class Returned:
    """What a call gave back; `images` are data addresses."""

    call: str
    text: str
    images: tuple[str, ...] = ()


@attrs.frozen
class Trimmed:
    """From here on the model is sent only what came after the first `items` items."""

    items: int


Item: TypeAlias = Said | Called | Returned
_KINDS: Final[Mapping[str, type[Any]]] = {each.__name__.lower(): each for each in (Said, Called, Returned, Trimmed)}


class Transcript:
    """One conversation; `items` is all of it, `current` what the model is sent."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.items: list[Item] = []
        self.first: int = 0
        """How many items the model is not sent any more."""

    @classmethod
    def at(cls, folder: Path, identifier: str) -> Transcript:
        """The conversation of this id below `folder`, as far as it was written."""
        made = cls(folder / FOLDER / f"{identifier}.jsonl")
        try:
            octets = made.path.read_bytes()
        except FileNotFoundError:
            return made
        whole = octets[: octets.rfind(b"\n") + 1]
        for line in whole.split(b"\n"):
            if line:
                made._take(_read(line))
        if len(whole) != len(octets):  # its writer was killed in the middle of a line
            with made.path.open("r+b") as file:
                file.truncate(len(whole))
        made._answer_open_calls()
        return made

    @property
    def current(self) -> Sequence[Item]:
        """What the model is sent."""
        return self.items[self.first :]

    def add(self, *items: Item) -> None:
        """Keep `items`, on disk first. Raises `OSError`."""
        self._write(*items)
        self.items.extend(items)

    def trim(self, first: int) -> None:
        """Send only what comes after the first `first` items from now on. Raises `OSError`."""
        self._write(Trimmed(first))
        self.first = first

    def _take(self, item: Item | Trimmed) -> None:
        if isinstance(item, Trimmed):
            self.first = min(item.items, len(self.items))
        else:
            self.items.append(item)

    def _answer_open_calls(self) -> None:
        returned = {each.call for each in self.items if isinstance(each, Returned)}
        left = [each for each in self.items if isinstance(each, Called) and each.call not in returned]
        if left:
            self.add(*(Returned(each.call, CUT_OFF) for each in left))

    def _write(self, *items: Item | Trimmed) -> None:
        for folder in (self.path.parent.parent, self.path.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # those made on the way get the usual mode
        lines = b"".join(_written(each) for each in items)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            while lines:
                lines = lines[os.write(descriptor, lines) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _written(item: Item | Trimmed) -> bytes:
    # ASCII, so that a lone surrogate and any line separator stay one line.
    return json.dumps({"kind": type(item).__name__.lower(), **attrs.asdict(item)}).encode("ascii") + b"\n"


def _read(line: bytes) -> Item | Trimmed:
    fields = json.loads(line)
    kind = _KINDS[fields.pop("kind")]
    if "images" in fields:
        fields["images"] = tuple(fields["images"])
    made: Item | Trimmed = kind(**fields)
    return made
