"""A message that arrives mid-turn is folded in, a turn of its own, or returned; none is ever lost."""

from __future__ import annotations

import asyncio

import pytest

from buzz_author.events import SteerSettled, TurnEnded, TurnStarted
from tests.harnesses.conformance import Stage, end_of_newest_user_message

pytestmark = pytest.mark.anyio
MANY = 150


@pytest.mark.req("HAR-03", "TRN-04")
async def test_a_steer_before_a_tool_call_is_folded_into_the_turn(stage: Stage) -> None:
    talk = await stage.open()
    turn = await talk.send("rehearse: wait 1\nrehearse: call nothing {}\nrehearse: wait 0.3\nrehearse: say Both done.")
    await talk.until(TurnStarted, turn=turn)
    steer = await talk.steer("Also this.", turn)
    settled = await talk.until(SteerSettled, steer=steer)
    assert (settled.outcome, settled.turn) == ("folded", turn)
    assert [event for event in talk.of(TurnEnded) if event.turn == turn] == [], "it is told while the turn runs"
    ended = await talk.until(TurnEnded, turn=turn)
    assert (ended.status, ended.reply) == ("completed", "Both done.")
    assert b"Also this." in stage.requests()[-1].raw
    await talk.close()
    assert [event.turn for event in talk.of(TurnEnded)] == [turn]


@pytest.mark.req("HAR-03", "TRN-04")
async def test_a_steer_into_a_turn_without_tool_calls_runs_after_it(stage: Stage) -> None:
    talk = await stage.open()
    turn = await talk.send("rehearse: wait 0.5\nrehearse: say One.")
    await talk.until(TurnStarted, turn=turn)
    composed = talk.composed("rehearse: say Two.", steers=turn)
    talk.steered.append(composed.id)
    await talk.session.steer(composed)
    settled = await talk.until(SteerSettled, steer=composed.id)
    assert (settled.outcome, settled.turn) == ("own-turn", composed.id)
    assert (await talk.until(TurnEnded, turn=composed.id)).reply == "Two."
    assert [event.reply for event in talk.of(TurnEnded)] == ["One.", "Two."]
    assert end_of_newest_user_message(stage.requests()[-1]) == composed.text
    # And one for a turn that has just ended.
    late = await talk.steer("rehearse: say Three.", turn)
    assert (await talk.until(TurnEnded, turn=late)).reply == "Three."
    assert (await talk.ask("rehearse: say Four.")).reply == "Four."


@pytest.mark.req("HAR-03", "TRN-04")
async def test_several_steers_that_are_taken_up_together_are_each_settled(stage: Stage) -> None:
    talk = await stage.open()
    turn = await talk.send("rehearse: wait 1\nrehearse: say One.")
    await talk.until(TurnStarted, turn=turn)
    steers = [await talk.steer(f"Number {number}.", turn) for number in range(3)]
    for steer in steers:
        settled = await talk.until(SteerSettled, steer=steer)
        assert settled.outcome in ("own-turn", "folded")
        await talk.until(TurnEnded, turn=settled.turn)
    last = stage.requests()[-1].raw
    assert all(f"Number {number}.".encode() in last for number in range(3))


@pytest.mark.req("HAR-03", "TRN-04")
async def test_more_steers_than_a_program_keeps_account_of_are_all_settled(stage: Stage) -> None:
    talk = await stage.open()
    turn = await talk.send("rehearse: wait 1\nrehearse: call nothing {}\nrehearse: wait 0.5\nrehearse: say Done.")
    await talk.until(TurnStarted, turn=turn)
    steers = [await talk.steer(f"<{number}>", turn) for number in range(MANY)]
    for steer in steers:
        settled = await talk.until(SteerSettled, steer=steer)
        assert settled.outcome in ("own-turn", "folded")
        await talk.until(TurnEnded, turn=settled.turn)
    sent = b"".join(request.raw for request in stage.requests())
    assert [number for number in range(MANY) if f"<{number}>".encode() not in sent] == []


@pytest.mark.req("HAR-03", "TRN-04")
async def test_steers_around_the_end_of_a_turn_are_not_lost(stage: Stage) -> None:
    talk = await stage.open()
    turn = await talk.send("rehearse: say Quick.")
    steers = []
    while not [event for event in talk.of(TurnEnded) if event.turn == turn]:
        steers.append(await talk.steer(f"Between, {len(steers)}.", turn))
        await asyncio.sleep(0.005)  # apart, so that one of them meets the very end
    for steer in steers:
        settled = await talk.until(SteerSettled, steer=steer)
        await talk.until(TurnEnded, turn=settled.turn)
    last = stage.requests()[-1].raw
    assert all(f"Between, {number}.".encode() in last for number in range(len(steers)))


@pytest.mark.req("HAR-03")
async def test_an_interrupted_turn_ends_as_such_and_the_next_one_works(stage: Stage) -> None:
    talk = await stage.open()
    await talk.session.interrupt()  # nothing runs: nothing happens
    turn = await talk.send("rehearse: hang")
    await talk.until(TurnStarted, turn=turn)
    await talk.session.interrupt()
    ended = await talk.until(TurnEnded, turn=turn)
    assert (ended.status, ended.error) == ("interrupted", None)
    streaming = await talk.send(f"rehearse: pace 0.2\nrehearse: say {'word ' * 100}")
    await talk.until_text(streaming, "word")
    await talk.session.interrupt()
    cut = await talk.until(TurnEnded, turn=streaming)
    assert cut.status == "interrupted"
    assert "word" in cut.reply
    again = talk.composed("rehearse: say Again.")
    assert (await talk.ask(again)).reply == "Again."
    assert end_of_newest_user_message(stage.requests()[-1]) == again.text


@pytest.mark.req("HAR-03", "TRN-04")
async def test_a_steer_that_waits_when_its_turn_is_interrupted_runs_by_itself(stage: Stage) -> None:
    talk = await stage.open()
    turn = await talk.send("rehearse: hang")
    await talk.until(TurnStarted, turn=turn)
    steer = await talk.steer("rehearse: say Still here.", turn)
    await talk.session.interrupt()
    assert (await talk.until(TurnEnded, turn=turn)).status == "interrupted"
    assert (await talk.until(SteerSettled, steer=steer)).outcome == "own-turn"
    assert (await talk.until(TurnEnded, turn=steer)).reply == "Still here."
