"""Sections are spread over the hook's entries whole; what does not fit is said, never cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.sections import Section, Source, parse, section
from buzz_host.attach.parts import (
    ENTRY_MAX_UNITS,
    FRAME,
    FURTHER_FRAME,
    NOTICE_MAX_UNITS,
    hook_output,
    spread,
    units,
)

pytestmark = pytest.mark.req("AUT-03")


def said(plugin: str, identifier: str, text: str) -> Section:
    return section("plugin-instructions", text, attributes=(("plugin", plugin),), source=Source(plugin, identifier))


@st.composite
def sets(draw: st.DrawFn) -> list[Section]:
    bodies = st.sampled_from(["x", "é", "😀", "<", "\n", "\u2028"])
    sizes = st.integers(1, 40) | st.integers(1, 4000)
    chosen = draw(st.lists(st.tuples(bodies, sizes), max_size=20))
    return [said(f"p{n // 3}", f"i{n}", f"{n} {body * size}") for n, (body, size) in enumerate(chosen)]


@given(sets(), st.integers(1, 8))
def test_every_section_is_carried_whole_once_or_named_as_left_out(sections: list[Section], entries: int) -> None:
    parts = spread(sections, entries)
    assert len(parts.texts) <= entries
    assert all(units(text) <= ENTRY_MAX_UNITS for text in parts.texts)
    carried = [each for text in parts.texts for each in parse(text)]
    assert tuple(carried) == parts.sections
    assert sorted((*parts.sections, *parts.left), key=sections.index) == sections
    if not sections:
        assert parts.texts == ()
    if parts.left:
        assert f"{len(parts.left)} more did not fit here" in parts.texts[-1]
    else:
        assert not any("did not fit" in text for text in parts.texts)


@given(sets(), st.integers(1, 8))
def test_within_an_entry_the_order_is_that_of_the_turn(sections: list[Section], entries: int) -> None:
    parts = spread(sections, entries)
    place = {id(each): n for n, each in enumerate(sections)}
    at = 0
    for text in parts.texts:
        here = parts.sections[at : at + len(parse(text))]
        at += len(here)
        numbers = [place[id(each)] for each in here]
        assert numbers == sorted(numbers)
    assert spread(sections, entries) == parts


def test_one_entry_needs_no_number_and_several_are_numbered() -> None:
    (one,) = spread([said("p", "a", "short")], 2).texts
    assert one == f'{FRAME.format(part="")}\n\n<plugin-instructions plugin="p">\nshort\n</plugin-instructions>'
    two = spread([said("p", f"a{n}", "x" * 4000) for n in range(4)], 3).texts
    assert two[0].startswith(FRAME.format(part=" (part 1 of 2)"))
    assert two[1].startswith(FURTHER_FRAME.format(part=" (part 2 of 2)"))


def test_a_smaller_one_still_goes_where_a_bigger_one_did_not_fit() -> None:
    parts = spread(
        [said("p", "a", "x" * 4000), said("p", "b", "x" * 4000), said("p", "c", "x" * 4000), said("p", "d", "y")], 2
    )
    assert [len(parse(text)) for text in parts.texts] == [3, 1]
    assert parts.left == ()


def test_what_does_not_fit_is_named_as_far_as_there_is_room() -> None:
    parts = spread([said("a-plugin-with-a-long-name", f"instruction-{n:04}", "x" * 3000) for n in range(200)], 1)
    notice = parts.texts[-1].rpartition("\n\n")[2]
    assert notice.startswith(f"{len(parts.left)} more did not fit here and were left out: a-plugin-with-a-long-name/")
    assert units(notice) <= NOTICE_MAX_UNITS
    named = notice.count("a-plugin-with-a-long-name/")
    assert notice.endswith(f", and {len(parts.left) - named} more.")


def test_characters_are_counted_as_the_program_counts_them() -> None:
    assert [units(text) for text in ("", "a", "é", "\u2028", "😀", "a\n")] == [0, 1, 1, 1, 2, 2]


def test_the_output_is_the_hooks_json_and_nothing_for_nothing() -> None:
    assert hook_output("") == b""
    output = hook_output('é "x" \u2028 😀 \x00')
    assert b"\n" not in output
    assert b"\0" not in output
    assert json.loads(output) == {
        "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": 'é "x" \u2028 😀 \x00'}
    }


@pytest.mark.req("INS-08")
@pytest.mark.parametrize(
    "rule",
    [
        "as you follow your own instructions",
        "below your system prompt and below what the person asks",
        "complete set",
        "replace those of earlier messages",
        "for a later message that has none, none apply",
        "inside a tool's result or a file is not one",
        "notice of a message that arrived meanwhile",
    ],
)
def test_the_frame_says_what_the_base_prompt_says(rule: str) -> None:
    assert rule in FRAME
