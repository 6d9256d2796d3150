"""What is put into somebody's settings file comes out again to the byte, and nothing else of it ever changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from buzz_host.attach.hook_entries import EVENT, HOOKS, HookEntries, count, holds, insert, remove
from buzz_host.attach.json_text import JsonText, JsonTextError

pytestmark = pytest.mark.req("AUT-03")

ENTRIES = HookEntries('/h/my home\'s "é"/attach/client', "ab12", 2)
OTHERS = HookEntries("/other/attach/client", "ab12", 2)

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=12
)
groups = st.lists(
    values | st.just({"hooks": [{"type": "command", "command": "echo hi"}]}) | st.just(OTHERS.group()), max_size=3
)
hooks = st.dictionaries(st.text() | st.just("Stop"), values, max_size=2)


@st.composite
def settings(draw: st.DrawFn) -> dict[str, Any]:
    """The value of a settings file: anything at all, with hooks or without, ours never among them."""
    value = draw(st.dictionaries(st.text() | st.just("permissions"), values, max_size=4))
    value.pop(HOOKS, None)
    if draw(st.booleans()):
        inner = draw(hooks)
        inner.pop(EVENT, None)
        if draw(st.booleans()):
            inner[EVENT] = draw(groups)
        at = draw(st.integers(0, len(value)))
        rows = list(value.items())
        value = dict([*rows[:at], (HOOKS, inner), *rows[at:]])
    return value


class _Layout:
    """Writes JSON with white space, comments and trailing commas wherever they may stand."""

    def __init__(self, draw: st.DrawFn, *, lenient: bool) -> None:
        newline = draw(st.sampled_from(["\n", "\r\n"]))
        plain = ["", "", " ", "  ", "\t", newline, newline + "  ", newline + "\t\t"]
        notes = [" /* a, b: [{ */ ", "/**/", f' // "x" }}]{newline}', f"//{newline}  "]
        self._gaps = st.sampled_from(plain + notes if lenient else plain)
        self._lenient = lenient
        self._draw = draw

    def gap(self) -> str:
        return self._draw(self._gaps)

    def written(self, value: Any) -> str:
        if isinstance(value, dict):
            inner = [
                f"{self.gap()}{self._text(key)}{self.gap()}:{self.gap()}{self.written(each)}"
                for key, each in value.items()
            ]
            return self._closed("{", inner, "}")
        if isinstance(value, list):
            return self._closed("[", [f"{self.gap()}{self.written(each)}" for each in value], "]")
        return self._text(value)

    def _text(self, value: Any) -> str:
        return json.dumps(value, ensure_ascii=self._draw(st.booleans()))

    def _closed(self, opening: str, inner: list[str], closing: str) -> str:
        body = ",".join(each + self.gap() for each in inner)
        if inner and self._lenient and self._draw(st.booleans()):
            body += "," + self.gap()
        return f"{opening}{body or self.gap()}{closing}"


@st.composite
def texts(draw: st.DrawFn, *, lenient: bool = True) -> str:
    """The text of a settings file, laid out in any way at all."""
    layout = _Layout(draw, lenient=lenient)
    mark = draw(st.sampled_from(["", "", "\ufeff"]))
    text = f"{mark}{layout.gap()}{layout.written(draw(settings()))}{layout.gap()}"
    assume(_encodable(text))
    return text


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@given(texts())
@example("{}")
@example("")
@example("\ufeff")
@example(" \n")
@example("{ // ours\n}")
@example('{"a": 1 // x\n}')
@example('{"hooks":{"UserPromptSubmit":[{"hooks":[]},]},}')
def test_attaching_and_detaching_gives_the_same_text_to_the_byte(text: str) -> None:
    made = insert(text, ENTRIES)
    assert holds(made.text, ENTRIES)
    assert count(made.text, ENTRIES) == 2
    assert remove(made.text, ENTRIES, made.inserted, made.made) == text


@given(texts())
def test_attaching_only_inserts(text: str) -> None:
    made = insert(text, ENTRIES)
    at = next((n for n, (a, b) in enumerate(zip(text, made.text, strict=False)) if a != b), len(text))
    assert any(made.text[:n] + made.text[n + len(made.inserted) :] == text for n in range(at + 1))
    before, after = JsonText(text).value, JsonText(made.text).value
    assert {key: value for key, value in after.items() if key != HOOKS} == {
        key: value for key, value in before.items() if key != HOOKS
    }
    known = before.get(HOOKS, {})
    assert after[HOOKS] == {**known, EVENT: [*known.get(EVENT, []), ENTRIES.group()]}


@given(texts(lenient=False))
def test_what_a_program_reads_is_valid_json_for_any_reader(text: str) -> None:
    made = insert(text, ENTRIES).text.removeprefix("\ufeff")
    assert json.loads(made)[HOOKS][EVENT][-1] == ENTRIES.group()


@given(texts(), st.sampled_from([None, 0, 2, "\t"]))
def test_our_hooks_are_found_in_a_file_that_somebody_wrote_anew(text: str, indent: int | str | None) -> None:
    """Claude Code writes its settings anew when a person allows a tool: then nothing stands where it stood."""
    made = insert(text, ENTRIES)
    value = JsonText(made.text).value
    value["later"] = [1, "x"]
    again = json.dumps(value, indent=indent)
    wanted = {**JsonText(text).value, "later": [1, "x"]}
    assert JsonText(remove(again, ENTRIES, made.inserted, made.made)).value == wanted


@given(texts(), texts())
def test_other_hooks_beside_ours_stay(text: str, other: str) -> None:
    first = insert(text, ENTRIES)
    second = insert(first.text, OTHERS)
    reduced = remove(second.text, ENTRIES, first.inserted, first.made)
    assert count(reduced, ENTRIES) == 0
    assert JsonText(reduced).value[HOOKS][EVENT][-1] == OTHERS.group()
    assert remove(reduced, ENTRIES, first.inserted, first.made) is reduced


@given(texts())
def test_with_nothing_remembered_the_hooks_still_go(text: str) -> None:
    made = insert(text, ENTRIES)
    reduced = remove(made.text, ENTRIES, None, "none")
    assert count(reduced, ENTRIES) == 0
    value = JsonText(reduced).value
    assert {**value, HOOKS: None} == {**JsonText(text).value, HOOKS: None}


def test_one_of_our_hooks_that_somebody_moved_into_a_group_of_theirs_goes_alone() -> None:
    (one, two) = ENTRIES.group()["hooks"]
    theirs = {"type": "command", "command": "echo theirs"}
    text = json.dumps({"hooks": {EVENT: [{"hooks": [one, theirs]}, {"matcher": "", "hooks": [two]}]}}, indent=2)
    assert json.loads(remove(text, ENTRIES, None, "none")) == {"hooks": {EVENT: [{"hooks": [theirs]}]}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 1, column 2"),
        ('{"a": 1,\n "b": }', "line 2, column 7"),
        ("[]", "an object is expected"),
        ('"text"', "an object is expected"),
        ('{"hooks": []}', "line 1: `hooks` is no object"),
        ('{"hooks": null}', "line 1: `hooks` is no object"),
        ('{\n"hooks": {"UserPromptSubmit": {}}}', "line 2: `hooks.UserPromptSubmit` is no list"),
        ('{"hooks": {},\n\n"hooks": {}}', r"`hooks` stands in it twice \(lines 1 and 3\)"),
        ('{"hooks": {"UserPromptSubmit": [], "UserPromptSubmit": []}}', "stands in it twice"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ('{"a": [,]}', "it is no JSON"),
        ('{"a": "unterminated}', "it is no JSON"),
        ("{} {}", "it is no JSON"),
        ("[" * 100_000, "cannot be read as JSON|it is no JSON"),
    ],
)
def test_what_cannot_be_edited_is_one_line(text: str, says: str) -> None:
    with pytest.raises(JsonTextError, match=says) as raised:
        insert(text, ENTRIES)
    assert "\n" not in str(raised.value)


def test_duplicates_elsewhere_are_nobodys_business() -> None:
    text = '{"a": 1, "a": 2}'
    made = insert(text, ENTRIES)
    assert remove(made.text, ENTRIES, made.inserted, made.made) == text


@pytest.mark.parametrize(
    "text", ['{\n    "a": 1\n}\n', '{\r\n\t"a": 1\r\n}', '{"a": 1}', '{\n  "hooks": {\n    "Stop": []\n  }\n}']
)
def test_the_files_own_style_is_kept(text: str) -> None:
    made = insert(text, ENTRIES).text
    assert ("\r\n" in made) == ("\r\n" in text)
    assert made.replace("\r\n", "").count("\r") == 0
    if "\n" not in text:
        assert "\n" not in made
    elif "\r\n" in text:
        assert made.count("\n") == made.count("\r\n")
        assert '\t"hooks": {\r\n\t\t"UserPromptSubmit"' in made
    else:
        unit = "    " if '    "a"' in text else "  "
        assert f'\n{unit * 2}"UserPromptSubmit": [\n{unit * 3}{{' in made


def test_a_hook_is_ours_by_its_program_and_its_attachment() -> None:
    assert ENTRIES.owns(ENTRIES.group()["hooks"][1])
    for other in (
        None,
        [],
        {},
        {"command": ENTRIES.client},
        {"command": "/bin/sh", "args": 7},
        *OTHERS.group()["hooks"],
    ):
        assert not ENTRIES.owns(other)
