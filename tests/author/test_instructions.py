"""What a registration of standing instructions checks, keeps, and says when it refuses (INS-01 … 03)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import buzz_author
from buzz_author.errors import BuzzError, InvalidName, RegistrationError
from buzz_author.instructions import (
    INSTRUCTION_MAX_BYTES,
    AgentHandle,
    AgentInstructions,
    CheckedInstructions,
    check_instructions,
)
from buzz_author.sections import Source, parse
from buzz_author.text import trim, well_formed
from tests.author.hostile import hostile_texts


def always(agent: AgentHandle) -> bool:
    return True


def checked(text: str) -> CheckedInstructions:
    return check_instructions("style", None, id="tone", text=text)


def refusal(*given: object, **keywords: object) -> str:
    with pytest.raises(RegistrationError) as caught:
        check_instructions("style", *given, **keywords)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("plugin 'style': ")
    return message.removeprefix("plugin 'style': ")


@pytest.mark.req("INS-01")
def test_the_three_forms_are_one() -> None:
    by_keyword = check_instructions("style", None, id="tone", text=" Be kind. ", when=always)
    by_mapping = check_instructions("style", {"id": "tone", "text": " Be kind. ", "when": always})
    by_value = check_instructions("style", AgentInstructions("tone", " Be kind. ", always))
    proxied = check_instructions("style", MappingProxyType({"id": "tone", "text": "Be kind.", "when": always}))
    assert by_keyword == by_mapping == by_value == proxied
    assert by_keyword.id == "tone"
    assert by_keyword.when is always
    assert by_keyword.section.source == Source("style", "tone")
    assert by_keyword.section.rendered == '<plugin-instructions plugin="style">\nBe kind.\n</plugin-instructions>'


@pytest.mark.req("INS-01")
def test_without_a_guard_it_holds_for_all() -> None:
    assert check_instructions("style", {"id": "tone", "text": "x"}).when is None
    assert check_instructions("style", {"id": "tone", "text": "x", "when": None}).when is None


@pytest.mark.req("INS-01")
def test_one_form_at_a_time() -> None:
    value = AgentInstructions("tone", "x")
    for more in ({"id": "tone"}, {"text": "x"}, {"when": always}):
        assert refusal(value, **more) == "give addInstructions either one value or id=, text= and when=, not both"


@pytest.mark.req("INS-01")
def test_other_values_and_keys_are_refused() -> None:
    assert refusal("x") == "addInstructions takes an AgentInstructions or a mapping with id, text and when, not str"
    assert refusal({"id": "a", "text": "x", "txt": "y", "When": 1}) == (
        "addInstructions does not know 'When', 'txt'; its keys are id, text and when"
    )
    assert (
        refusal({"id": "a", "text": "x", 3: 1}) == "addInstructions does not know '3'; its keys are id, text and when"
    )
    assert refusal({"id": "a"}) == "instructions 'a': text must be a str, not NoneType"
    assert refusal(id="a", text=b"x") == "instructions 'a': text must be a str, not bytes"
    assert refusal(id="a", text="x", when=True) == "instructions 'a': when must be a function of the agent, not bool"


@pytest.mark.req("INS-02")
def test_the_limit_is_4096_bytes_after_trimming() -> None:
    assert INSTRUCTION_MAX_BYTES == 4096
    for text in ("a" * 4096, "é" * 2048, "😀" * 1024, " \ufeff\n" * 2000 + "a" * 4096 + "\u3000" * 500):
        assert checked(text).section.size == 4096
    assert refusal(id="a", text="a" * 4097) == (
        "instructions 'a': the text has 4097 bytes of UTF-8 after trimming, the limit is 4096: shorten it"
    )
    assert "has 4098 bytes" in refusal(id="a", text="é" * 2049)
    assert "has 4099 bytes" in refusal(id="a", text=" " + "a" * 4096 + "\ud800" + " ")


@pytest.mark.req("INS-02")
def test_the_limit_is_for_the_text_before_neutralising() -> None:
    text = ("<context>" * 500)[:4096]
    assert checked(text).section.size > 4096


@pytest.mark.req("INS-02")
@pytest.mark.parametrize("text", ["", " ", "\t\r\n\v\f", "\ufeff", "\u2028\u2029\u00a0\u3000"])
def test_empty_text_is_refused(text: str) -> None:
    assert refusal(id="a", text=text) == "instructions 'a': the text is empty; say something, or register nothing"


@pytest.mark.req("INS-02")
def test_white_space_of_python_alone_is_text() -> None:
    for text in ("\x1c", "\x1f", "\x85"):
        assert checked(text).section.body == text


@pytest.mark.req("INS-02")
def test_one_lone_surrogate_is_a_replacement_character() -> None:
    assert checked("\ud800").section.body == "\ufffd"
    assert checked(" \udfff ").section.size == 3


@pytest.mark.req("INS-02", "INS-07")
@given(hostile_texts)
def test_any_text_is_kept_whole_or_refused(text: str) -> None:
    wanted = well_formed(trim(text))
    if not wanted or len(wanted.encode("utf-8")) > INSTRUCTION_MAX_BYTES:
        refusal(id="a", text=text)
    else:
        made = checked(text).section
        assert parse(made.rendered) == (made,)
        assert made.attributes == (("plugin", "style"),)


@pytest.mark.req("INS-03")
@pytest.mark.parametrize("id", ["", "A", "a b", "a/b", 'a"', "a\n", "-a", "a" * 65, None, 7])
def test_ids_that_are_not_allowed(id: object) -> None:
    with pytest.raises(InvalidName, match="plugin 'style': instructions id ") as caught:
        check_instructions("style", {"id": id, "text": "x"})
    assert isinstance(caught.value, BuzzError)


@pytest.mark.req("INS-03")
@pytest.mark.parametrize("id", ["a", "0", "a.b_c-d", "a" * 64])
def test_ids_that_are_allowed(id: str) -> None:
    assert check_instructions("style", {"id": id, "text": "x"}).id == id


@pytest.mark.req("INS-03")
def test_the_values_that_were_checked_are_kept_and_not_the_callers_object() -> None:
    asked: list[str] = []

    class Shifty(Mapping[str, object]):
        """Says something else each time it is asked."""

        def __getitem__(self, key: str) -> object:
            asked.append(key)
            if asked.count(key) > 1:
                raise AssertionError(f"{key} was read twice")
            return {"id": "tone", "text": "first", "when": None}[key]

        def __iter__(self) -> Iterator[str]:
            return iter(("id", "text", "when"))

        def __len__(self) -> int:
            return 3

    assert check_instructions("style", Shifty()).section.body == "first"
    callers: dict[str, object] = {"id": "tone", "text": "first"}
    kept = check_instructions("style", callers)
    callers["text"] = "second"
    assert kept.section.body == "first"
    assert attrs.fields_dict(CheckedInstructions).keys() == {"id", "section", "when"}


@pytest.mark.req("INS-03")
def test_a_str_of_the_callers_own_class_is_kept_as_plain_text() -> None:
    class Shouting(str):
        __slots__ = ()

        def strip(self, _: str | None = None) -> str:
            return "x" * 5000

        def encode(self, *_: object, **__: object) -> bytes:
            return b"short"

    kept = check_instructions("style", {"id": Shouting("tone"), "text": Shouting("real")})
    assert (type(kept.id), type(kept.section.body)) == (str, str)
    assert (kept.id, kept.section.body) == ("tone", "real")


@pytest.mark.req("INS-03")
def test_a_subclass_of_the_value_is_read_once() -> None:
    reads: list[str] = []

    class Sly(AgentInstructions):
        def __getattribute__(self, name: str) -> object:
            if name == "text":
                reads.append(name)
            return super().__getattribute__(name)

    check_instructions("style", Sly("tone", "x"))
    assert reads == ["text"]


@pytest.mark.req("INS-09")
def test_the_value_is_exported_and_frozen() -> None:
    assert buzz_author.AgentInstructions is AgentInstructions
    value = AgentInstructions("tone", "x")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        value.text = "y"  # type: ignore[misc]


@pytest.mark.req("INS-13")
def test_the_docstrings_say_what_an_author_must_know() -> None:
    from buzz_author.plugins import Agents

    for documented in (AgentInstructions, Agents.addInstructions):
        words = " ".join((documented.__doc__ or "").split())
        for said in ("short", "tokens on every turn", "plugin's own", str(INSTRUCTION_MAX_BYTES), "content from others",
                     "framing", "trust boundary", "trusted code"):  # fmt: skip
            assert said in words, said


@pytest.mark.req("INS-02")
@given(st.one_of(st.none(), st.integers(), st.lists(st.integers()), st.dictionaries(st.text(), st.text()), st.binary()))
def test_nonsense_is_one_line(value: object) -> None:
    with pytest.raises(BuzzError) as caught:
        check_instructions("style", value)  # type: ignore[arg-type]
    assert str(caught.value).isprintable()
