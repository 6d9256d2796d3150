"""A message that arrives mid-turn is folded in, a turn of its own, or returned; none is ever lost."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from buzz_author.errors import BuzzError
from buzz_author.events import SteerSettled, TextDelta, ToolCalled, TurnEnded, TurnStarted
from buzz_author.testing.frame import SOAK, Frame
from buzz_author.testing.stage import Stage
from buzz_author.testing.stage_tools import StageTools
from buzz_author.testing.talk import Talk
from buzz_author.testing.wires import contains_text, end_of_newest_user_message
from buzz_author.turns import Turn

MANY: Final = 150 if SOAK else 20
AROUND_MAX: Final = 100 if SOAK else 20


class Steering(Frame):
    """Steers at each moment of a turn, many of them, and interrupts. A harness that declares `steer="none"` is held to
    that: it refuses, and what it refused reaches no model."""

    @property
    def steers(self) -> bool:
        """Whether the harness takes steers at all."""
        return self.kind.make().capabilities.steer != "none"

    async def settled(self, stage: Stage, talk: Talk, steer: Turn) -> SteerSettled:
        """How a steer went, once its turn has ended; its text is where the outcome says it is."""
        settled = await talk.until(SteerSettled, steer=steer.id)
        assert settled.outcome in ("folded", "own-turn", "returned")
        said = steer.message
        if settled.outcome == "returned":
            assert not any(contains_text(each, said) for each in stage.requests())
            return settled
        assert (settled.turn == steer.id) == (settled.outcome == "own-turn")
        await talk.until_ended(settled.turn)
        assert any(contains_text(each, said) for each in stage.requests()), "the model never read it"
        return settled

    async def refused(self, stage: Stage, talk: Talk, turn: str) -> None:
        """A harness without steering refuses, and the turn goes on."""
        steer = talk.composed("Never read.", steers=turn)
        with pytest.raises((BuzzError, NotImplementedError)):
            await talk.session.steer(steer)
        assert (await talk.until_ended(turn)).status == "completed"
        assert (await talk.ask("rehearse: say Next.")).reply == "Next."
        assert not any(contains_text(each, "Never read.") for each in stage.requests())
        assert talk.of(SteerSettled) == []

    @pytest.mark.req("HAR-03", "TRN-04")
    async def test_a_steer_before_the_first_token_reaches_the_model(self, stage: Stage) -> None:
        talk = await stage.open()
        turn = await talk.send("rehearse: wait 0.5\nrehearse: say One.")
        await talk.until(TurnStarted, turn=turn)
        if not self.steers:
            await self.refused(stage, talk, turn)
            return
        steer = talk.composed("rehearse: say Two.", steers=turn)
        await talk.steer(steer, turn)
        settled = await self.settled(stage, talk, steer)
        replies = [event.reply for event in talk.of(TurnEnded)]
        if settled.outcome == "own-turn":
            assert replies == ["One.", "Two."]
            assert end_of_newest_user_message(stage.requests()[-1], self.kind) == steer.text
        elif settled.outcome == "folded":
            assert "Two." in replies[0]
            assert steer.text in end_of_newest_user_message(stage.requests()[-1])
        assert (await talk.ask("rehearse: say Next.")).reply == "Next."

    @pytest.mark.req("HAR-03", "TRN-04")
    async def test_a_steer_in_the_middle_of_the_text_throws_nothing_away(self, stage: Stage) -> None:
        talk = await stage.open()
        turn = await talk.send(f"rehearse: pace 0.03\nrehearse: say {'word ' * 60}end")
        await talk.until_text(turn, "word")
        if not self.steers:
            await self.refused(stage, talk, turn)
            return
        steer = talk.composed("rehearse: say Two.", steers=turn)
        await talk.steer(steer, turn)
        settled = await self.settled(stage, talk, steer)
        assert settled.outcome != "returned"
        ended = await talk.until_ended(turn)
        assert ended.status == "completed"
        assert "end" in ended.reply, "the answer that ran is told to its end"
        assert "word word" in "".join(event.text for event in talk.of(TextDelta) if event.turn == turn)

    @pytest.mark.req("HAR-03", "TRN-04")
    async def test_a_steer_during_a_tool_joins_or_follows(self, stage: Stage) -> None:
        tools = StageTools()
        talk = await stage.open(tools=tools.all)
        if self.kind.make().capabilities.tools == "none":
            return  # there is no such moment; `Tools` holds it to that
        turn = await talk.send("rehearse: call mcp__stage__hold {}\nrehearse: say Both done.")
        await talk.until(ToolCalled, turn=turn)
        await tools.has_begun()
        if not self.steers:
            tools.release()
            await self.refused(stage, talk, turn)
            return
        steer = talk.composed("Also this.", steers=turn)
        await talk.steer(steer, turn)
        tools.release()
        settled = await self.settled(stage, talk, steer)
        assert (await talk.until_ended(turn)).status == "completed"
        expected = {"folds": ("folded",), "queues": ("folded", "own-turn")}[self.kind.make().capabilities.steer]
        assert settled.outcome in expected

    @pytest.mark.req("HAR-03", "TRN-04")
    async def test_steers_around_the_last_token_are_not_lost(self, stage: Stage) -> None:
        talk = await stage.open()
        if not self.steers:
            return
        turn = await talk.send("rehearse: say Quick.")
        steers: list[Turn] = []
        # A harness that folds each of them in would go on as long as they come.
        while len(steers) < AROUND_MAX and not [event for event in talk.of(TurnEnded) if event.turn == turn]:
            steer = talk.composed(f"Between, {len(steers)}!", steers=turn)
            steers.append(steer)
            await talk.steer(steer, turn)
            await asyncio.sleep(0.005)  # apart, so that one of them meets the very end
        for steer in steers:
            await self.settled(stage, talk, steer)
        assert (await talk.ask("rehearse: say Next.")).reply == "Next."

    @pytest.mark.req("HAR-03", "TRN-04")
    async def test_a_steer_between_turns_is_a_turn_or_comes_back(self, stage: Stage) -> None:
        talk = await stage.open()
        first = talk.composed("rehearse: say One.")
        assert (await talk.ask(first)).reply == "One."
        if not self.steers:
            with pytest.raises((BuzzError, NotImplementedError)):
                await talk.session.steer(talk.composed("Never read.", steers=first.id))
            return
        late = talk.composed("rehearse: say Three.", steers=first.id)
        await talk.steer(late, first.id)
        settled = await self.settled(stage, talk, late)
        assert settled.outcome in ("own-turn", "returned")
        if settled.outcome == "own-turn":
            assert (await talk.until_ended(late.id)).reply == "Three."
        assert (await talk.ask("rehearse: say Four.")).reply == "Four."

    @pytest.mark.req("HAR-03", "TRN-04")
    async def test_many_steers_are_each_settled(self, stage: Stage) -> None:
        talk = await stage.open()
        if not self.steers:
            return
        turn = await talk.send("rehearse: wait 0.7\nrehearse: call nothing {}\nrehearse: wait 0.3\nrehearse: say Done.")
        await talk.until(TurnStarted, turn=turn)
        steers = [talk.composed(f"[{number}]", steers=turn) for number in range(MANY)]
        for steer in steers:
            await talk.steer(steer, turn)
        for steer in steers:
            await self.settled(stage, talk, steer)

    @pytest.mark.req("HAR-03")
    async def test_an_interrupted_turn_ends_as_such_and_the_next_one_works(self, stage: Stage) -> None:
        talk = await stage.open()
        await talk.session.interrupt()  # nothing runs: nothing happens
        turn = await talk.send("rehearse: hang")
        await talk.until(TurnStarted, turn=turn)
        await talk.session.interrupt()
        ended = await talk.until_ended(turn)
        assert (ended.status, ended.error) == ("interrupted", None)
        streaming = await talk.send(f"rehearse: pace 0.2\nrehearse: say {'word ' * 100}")
        await talk.until_text(streaming, "word")
        await talk.session.interrupt()
        cut = await talk.until_ended(streaming)
        assert cut.status == "interrupted"
        assert "word" in cut.reply
        again = talk.composed("rehearse: say Again.")
        assert (await talk.ask(again)).reply == "Again."
        assert end_of_newest_user_message(stage.requests()[-1], self.kind).endswith(again.text)

    @pytest.mark.req("HAR-03", "TRN-04")
    async def test_a_steer_that_waits_when_its_turn_is_interrupted_is_not_lost(self, stage: Stage) -> None:
        talk = await stage.open()
        if not self.steers:
            return
        turn = await talk.send("rehearse: hang")
        await talk.until(TurnStarted, turn=turn)
        steer = talk.composed("rehearse: say Still here.", steers=turn)
        await talk.steer(steer, turn)
        await talk.session.interrupt()
        assert (await talk.until_ended(turn)).status == "interrupted"
        settled = await talk.until(SteerSettled, steer=steer.id)
        assert settled.outcome in ("own-turn", "returned")
        if settled.outcome == "own-turn":
            assert (await talk.until_ended(steer.id)).reply == "Still here."
        assert (await talk.ask("rehearse: say Next.")).reply == "Next."
