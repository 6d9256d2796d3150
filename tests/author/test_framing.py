"""Lines are cut at 0x0A alone, bounded, and hold whole text, however they arrive (DESIGN 13)."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.framing import LINE_MAX_BYTES, LineFramer, LineTooLong, NotJson, decode_line, encode_line

# Everything that some reader of lines takes for the end of one, and is none here.
NO_ENDS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
TEXTS = st.text(st.characters(exclude_categories=[]) | st.sampled_from(NO_ENDS + "\ud800\udc00\n"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda below: st.lists(below) | st.dictionaries(TEXTS, below),
    max_leaves=12,
)


def cut(octets: bytes, places: list[int]) -> list[bytes]:
    """`octets` in pieces, as a socket may deliver them."""
    edges = [0, *sorted(place % (len(octets) + 1) for place in places), len(octets)]
    return [octets[one:other] for one, other in pairwise(edges)]


@pytest.mark.req("HAR-03", "SEC-01")
@given(st.lists(st.binary().map(lambda line: line.replace(b"\n", b""))), st.lists(st.integers(min_value=0)))
def test_lines_are_the_same_however_they_arrive(lines: list[bytes], places: list[int]) -> None:
    framer = LineFramer()
    octets = b"".join(line + b"\n" for line in lines) + b"rest"
    assert [line for piece in cut(octets, places) for line in framer.feed(piece)] == lines
    assert framer.pending_bytes == len(b"rest")


@pytest.mark.req("HAR-03", "SEC-01")
def test_a_line_that_is_too_long_is_refused_before_it_is_whole() -> None:
    framer = LineFramer(limit_bytes=10)
    assert framer.feed(b"0123456789\n0123456789") == [b"0123456789"]
    with pytest.raises(LineTooLong, match="more than 10 bytes"):
        framer.feed(b"0")
    with pytest.raises(LineTooLong):
        LineFramer(limit_bytes=10).feed(b"01234567890\n")


@pytest.mark.req("HAR-03")
def test_a_line_of_the_greatest_size_takes_linear_time() -> None:
    framer = LineFramer()
    piece = b"x" * 4096
    begun = time.process_time()
    for _ in range(LINE_MAX_BYTES // len(piece)):
        assert framer.feed(piece) == []
    (line,) = framer.feed(b"\n")
    assert len(line) == LINE_MAX_BYTES
    assert time.process_time() - begun < 2


@pytest.mark.req("HAR-03")
@given(VALUES)
def test_a_value_comes_back_with_each_lone_surrogate_replaced(value: Any) -> None:
    line = encode_line(value)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    (framed,) = LineFramer().feed(line)
    assert json.dumps(decode_line(framed).value) == json.dumps(
        json.loads(_whole(json.dumps(value, ensure_ascii=False)))
    )


@pytest.mark.req("HAR-03")
@pytest.mark.parametrize(
    ("line", "value", "replaced"),
    [
        (b'"\xed\xa0\x80"', "\ufffd", 1),  # a surrogate as if it were a character
        (rb'"\ud83d\ude00 \ud83d \ude00"', "\U0001f600 \ufffd \ufffd", 2),
        (rb'{"\ud800":["\udc00",{"a":"\ud800"}]}', {"\ufffd": ["\ufffd", {"a": "\ufffd"}]}, 3),
        (b'"\xff\xc3("', "\ufffd\ufffd(", 2),
        ("\ufffd".join('""').encode(), "\ufffd", 0),
        (rb'"\\ud800"', "\\ud800", 0),
        (b"\t[1, 2.5, null]\r", [1, 2.5, None], 0),
    ],
)
def test_what_is_no_text_is_replaced_and_counted(line: bytes, value: Any, replaced: int) -> None:
    decoded = decode_line(line)
    assert (decoded.value, decoded.replaced) == (value, replaced)


@pytest.mark.req("SEC-01")
@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"nothing", b"NaN", b"[-Infinity]", b"1 2", b"\x00", b"[" * 100_000, b"9" * 5000, b'{"a":1,}', b"\xff"],
)
def test_what_is_no_json_is_one_line_of_error(line: bytes) -> None:
    with pytest.raises(NotJson) as said:
        decode_line(line)
    assert str(said.value).startswith("expected a JSON value, found ")
    assert "\n" not in str(said.value)


@given(st.binary())
@pytest.mark.req("SEC-01")
def test_no_bytes_do_anything_else(octets: bytes) -> None:
    with suppress(NotJson):
        decode_line(octets)


@pytest.mark.req("HAR-03")
def test_a_value_that_json_cannot_say_is_a_fault_of_the_caller() -> None:
    with pytest.raises(TypeError):
        encode_line({"a": object()})
    with pytest.raises(ValueError, match="JSON"):
        encode_line(float("nan"))


def _whole(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
