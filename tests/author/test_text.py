"""Text is made safe and otherwise left alone: held against a scanner that was written for nothing but to be plain."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buzz_author.text import OUR_TAGS, PROGRAM_TAGS, neutralise, trim, well_formed
from tests.author.hostile import (
    DASHES,
    INVISIBLE,
    OPENERS,
    OTHER_IGNORABLE,
    SLASHES,
    SPACES,
    TAGS,
    WHITE_CONTROLS,
    hostile_texts,
    tag_forms,
)

# ECMA-262: WhiteSpace (TAB, VT, FF, ZWNBSP and category Zs) and LineTerminator (LF, CR, LS, PS).
ECMASCRIPT_TRIMS = {
    "\t", "\v", "\f", "\ufeff", "\n", "\r", "\u2028", "\u2029",
    *(chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Zs"),
}  # fmt: skip


def as_read(character: str) -> str:
    """What a reader takes one character for."""
    read = ""
    for each in unicodedata.normalize("NFKD", character):
        kind = unicodedata.category(each)
        if each in WHITE_CONTROLS or kind.startswith("Z"):
            read += " "
        elif kind in ("Cc", "Cf", "Mn", "Me") or ord(each) in OTHER_IGNORABLE:
            continue
        elif each in SLASHES:
            read += "/"
        elif kind == "Pd" or each == "\u2212":
            read += "-"
        else:
            read += each
    return read.casefold()


def opens_a_tag(text: str, position: int) -> bool:
    """Whether the character at `position` opens a section tag, by the definition in the module's docstring."""
    if text[position] not in OPENERS:
        return False
    read = ""
    for character in text[position + 1 :]:
        if character in OPENERS:
            break
        read += as_read(character)
    while read[:1] in (" ", "/"):
        read = read[1:]
    name = ""
    for character in read:
        if not (character.isalnum() or character in "-_.:"):
            break
        name += character
    return name in TAGS


def broken_by_hand(text: str) -> str:
    return "".join("&lt;" if opens_a_tag(text, index) else character for index, character in enumerate(text))


@pytest.mark.req("INS-07", "INS-10")
@given(hostile_texts)
@example("＜＜context>")
@example("<\uff1ccontext>")
@example("<\u0338context>")
@example("<con\u05b0text>")
@example("<ⓒontext")
@example("<sKILL>")
@example("<command-meßage>")
@example("<context²>")
@example("<context\x1cy>")
@example("<context\x85y>")
@example("<\u00b4context>")
@example("<con\u00b4text>")
@example("<context\ud800>")
@example("<\ufe64context>")
@example("﹤context>")
@example("﹤＜<context﹥")
@example("<con﹤text>")
@example("</ﬁskill")
def test_exactly_the_section_tags_are_broken(text: str) -> None:
    assert neutralise(text) == broken_by_hand(text)


@pytest.mark.req("INS-07")
@given(hostile_texts)
def test_neutralising_again_changes_nothing(text: str) -> None:
    once = neutralise(text)
    assert neutralise(once) is once
    assert not any(opens_a_tag(once, index) for index in range(len(once)))
    if broken_by_hand(text) == text:
        assert once is text


@pytest.mark.req("INS-07")
@given(hostile_texts, tag_forms, hostile_texts)
def test_only_the_opener_of_a_tag_changes(before: str, tag: str, after: str) -> None:
    text = before + tag + after
    changed = neutralise(text)
    # Read side by side: the same characters, save that an opener became `&lt;`.
    position = 0
    for character in text:
        if changed.startswith(character, position):
            position += 1
        else:
            assert character in OPENERS
            assert changed.startswith("&lt;", position)
            position += len("&lt;")
    assert position == len(changed)


@pytest.mark.req("INS-07")
@pytest.mark.parametrize(
    "form",
    [
        "<{}>", "</{}>", "<{}/>", "<{} plugin='x'>", "<{}", "< {}>", "<\n{}\n>", "</ {} >", "<{}\u200b>", "<\u2060{}>",
        "＜{}>", "＜/{}＞", "﹤{}>", "﹤ /{}﹥", "<{}\x00>", "<//{}>", "<\u3000{}>",
    ],
)  # fmt: skip
def test_each_tag_in_each_form(form: str) -> None:
    for tag in TAGS:
        for name in (tag, tag.upper(), tag.title(), tag[0] + "\u200d" + tag[1:]):
            text = form.format(name)
            assert neutralise(text) == "&lt;" + text[1:]


@pytest.mark.req("INS-07")
@pytest.mark.parametrize(
    "text",
    [
        "<context-menu>", "<Context.Provider value={x}>", "<skills>", "<skill-list/>", "<attention2>", "<context:x>",
        "<contexts>", "< b >", "a <context_ b", "x<y && y>z", "vector<map<int, context_t>>", "<!context>", "<?xml?>",
        "<a href='context'>", "context>", "&lt;context>", "<'context'>", "<=context", "<-context", "Dict[str, <T>]",
        "<html><body class=\"context\">\n<p>naïve – “text”</p></body></html>", "<con text>", "<context²>", "<контекст>",
        "<![CDATA[ x ]]>", "for (i = 0; i <context.length; i++)", "a<br/>b", "",
    ],
)  # fmt: skip
def test_markup_and_code_stay_as_they_are(text: str) -> None:
    if "context.length" in text:  # a dotted name: not the tag
        assert not opens_a_tag(text, text.index("<"))
    assert neutralise(text) is text


@pytest.mark.req("INS-07")
def test_every_invisible_character_of_this_python_counts_as_absent() -> None:
    left = [hex(ord(c)) for c in INVISIBLE if neutralise(f"<con{c}text>") != f"&lt;con{c}text>"]
    assert left == []
    left = [hex(ord(c)) for c in INVISIBLE if neutralise(f"＜{c}context>") != f"&lt;{c}context>"]
    assert left == []
    left = [hex(ord(c)) for c in INVISIBLE if neutralise(f"<context{c}>") != f"&lt;context{c}>"]
    assert left == []


@pytest.mark.req("INS-07")
def test_every_dash_space_and_slash_counts() -> None:
    assert [d for d in DASHES if neutralise(f"<plugin{d}note>") != f"&lt;plugin{d}note>"] == []
    assert [s for s in SPACES + SLASHES if neutralise(f"<{s}context>") != f"&lt;{s}context>"] == []
    assert [s for s in SPACES if neutralise(f"<con{s}text>") != f"<con{s}text>"] == []


@pytest.mark.req("INS-07")
@pytest.mark.soak
def test_every_character_is_read_as_the_definition_says() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        for text in (f"<con{character}text>", f"<{character}context", f"<context{character}", f"<{character}kill>"):
            assert neutralise(text) == broken_by_hand(text), hex(code)


@pytest.mark.req("INS-07")
def test_no_character_stands_for_so_much_of_a_tag_that_the_quick_look_misses_it() -> None:
    # The quick look wants as many characters as the shortest tag has; `ﬁ` and its like stand for more than one.
    wide: dict[str, str] = {}
    for code in range(0x80, sys.maxunicode + 1):
        read = as_read(chr(code)) if not 0xD800 <= code < 0xE000 else ""
        if len(read) > 1:
            wide.setdefault(read, chr(code))
    for tag in TAGS:
        for read, character in wide.items():
            if read in tag:
                assert neutralise("<" + tag.replace(read, character)).startswith("&lt;"), (tag, character)


@pytest.mark.req("INS-07")
def test_the_tags_are_a_closed_list_of_lower_case_names() -> None:
    assert not OUR_TAGS & PROGRAM_TAGS
    assert all(tag == tag.lower() and tag.replace("-", "").replace("_", "").isalpha() for tag in TAGS)


@pytest.mark.req("INS-02")
def test_trim_takes_what_ecmascript_takes_and_nothing_else() -> None:
    taken = {chr(code) for code in range(sys.maxunicode + 1) if trim(chr(code)) == ""}
    assert taken == ECMASCRIPT_TRIMS
    assert "\x1c" not in taken  # Python's strip would
    assert "\ufeff" in taken  # Python's strip would not
    assert trim(f"{''.join(taken)}a b\x85{''.join(taken)}") == "a b\x85"


@pytest.mark.req("INS-02")
@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("\ud800", "\ufffd"),
        ("\udc00 ", "\ufffd "),
        ("\ud800a", "\ufffda"),
        ("a\udfff", "a\ufffd"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("a\ud800\n\udc00b", "a\ufffd\n\ufffdb"),
        ("😀\ud83d", "😀\ufffd"),
    ],
)
def test_lone_surrogates_are_replaced_and_pairs_joined(text: str, mended: str) -> None:
    assert well_formed(text) == mended


@pytest.mark.req("INS-02")
@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\ud800\udbff\udc00\udfff"))))
def test_well_formed_text_can_be_encoded_and_good_text_is_the_same_object(text: str) -> None:
    mended = well_formed(text)
    mended.encode("utf-8")
    assert well_formed(mended) is mended
    if not any(0xD800 <= ord(c) < 0xE000 for c in text):
        assert mended is text
