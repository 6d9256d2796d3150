"""The four faces of one render: what each gives, the same each time, and that the wrong kind is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.sections import Section, parse, render, section
from buzz_author.turns import (
    NOTE_TAGS,
    Snapshot,
    Turn,
    TurnKind,
    steer_prompt,
    turn_note,
    turn_prompt,
    wake_prompt,
)
from tests.author.hostile import hostile_texts

KINDS: tuple[TurnKind, ...] = ("message", "bus", "watch", "timer", "steer")


class Agent:
    """An agent whose instructions nobody may ask for: the faces work from the turn alone."""

    name, scope, harness, model, cwd = "main", "core", "claude", None, Path("/x")

    def instructions(self) -> tuple[Section, ...]:
        raise AssertionError("asked again")


def instructions(*texts: str) -> tuple[Section, ...]:
    return tuple(section("plugin-instructions", text, attributes=(("plugin", "style"),)) for text in texts)


def a_turn(kind: TurnKind, *sections: Section, anchored: bool = False) -> Turn:
    snapshot = Snapshot(1, Agent(), datetime(2026, 1, 1, tzinfo=UTC))
    return Turn("t-1", kind, "s-1", snapshot, "hello", sections, render(sections), anchored=anchored)


CONTEXT = section("context", "agent: main")
EVENT = section("buzz-event", "hello", attributes=(("type", "message"),))
ATTENTION = section("attention", "Look around.")
WAKE = section("watch-task", "Look at it.")


@pytest.mark.req("TRN-02")
def test_a_turn_ends_with_its_instructions_and_then_the_attention_note() -> None:
    rules = instructions("Be kind.", "Be brief.")
    turn = a_turn("message", CONTEXT, EVENT, *rules, ATTENTION)
    assert turn_note(turn) == render([*rules, ATTENTION])
    assert turn_prompt(turn) == turn.text
    assert turn_prompt(turn).endswith(turn_note(turn))


@pytest.mark.req("TRN-02")
def test_a_turn_with_neither_has_an_empty_note() -> None:
    assert turn_note(a_turn("message", CONTEXT, EVENT)) == ""
    assert turn_note(a_turn("message", EVENT, ATTENTION)) == ATTENTION.rendered
    assert turn_note(a_turn("message", EVENT, *instructions("x"))) == instructions("x")[0].rendered


@pytest.mark.req("TRN-02")
@given(st.sampled_from(KINDS), st.lists(hostile_texts, max_size=4), st.booleans())
def test_asked_twice_it_gives_the_same_bytes_and_asks_nobody(kind: TurnKind, texts: list[str], anchored: bool) -> None:
    turn = a_turn(kind, CONTEXT, EVENT, *instructions(*texts), ATTENTION, anchored=anchored)
    faces: list[Callable[[Turn], str]] = [turn_note, turn_prompt]
    if kind in ("watch", "timer"):
        faces.append(wake_prompt)
    if kind == "steer":
        faces.append(steer_prompt)
    for face in faces:
        assert face(turn) == face(turn)
        assert face(turn).endswith(turn_note(turn))
        # parsed back: each section once, whatever the texts try
        carried = [each for each in parse(face(turn)) if each.tag in NOTE_TAGS]
        assert carried == [*instructions(*texts), ATTENTION]


@pytest.mark.req("TRN-02")
@pytest.mark.parametrize("kind", ["watch", "timer"])
@pytest.mark.parametrize("anchored", [False, True])
def test_a_wake_carries_its_sections_once_anchored_or_not(kind: TurnKind, anchored: bool) -> None:
    rules = instructions("Be kind.")
    turn = a_turn(kind, CONTEXT, WAKE, *rules, ATTENTION, anchored=anchored)
    assert wake_prompt(turn) == turn.text
    assert [each.tag for each in parse(wake_prompt(turn))].count("plugin-instructions") == 1
    assert wake_prompt(turn).endswith(turn_note(turn))


@pytest.mark.req("TRN-02", "TRN-03")
@pytest.mark.parametrize("kind", KINDS)
def test_a_face_refuses_the_wrong_kind(kind: TurnKind) -> None:
    turn = a_turn(kind, EVENT)
    for face, kinds in ((wake_prompt, ("watch", "timer")), (steer_prompt, ("steer",))):
        if kind in kinds:
            assert face(turn) == turn.text
        else:
            expected = f"turn t-1 is a {kind} turn, not a {' or '.join(kinds)} turn: use turnPrompt"
            with pytest.raises(ValueError, match=expected):
                face(turn)


@pytest.mark.req("TRN-06")
def test_a_turn_and_its_snapshot_cannot_be_changed() -> None:
    turn = a_turn("message", EVENT)
    for value, name in ((turn, "text"), (turn.snapshot, "instructions"), (turn, "extra")):
        with pytest.raises(AttributeError):
            setattr(value, name, "x")
