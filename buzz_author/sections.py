"""Sections: the labelled pieces that a turn is made of, and the only ways into text and back.

Everything that enters a turn passes through `section()`, which trims, mends and neutralises it once. A section is then
only ever joined to others, never searched again, so `parse(render(sections)) == sections` for any text at all (INS-07).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256 as _sha256
from typing import Final

import attrs

from buzz_author.text import OUR_TAGS, PROGRAM_TAGS, exact, neutralise, trim, well_formed

__all__ = ["OUR_TAGS", "PROGRAM_TAGS", "Section", "Source", "neutralise", "parse", "render", "section"]

SECTION_SEPARATOR: Final = "\n\n"


@attrs.frozen
class Source:
    """Who contributed a section: the plugin, and the id of its contribution."""

    plugin: str
    id: str


@attrs.frozen(init=False, repr=False)
class Section:
    """One labelled piece of a turn. Made by `section()` only; calling the class raises `TypeError`.

    `body` is trimmed, well-formed and neutralised; `size` and `sha256` are the bytes and the digest of its UTF-8 form
    (INS-11). Two sections are equal when tag, body and attributes are; where one came from is never rendered.
    """

    tag: str
    body: str
    attributes: tuple[tuple[str, str], ...]
    source: Source | None = attrs.field(eq=False)
    rendered: str = attrs.field(eq=False)
    sha256: str = attrs.field(eq=False)
    size: int = attrs.field(eq=False)

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError("a Section is made by buzz_author.section(), which neutralises its text")

    def __repr__(self) -> str:
        return f"<Section {_opening(self.tag, self.attributes)[1]} {self.size} bytes>"


def section(
    tag: str, text: str, *, attributes: Sequence[tuple[str, str]] = (), source: Source | None = None
) -> Section:
    """The section `tag` with `text` as its body, made safe: nothing in it can open or close any section.

    `tag` is one of `OUR_TAGS`. `attributes` are pairs in the order in which they are rendered; their names match
    `[a-z][a-z0-9-]*` and do not repeat. Raises `ValueError` for another tag or attribute name, `TypeError` for a text
    or a value that is no string (INS-07, INS-10).
    """
    if tag not in OUR_TAGS:
        raise ValueError(f"{tag!r} is no section of ours; the tags are: {', '.join(sorted(OUR_TAGS))}")
    pairs, opening = _opening(tag, tuple([(exact(name), exact(value)) for name, value in attributes]))
    body = neutralise(well_formed(trim(exact(text))))
    encoded = body.encode("utf-8")
    made = _new(Section)
    made.__attrs_init__(
        tag, body, pairs, source, f"{opening}\n{body}\n</{tag}>", _sha256(encoded).hexdigest(), len(encoded)
    )
    return made


def render(sections: Iterable[Section]) -> str:
    """The text of `sections`: each rendered once when it was made, joined by a blank line (TRN-01)."""
    return SECTION_SEPARATOR.join([each.rendered for each in sections])


def parse(text: str) -> tuple[Section, ...]:
    """The sections that stand in `text`, in order; text between them is skipped.

    An opening that nothing closes is text. The sections have no source. Linear in the length of the text.
    """
    found: list[Section] = []
    unclosed: set[str] = set()
    position = 0
    while opening := _opening_pattern().search(text, position):
        tag = opening[1]
        closing = f"\n</{tag}>"
        start = opening.end()
        # The line end that closes the opening is the one before `</tag>` where the body is empty.
        end = -1 if tag in unclosed else text.find(closing, start)
        if end < 0:
            unclosed.add(tag)
            position = start
            continue
        found.append(section(tag, text[start:end], attributes=_read_attributes(opening[2])))
        position = end + len(closing)
    return tuple(found)


def canonical_json(value: object) -> str:
    """`value` as JSON for an attribute that holds a list: no spaces, text as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_new: Final = object.__new__


# Cached: a turn renders the same few plugin names over and over.
@lru_cache(maxsize=512)
def _opening(tag: str, attributes: tuple[tuple[str, str], ...]) -> tuple[tuple[tuple[str, str], ...], str]:
    """The attributes as they are kept, and the opening that shows them."""
    names = [name for name, _ in attributes]
    for name in names:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name, re.ASCII):
            raise ValueError(f"{name!r} cannot name an attribute of a section: use a-z, 0-9 and '-'")
    if len(set(names)) != len(names):
        raise ValueError(f"an attribute stands twice in {names}")
    pairs = tuple([(name, well_formed(value)) for name, value in attributes])
    shown = "".join([f' {name}="{_escaped(value)}"' for name, value in pairs])
    return pairs, f"<{tag}{shown}>"


def _escaped(value: str) -> str:
    if value.isalnum() and value.isascii():
        return value
    return _unsafe_in_attribute().sub(lambda match: _NAMED.get(match[0]) or f"&#x{ord(match[0]):x};", value)


def _read_attributes(text: str) -> list[tuple[str, str]]:
    pairs: dict[str, str] = {}
    for name, value in _attribute_pattern().findall(text):
        pairs.setdefault(name, _reference().sub(_referred, value))
    return list(pairs.items())


def _referred(match: re.Match[str]) -> str:
    return _NAMED_BACK.get(match[0]) or chr(int(match[1], 16))


_NAMED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
_NAMED_BACK: Final = {reference: character for character, reference in _NAMED.items()}


@lru_cache(maxsize=1)
def _unsafe_in_attribute() -> re.Pattern[str]:
    # Quotes, markup, what ends a line anywhere, controls, and characters that show nothing (a name must be readable).
    return re.compile(
        r'[&<>"＜＞﹤﹥\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]'
    )


@lru_cache(maxsize=1)
def _reference() -> re.Pattern[str]:
    return re.compile(r"&(?:amp|lt|gt|quot|#x([0-9a-f]{1,5}|10[0-9a-f]{4}));")


@lru_cache(maxsize=1)
def _attribute_pattern() -> re.Pattern[str]:
    return re.compile(r' ([a-z][a-z0-9-]*)="([^"<>\n]*)"')


@lru_cache(maxsize=1)
def _opening_pattern() -> re.Pattern[str]:
    tags = "|".join(sorted(OUR_TAGS, key=len, reverse=True))
    return re.compile(rf'^<({tags})((?: [a-z][a-z0-9-]*="[^"<>\n]*")*+)>(?=\n)', re.MULTILINE)
