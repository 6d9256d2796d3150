"""JSON Lines stay JSON Lines, whatever text is in them; and no line for a terminal makes it do anything."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buzz_author.harness import HarnessError
from buzz_author.turns import LeftOutReason
from buzz_host.cli.output import json_line
from buzz_host.cli.wording import REASONS, contribution, counted, cut, error_in_words, reason_in_words
from buzz_host.terminal import printable

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
AWKWARD = "\x85 \u2028 \u2029 \x1b[31m \x9b2J \u202e é 漢字 🦜"


@pytest.mark.req("CLI-01")
@given(st.dictionaries(st.text(), anything, max_size=4))
@example({"text": AWKWARD})
def test_a_row_is_one_line_and_reads_back_the_same(row: dict[str, object]) -> None:
    line = json_line(row)
    assert json.loads(line) == row
    assert line.endswith("\n")
    assert len(line.splitlines()) == 1
    assert printable(line) == line


@pytest.mark.req("CLI-01")
def test_text_stays_readable_in_json() -> None:
    assert json_line({"text": "é 漢字 🦜"}) == '{"text":"é 漢字 🦜"}\n'


@pytest.mark.req("CLI-01")
def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    assert json.loads(json_line({"text": "a\ud800b"})) == {"text": "a\ufffdb"}


@pytest.mark.req("CLI-01")
def test_read_only_values_are_json_too() -> None:
    row = MappingProxyType({"a": (1, MappingProxyType({"b": ()}))})
    assert json_line(row) == '{"a":[1,{"b":[]}]}\n'


@pytest.mark.req("SEC-04")
@given(st.text())
@example(AWKWARD * 100)
def test_words_about_anybodys_text_are_one_harmless_bounded_line(text: str) -> None:
    error = HarnessError("unknown", text)
    for line in (cut(text), reason_in_words("when-raised", text), error_in_words(error)):
        assert printable(line) == line
        assert "\n" not in line
        assert len(line) < 500


@pytest.mark.req("AUD-02")
def test_each_reason_has_words() -> None:
    assert set(REASONS) == set(get_args(LeftOutReason))
    assert reason_in_words("when-false", "") == "its `when` said no"
    assert reason_in_words("plugin-off", "it is switched off") == "the plugin is off: it is switched off"
    assert reason_in_words("a reason of later", None) == "a reason of later"


@pytest.mark.req("AUD-02")
def test_names_and_numbers() -> None:
    assert [contribution("p", each) for each in ("i", "*", None)] == ["p/i", "p", "p"]
    assert [counted(each, "byte") for each in (0, 1, 1234)] == ["0 bytes", "1 byte", "1,234 bytes"]
