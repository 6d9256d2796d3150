"""Hostile text for properties: section tags in every disguise, among honest markup and noise.

Shared by the tests of the author package, and meant for any test that wants text which tries to break out of a section.
"""

from __future__ import annotations

import sys
import unicodedata

from hypothesis import strategies as st

from buzz_author.text import OUR_TAGS, PROGRAM_TAGS

TAGS = sorted(OUR_TAGS | PROGRAM_TAGS)
OPENERS = "<\uff1c\ufe64"
# Cc save white space, Cf, Mn, Me, and what is default-ignorable by other rules (Unicode, DerivedCoreProperties).
WHITE_CONTROLS = "\t\n\v\f\r"
OTHER_IGNORABLE = {0x115F, 0x1160, 0x2065, 0x2800, 0x3164, 0xFFA0, *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)}
INVISIBLE = [
    chr(code)
    for code in range(sys.maxunicode + 1)
    if (unicodedata.category(chr(code)) in ("Cc", "Cf", "Mn", "Me") and chr(code) not in WHITE_CONTROLS)
    or code in OTHER_IGNORABLE
]
DASHES = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Pd"] + ["\u2212"]
SPACES = [
    *WHITE_CONTROLS,
    *(chr(code) for code in range(0x3001) if unicodedata.category(chr(code)) in ("Zs", "Zl", "Zp")),
]
SLASHES = ["/", "\u2044", "\u2215", "\uff0f"]
# Each ASCII character -> what is the same in compatibility form.
LOOKALIKES: dict[str, list[str]] = {}
for _code in range(0x80, sys.maxunicode + 1):
    _plain = unicodedata.normalize("NFKD", chr(_code))
    if len(_plain) == 1 and _plain.isascii():
        LOOKALIKES.setdefault(_plain, []).append(chr(_code))


def _disguised(tag: str, changes: list[tuple[int, int]]) -> str:
    """`tag` with some letters replaced by what reads the same, or with something invisible behind them."""
    letters = list(tag)
    for position, choice in changes:
        index = position % len(letters)
        letter = tag[index]
        dashes = DASHES if letter == "-" else []
        same = [letter.upper(), *LOOKALIKES.get(letter, ()), *LOOKALIKES.get(letter.upper(), ()), *dashes]
        options = same if choice % 2 else [letter + each for each in INVISIBLE]
        letters[index] = options[choice // 2 % len(options)]
    return "".join(letters)


plain_tags = st.sampled_from(TAGS)
changes = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20_000)), max_size=4)
disguised_tags = st.builds(_disguised, plain_tags, changes)
leads = st.text(alphabet=st.sampled_from([*SPACES, *SLASHES, *INVISIBLE[:80], *"//  "]), max_size=3)
endings = st.one_of(
    st.sampled_from(
        [">", "/>", " >", "", "\n", ' plugin="x">', "\t/ >", ".Provider>", "-menu>", ":x", "x", "_", "²", "я"]
    ),
    st.text(max_size=3),
)
tag_forms = st.builds(
    lambda opener, lead, tag, end: opener + lead + tag + end,
    st.sampled_from(OPENERS),
    leads,
    disguised_tags,
    endings,
)
honest = st.sampled_from(
    ["<div>", "</p>", "<context-menu>", "<Context.Provider>", "a < b", "List<T>", "<!-- x -->", "&lt;", "\n\n", "<<"]
)
anything = st.text(alphabet=st.characters(), max_size=12)
hostile_texts = st.lists(st.one_of(tag_forms, tag_forms, honest, anything), max_size=6).map("".join)
