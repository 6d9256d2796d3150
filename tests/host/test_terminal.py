"""No text of a plugin or a model makes a terminal do anything, whole or in pieces; none of it is hidden (SEC-04)."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_host.terminal import StreamPrinter, printable, printable_line

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
hostile = st.text(
    alphabet=st.one_of(
        st.sampled_from("\x1b\x9b\x9d\x90\x9c\x07\x08\r\n\t[]();?m0123Jc\\P_^" + BIDI),
        st.characters(categories=("Cc", "Cf", "Cs", "L", "Zl", "Zp", "So")),
    ),
    max_size=60,
)


@pytest.mark.req("SEC-04")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b[1;31mred\x1b[0m", r"\x1b[2J\x1b[1;31mred\x1b[0m"),
        ("\x1b]0;title\x07x", r"\x1b]0;title\x07x"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "\\x1b]8;;http://a\\x1b\\link\\x1b]8;;\\x1b\\"),
        ("\x9b31mred", r"\x9b31mred"),
        ("a\x08b\x7f\x00", r"a\x08b\x7f\x00"),
        ("over\rwritten", r"over\rwritten"),
        ("one\r\ntwo\n\tthree", "one\ntwo\n\tthree"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("\ud83d", "\ufffd"),
        ("naïve 文字 👩‍💻 עברית", "naïve 文字 👩‍💻 עברית"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.req("SEC-04")
@given(hostile)
def test_nothing_that_is_obeyed_gets_through_and_nothing_else_changes(text: str) -> None:
    shown = printable(text)
    assert not [c for c in shown if (unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t") or c in BIDI]
    assert printable(shown) is shown
    shown.encode("utf-8")
    harmless = [c for c in text if unicodedata.category(c) not in ("Cc", "Cs") and c not in BIDI]
    left = iter(shown)
    assert all(c in left for c in harmless)  # in this order: nothing is dropped


@pytest.mark.req("SEC-04")
@given(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cf", "Cs"))))
def test_other_text_is_the_same_object(text: str) -> None:
    assert printable(text) is text


@pytest.mark.req("SEC-04")
@given(st.lists(hostile, max_size=8))
def test_a_stream_shows_what_the_whole_would(pieces: list[str]) -> None:
    printer = StreamPrinter()
    shown = "".join([printer.feed(piece) for piece in pieces]) + printer.finish()
    assert shown == printable("".join(pieces))
    assert printer.finish() == ""


@pytest.mark.req("SEC-04")
def test_a_sequence_in_two_pieces_does_not_get_through() -> None:
    printer = StreamPrinter()
    assert [printer.feed("a\x1b"), printer.feed("[2J\r"), printer.feed("\nb\r"), printer.finish()] == [
        r"a\x1b",
        "[2J",
        "\nb",
        r"\r",
    ]


@pytest.mark.req("SEC-04")
@given(hostile)
def test_a_row_is_one_line(text: str) -> None:
    line = printable_line(text)
    assert not set(line) & {"\n", "\t", "\r"}
    assert printable_line("x\ny\tz") == r"x\ny\tz"
