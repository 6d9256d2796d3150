"""What goes wrong with a model is one typed error with the harness's own words, ends its turn once, and no more."""

from __future__ import annotations

import os
import signal
from typing import Final
from uuid import uuid4

import pytest

from buzz_author.events import Retrying, SessionEnded, SteerSettled, TurnStarted
from buzz_author.harness import HarnessError
from buzz_author.testing.frame import SOAK, Frame, Shared
from buzz_author.testing.stage import Stage, descriptors
from buzz_author.testing.under_test import RETRYABLE
from buzz_author.testing.wires import contains_text

CLOSED_PORT_URL: Final = "http://127.0.0.1:9"
IDLE_S: Final = 1.0
LINE_BOUND_BYTES: Final = 256 * 1024

RARE: Final = (403, 529)
"""Statuses whose like is asked anyway; asked under full counts only."""


class Faults(Frame):
    """Errors of the model, streams that break off or hang, and the death of the program."""

    @pytest.mark.req("HAR-03")
    async def test_errors_of_the_model_are_one_typed_error(self, stage: Stage) -> None:
        talk = await stage.open()
        for status, kind in self.kind.error_kinds.items():
            if status in RARE and not SOAK:
                continue
            asked = len(stage.requests())
            ended = await talk.ask(f"rehearse: fail {status}")
            assert ended.status == "failed", (status, ended)
            assert ended.error is not None
            assert (ended.error.kind, ended.error.status) == (kind, self.kind.told_status(status)), status
            assert ended.error.retryable == (kind in RETRYABLE)
            assert ended.error.native
            assert ended.reply == ""
            again = len(stage.requests()) - asked - 1
            assert again <= self.kind.retries_max, status
            retries = [event for event in talk.of(Retrying) if event.turn == ended.turn]
            assert len(retries) <= again
            assert {event.error.kind for event in retries} <= {kind}
        assert (await talk.ask("rehearse: say Alive.")).reply == "Alive."

    @pytest.mark.req("HAR-03")
    async def test_a_stream_that_breaks_off(self, shared: Shared) -> None:
        talk = shared.talk
        ended = await talk.ask("rehearse: drop")
        assert ended.error is not None
        assert (ended.status, ended.error.kind, ended.error.status) == ("failed", "connection", None)
        assert ended.error.retryable
        once = await talk.ask("rehearse: drop 1 time\nrehearse: say Whole.")
        expected = ("completed", "Whole.") if self.kind.recovers_from_drop else ("failed", once.reply)
        assert (once.status, once.reply) == expected
        assert (await talk.ask("rehearse: say Alive.")).reply == "Alive."

    @pytest.mark.req("HAR-03")
    async def test_a_model_that_is_not_there(self, stage: Stage) -> None:
        try:
            nowhere = await stage.open(model_url=CLOSED_PORT_URL)
        except HarnessError as refused:
            error = refused
        else:
            ended = await nowhere.ask("Hello.")
            assert ended.status == "failed"
            assert ended.error is not None
            error = ended.error
        assert error.kind == "connection"

    @pytest.mark.req("HAR-03")
    async def test_a_model_that_says_nothing(self, stage: Stage) -> None:
        if self.kind.idle_s is not None:
            talk = await stage.open(fixed=dict(self.kind.idle_s(IDLE_S)))
            ended = await talk.ask("rehearse: hang")
            assert ended.error is not None
            assert (ended.status, ended.error.kind, ended.error.retryable) == ("failed", "timeout", True)
        else:  # the program waits for its model, and a person's interrupt ends that
            talk = await stage.open()
            turn = await talk.send("rehearse: hang")
            await talk.until(TurnStarted, turn=turn)
            await talk.session.interrupt()
            assert (await talk.until_ended(turn)).status == "interrupted"
        assert (await talk.ask("rehearse: say Alive.")).reply == "Alive."

    @pytest.mark.req("HAR-03")
    async def test_a_conversation_is_resumed_in_a_new_session_and_refused_where_it_cannot_be(
        self, stage: Stage
    ) -> None:
        first = await stage.open()
        running = stage.programs(first)
        await first.ask("The word is heron.")
        native = first.session.native_id
        await first.close()
        if not self.kind.make().capabilities.resume:
            assert native is None
            return
        assert native is not None
        second = await stage.open(resume=native)
        assert not set(stage.programs(second)) & set(running)
        assert second.session.native_id == native
        turn = second.composed("Which word?")
        assert (await second.ask(turn)).status == "completed"
        assert contains_text(stage.requests()[-1], "The word is heron.")
        assert contains_text(stage.requests()[-1], turn.text)
        with pytest.raises(HarnessError) as refused:
            await stage.open(resume=str(uuid4()))
        assert (refused.value.kind, refused.value.retryable) == ("invalid-request", False)
        assert refused.value.native

    @pytest.mark.req("HAR-03")
    async def test_a_folder_that_is_not_there_is_refused(self, stage: Stage) -> None:
        if not self.kind.runs_program:
            return  # what runs nowhere needs no folder
        with pytest.raises(HarnessError) as refused:
            await stage.open(cwd=stage.folder / "nowhere")
        assert refused.value.kind == "invalid-request"
        assert not stage.leftovers(), "a session that did not start leaves no file"

    @pytest.mark.req("HAR-03")
    async def test_a_line_that_is_too_long_ends_the_session_as_a_fault(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if self.kind.lower_line_bound is None:
            return
        before = descriptors()
        with monkeypatch.context() as patched:
            fixed = dict(self.kind.lower_line_bound(patched, LINE_BOUND_BYTES))
            talk = await stage.open(fixed=fixed)
        turn = await talk.send(talk.raw("rehearse: echo\n" + "x" * (2 * LINE_BOUND_BYTES)))
        ended = await talk.until_ended(turn)
        assert ended.error is not None
        assert (ended.status, ended.error.kind) == ("failed", "unknown")
        assert (await talk.until(SessionEnded)).error == ended.error
        await talk.ended()
        assert stage.programs(talk) == []
        assert descriptors() <= before
        again = await stage.open(resume=talk.session.native_id)
        assert (await again.ask("rehearse: say Back.")).reply == "Back."

    @pytest.mark.req("HAR-03", "OPS-03")
    async def test_a_program_that_is_killed_ends_its_turn_once_and_gives_back_its_steer(self, stage: Stage) -> None:
        talk = await stage.open()
        if not self.kind.runs_program:
            assert stage.programs(talk) == []
            return
        capable = self.kind.make().capabilities
        await talk.ask("The word is heron.")
        turn = await talk.send("rehearse: hang")
        await talk.until(TurnStarted, turn=turn)
        steer = await talk.steer("Do not lose me.", turn) if capable.steer != "none" else None
        for pid in stage.programs(talk):
            os.kill(pid, signal.SIGKILL)
        ended = await talk.until_ended(turn)
        assert ended.error is not None
        assert (ended.status, ended.error.kind, ended.error.retryable) == ("failed", "process-died", True)
        assert ended.error.native
        if steer is not None:
            assert (await talk.until(SteerSettled, steer=steer)).outcome == "returned"
        assert (await talk.until(SessionEnded)).error == ended.error
        await talk.ended()
        with pytest.raises(HarnessError) as refused:
            await talk.session.send(talk.composed("Too late."))
        assert refused.value.kind == "process-died"
        if capable.resume:
            again = await stage.open(resume=talk.session.native_id)
            assert (await again.ask("rehearse: say Back.")).reply == "Back."
            assert contains_text(stage.requests()[-1], "The word is heron.")

    @pytest.mark.req("HAR-03", "OPS-03")
    async def test_a_program_that_is_killed_in_its_first_turn_does_not_claim_too_much(self, stage: Stage) -> None:
        talk = await stage.open()
        if not self.kind.runs_program:
            return
        turn = await talk.send("rehearse: hang")
        await talk.until(TurnStarted, turn=turn)
        for pid in stage.programs(talk):
            os.kill(pid, signal.SIGKILL)
        assert (await talk.until_ended(turn)).status == "failed"
        await talk.ended()
        # Either the program had written the conversation down, or nobody claims that it can be resumed.
        again = await stage.open(resume=talk.session.native_id)
        assert (await again.ask("rehearse: say Back.")).reply == "Back."
