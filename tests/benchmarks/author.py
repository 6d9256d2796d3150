"""The speed of the authors' package: making text safe, making sections, and importing it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from buzz_author.sections import Section, Source, parse, render, section
from buzz_author.text import neutralise
from tests.benchmarks.measuring import Work, compare, compare_programs, growth
from tests.benchmarks.row import Row

TEXT_CHARS = 500_000
LITERAL = re.compile("<plugin-instructions")
SOURCE = Source("style-guide", "tone")
LINEAR = "linear is 10×"
LITERAL_PEER = "re.sub of one literal tag"

PROSE = "Write short sentences, and name each thing by one word. Prefer plain words – also in code.\n"
CODE = (
    "if (a < b && c->d) { std::vector<std::pair<int, T>> v; for (i = 0; i < n; ++i) v[i] <<= 1; }\n"
    '<div class="x"><span>one</span><Context.Provider value={x}><context-menu/></Context.Provider></div>\n'
)
HOSTILE = {
    "tags": '<context a="b">',
    "openers": "<",
    "openers and blanks": "<  ",
    "almost tags": "<new-message-arrived-while-you-were-workin",
    "dotted tags": "<co.:-x",
    "one opener, blanks": "<" + " " * 2000,
    "one opener, invisible": "<" + "\u200b" * 2000,
    "zero-width openers": "<\u200b",
    "zero-width tags": "<\u200bcont",
    "full-width tags": "＜context ",
    "mathematical tags": "<\U0001d41contex",
    "a letter of its own each": "".join(f"<{chr(code)}abcd" for code in range(0xA1, 0x3400)),
    "an ideograph of its own each": "".join(f"<{chr(code)}abcd" for code in range(0x4E00, 0xD7A0)),
}
# Each character is looked up for the first time, and there are more than the table keeps: nobody's text, but linear.
NEVER_SEEN = "<c" + "".join(chr(code) for code in range(0x20000, 0x3FFFE))
PARSED = {
    "sections": "<context>\nagent: main\n</context>\n\n",
    "openings alone": "<context>\n<attention>\n",
    "closings alone": "\n</context>",
    "attributes without an end": "<context" + ' a="b"' * 50 + "\n",
    "prose": PROSE,
}
INSTRUCTION = (PROSE * 12)[:1024]
MARKED_UP = "Prefer <b>plain</b> words & \"quotes\"; write `a < b`, never 'b > a'. Be kind and brief.\n"
MARKED_UP_INSTRUCTION = (MARKED_UP * 12)[:1024]


def rows() -> Iterator[Row]:
    yield _neutralise("neutralise, no <", PROSE, 1)
    yield _neutralise("neutralise, sparse <", PROSE * 11 + "<b>", 3)
    yield _neutralise("neutralise, code", CODE, 50)
    for kind, piece in HOSTILE.items():
        yield _neutralise(f"neutralise, hostile: {kind}", piece, 300)
    yield _neutralise("neutralise, 131,070 different characters", NEVER_SEEN, None)
    for kind, piece in {"code": CODE, **HOSTILE}.items():
        yield growth(f"neutralise, growth: {kind}", _neutralising(piece), TEXT_CHARS // 2, factor=2, at_most=2.5)
    for kind, piece in PARSED.items():
        yield growth(f"parse, growth: {kind}", _parsing(piece), TEXT_CHARS // 2, factor=2, at_most=2.5)
    for kind, text in (("prose", INSTRUCTION), ("markup", MARKED_UP_INSTRUCTION)):
        texts = [f"{text[:1020]}{number:04}" for number in range(100)]
        yield compare(
            f"turn text, 100 × 1 KB all changed: {kind}",
            partial(_all_changed, texts),
            partial(_escaped, texts),
            peer_name="html.escape + join",
            at_most=2,
            note="trimmed, mended, neutralised, rendered and hashed",
        )
    for small in (10, 100, 1000):
        yield growth(
            f"turn text, {small * 10:,} instructions", _all_changed_of, small, factor=10, at_most=15, note=LINEAR
        )
    ten_thousand = _sections(10_000)
    yield compare(
        "render, 10,000 instructions unchanged",
        lambda: render(ten_thousand),
        lambda: "\n\n".join([each.body for each in ten_thousand]),
        peer_name="join of the same bodies",
        at_most=1.5,
    )
    attrs_alone = ["-c", "import attrs"]
    ours = ["-c", "import buzz_author"]
    yield compare_programs("import buzz_author", ours, attrs_alone, peer_name="import attrs", at_most=1.4)
    ours = ["-c", "from buzz_author import AgentInstructions, PluginContext, RegistrationError"]
    yield compare_programs("import what a plugin uses", ours, attrs_alone, peer_name="import attrs")


def _text(piece: str, length: int) -> str:
    return (piece * (length // len(piece) + 1))[:length]


def _neutralise(name: str, piece: str, at_most: float | None) -> Row:
    text = _text(piece, TEXT_CHARS)
    return compare(
        name,
        lambda: neutralise(text),
        lambda: LITERAL.sub("&lt;plugin-instructions", text),
        peer_name=LITERAL_PEER,
        at_most=at_most,
    )


def _neutralising(piece: str) -> Callable[[int], Work]:
    def work_of(length: int) -> Work:
        text = _text(piece, length)
        return lambda: neutralise(text)

    return work_of


def _parsing(piece: str) -> Callable[[int], Work]:
    def work_of(length: int) -> Work:
        text = _text(piece, length)
        return lambda: parse(text)

    return work_of


def _all_changed(texts: Sequence[str]) -> str:
    return render([_made(each) for each in texts])


def _escaped(texts: Sequence[str]) -> str:
    return "\n\n".join([html.escape(each) for each in texts])


def _all_changed_of(count: int) -> Work:
    texts = [f"{INSTRUCTION[:1019]}{number:05}" for number in range(count)]
    return partial(_all_changed, texts)


def _sections(count: int) -> list[Section]:
    return [_made(f"{INSTRUCTION[:1019]}{number:05}") for number in range(count)]


def _made(text: str) -> Section:
    return section("plugin-instructions", text, attributes=(("plugin", "style-guide"),), source=SOURCE)
