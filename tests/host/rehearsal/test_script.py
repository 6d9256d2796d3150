"""The script language by itself: which lines count, what they mean, and how each mistake is told."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_host.rehearsal.neutral import NotUnderstood
from buzz_host.rehearsal.script import (
    EVENT_TAGS,
    Call,
    Echo,
    Report,
    Say,
    newest_event,
    opens_event,
    steps_of_file,
    steps_of_text,
)

pytestmark = pytest.mark.req("HAR-05")


def event(text: str, tag: str = "buzz-event", attributes: str = ' type="message"') -> str:
    return f"<{tag}{attributes}>\n{text}\n</{tag}>"


def test_each_directive_means_what_its_words_say() -> None:
    steps = steps_of_text(
        "rehearse: wait 2.5\n"
        "rehearse: pace 0\n"
        'rehearse: say "a\\nb"\n'
        "rehearse: and echo\n"
        "rehearse: and report\n"
        'rehearse: and call one {"a": [1]}\n'
        "rehearse:call two\r\n"
        "rehearse: fail 429 2 times\n"
        "rehearse: drop 1 time\n"
        "rehearse:   hang\n"
    )
    first, second, fail, drop, hang = steps
    assert first.parts == (Say("a\nb"), Echo(), Report(), Call("one", {"a": [1]}))
    assert (first.wait_s, first.pace_s) == (2.5, 0.0)
    assert second.parts == (Call("two", {}),)
    assert (second.wait_s, second.fault) == (0.0, None)
    assert (fail.fault, fail.status, fail.times) == ("fail", 429, 2)
    assert (drop.fault, drop.times) == ("drop", 1)
    assert (hang.fault, hang.times) == ("hang", None)


def test_a_wait_with_nothing_behind_it_slows_the_default_answer() -> None:
    (step,) = steps_of_text("hello\nrehearse: wait 1")
    assert (step.parts, step.wait_s) == ((Report(),), 1.0)


@pytest.mark.parametrize("tag", EVENT_TAGS)
def test_directives_count_in_the_newest_event_only(tag: str) -> None:
    text = "\n\n".join(
        [
            "rehearse: fail 500",
            "<context>\nrehearse: fail 501\n</context>",
            event("rehearse: fail 502"),
            event("hello\nrehearse: say this one\n  rehearse: say not this", tag),
            '<plugin-instructions plugin="p">\nrehearse: fail 503\n</plugin-instructions>',
            "rehearse: fail 504",
        ]
    )
    (step,) = steps_of_text(text)
    assert step.parts == (Say("this one"),)
    assert step.said == 'line 2 "say this one"'


def test_texts_of_failed_turns_in_front_do_not_fire_again() -> None:
    merged = event("rehearse: fail 500") + "\n" + event("just a question")
    assert steps_of_text(merged) == ()


def test_only_whole_lines_open_and_close_an_event() -> None:
    assert opens_event('<buzz-event type="message">')
    assert opens_event("<watch-task>")
    for line in (
        " <watch-task>",
        "&lt;watch-task>",
        "<watch-tasks>",
        "</watch-task>",
        "<context>",
        "text <watch-task>",
    ):
        assert not opens_event(line)
    assert newest_event("<watch-task>\na\n </watch-task>\nb\n</watch-task>\nc") == ["a", " </watch-task>", "b"]
    assert newest_event("<watch-task>\nnever closed") == ["never closed"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("x", 'line 1 "x": unknown directive; there are say, echo, report, call, wait, pace, fail, drop, hang'),
        ("", 'line 1 "": unknown directive; there are say, echo, report, call, wait, pace, fail, drop, hang'),
        ("say", 'line 1 "say": say needs a text'),
        ('say "', 'line 1 "say \\"": a text that starts with a quote must be a JSON string: '),
        ('say ""', "say needs a text"),
        ('say "a" b', "must be a JSON string"),
        ("echo this", "echo takes nothing behind it"),
        ("call", "call needs the name of a tool"),
        ('call {"a": 1}', "call needs the name of a tool"),
        ("call " + "n" * 257, "call needs the name of a tool"),
        ("call t {", "the arguments are not valid JSON: "),
        ("call t [1]", "the arguments must be a JSON object"),
        ("call t " + '{"a":' * 100_000, "the arguments are not valid JSON: "),
        ("wait", "expected seconds from 0 to 3600"),
        ("wait nan", "expected seconds from 0 to 3600"),
        ("wait -1", "expected seconds from 0 to 3600"),
        ("wait 3601", "expected seconds from 0 to 3600"),
        ("pace inf", "expected seconds from 0 to 60"),
        ("fail", "fail needs a status from 400 to 599"),
        ("fail 200", "fail needs a status from 400 to 599"),
        ("fail 5oo", "fail needs a status from 400 to 599"),
        ("fail " + "5" * 5000, "fail needs a status from 400 to 599"),
        ("fail 500 2", "expected a number of times, such as: fail 500 2 times"),
        ("drop twice", "expected a number of times, such as: drop 2 times"),
        ("drop 0 times", "the number of times must be from 1 to 1000"),
        ("hang " + "9" * 5000 + " times", "the number of times must be from 1 to 1000"),
        ("and say a", '"and" needs an answer in the line before it'),
        ("drop 1 time\nand say a", '"and" needs an answer in the line before it'),
        ("wait 1\nand say a", '"and" needs an answer in the line before it'),
        ("say a\nand drop", 'only say, echo, report and call can follow "and"'),
        ("say a\nsay b", 'line 2 "say b" is never reached: the answer before it calls no tool, so the turn ends'),
        ("fail 500\nsay b", 'line 2 "say b" is never reached: line 1 "fail 500" has no number of times'),
    ],
)
def test_a_mistake_is_told_in_one_line_that_names_it(lines: str, told: str) -> None:
    text = "\n".join("rehearse: " + line for line in lines.split("\n"))
    with pytest.raises(NotUnderstood) as raised:
        steps_of_text(text)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


@given(st.text())
def test_a_text_without_directives_has_no_script(text: str) -> None:
    assert steps_of_text(text.replace("rehearse:", "")) == ()


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\n"), max_size=40), max_size=6))
def test_no_directive_does_worse_than_not_being_understood(lines: list[str]) -> None:
    with contextlib.suppress(NotUnderstood):
        steps_of_text("\n".join("rehearse:" + line for line in lines))


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.text() | st.integers(), st.lists)))
def test_arguments_arrive_as_written(arguments: dict[str, object]) -> None:
    (step,) = steps_of_text("rehearse: call tool " + json.dumps(arguments))
    assert step.parts == (Call("tool", arguments),)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", "[", "a.json: not valid JSON: "),
        ("a.toml", "answers = [", "a.toml: not valid TOML: "),
        ("a.json", '"say a"', "a.json: expected a list of strings, or one under the key answers"),
        ("a.json", "[1]", "a.json: expected a list of strings, or one under the key answers"),
        ("a.json", '["say a", "shout"]', 'a.json: answer 2 "shout": unknown directive'),
        ("a.json", '["fail 500", "say a"]', 'a.json: answer 2 "say a" is never reached: '),
        ("a.json", "[" * 100_000, "a.json: not valid JSON: "),
    ],
)
def test_a_mistake_in_a_file_names_file_and_answer(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(NotUnderstood) as raised:
        steps_of_file(tmp_path / name)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_may_hold_several_lines_an_answer_and_answers_across_turns(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"answers": ["say a", "wait 1\nsay b\nand call t", ""]}), encoding="utf-8")
    one, two = steps_of_file(path)
    assert one.parts == (Say("a"),)
    assert (two.parts, two.wait_s) == ((Say("b"), Call("t", {})), 1.0)
