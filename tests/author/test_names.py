"""Names and ids: what is allowed, and one clear line for what is not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.errors import BuzzError, InvalidName
from buzz_author.names import RESERVED_NAMES, check_id, check_name, folded

odd_names = st.one_of(
    st.text(max_size=70), st.text(alphabet="ab0-_.", max_size=70), st.none(), st.integers(), st.binary()
)


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.req("PLG-08")
@given(odd_names)
def test_a_name_is_allowed_or_one_line(name: object) -> None:
    allowed = isinstance(name, str) and re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name, re.ASCII)
    if allowed and name not in RESERVED_NAMES:
        assert check_name(name, "plugin") is name
    else:
        with pytest.raises(InvalidName) as caught:
            check_name(name, "plugin")
        assert str(caught.value).isprintable()
        assert str(caught.value).startswith("plugin name ")


@pytest.mark.req("INS-03")
@given(odd_names)
def test_an_id_is_allowed_or_one_line(identifier: object) -> None:
    if isinstance(identifier, str) and re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", identifier, re.ASCII):
        assert check_id(identifier, "instructions") is identifier
    else:
        with pytest.raises(InvalidName) as caught:
            check_id(identifier, "instructions")
        assert str(caught.value).isprintable()


@pytest.mark.req("PLG-08")
@pytest.mark.parametrize("name", ["bus", "skills", "panel", "attention", "host"])
def test_reserved_names(name: str) -> None:
    with pytest.raises(InvalidName, match=f"plugin name '{name}' is reserved by Buzz"):
        check_name(name, "plugin")
    assert check_id(name, "tool") == name  # an id lives below its plugin's name


@pytest.mark.req("PLG-08")
@pytest.mark.parametrize(
    "name", ["a\n", "a/b", "../a", "A", "a.b", "-a", "_a", "é", "ａ", "a" * 65, "", " a", "a\x00", "٣"]
)
def test_names_that_are_not_allowed(name: str) -> None:
    with pytest.raises(InvalidName, match="use 1 to 64 of a-z, 0-9, '-' and '_', starting with a letter or a digit"):
        check_name(name, "agent")


@pytest.mark.req("PLG-08")
def test_names_that_are_allowed_at_the_edges() -> None:
    for name in ("a", "0", "a" * 64, "a-_-", "007"):
        assert check_name(name, "plugin") == name
    assert check_id("a.b", "x") == "a.b"


@pytest.mark.req("PLG-08")
def test_names_that_differ_in_dashes_only_fold_to_one() -> None:
    assert folded("my_plugin-x") == folded("my-plugin_x") == "my-plugin-x"


@pytest.mark.req("PLG-08")
def test_what_cannot_be_shown_is_named_by_its_type() -> None:
    with pytest.raises(BuzzError, match="plugin name <Hostile> is not allowed"):
        check_name(Hostile(), "plugin")
    with pytest.raises(ValueError, match=r"aaa\.\.\. is not allowed"):
        check_name("a" * 1000, "plugin")
    with pytest.raises(InvalidName) as caught:
        check_name("é\u202e" * 1000, "plugin")
    assert len(str(caught.value)) < 300
