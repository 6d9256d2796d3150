"""Tools of plugins reach the model by their names, and their results come back, whatever a tool does."""

from __future__ import annotations

import base64
import json
from typing import Any, Final, Literal

import pytest

from buzz_author.events import PermissionRequested, TextDelta, ToolCalled, ToolReturned, TurnStarted
from buzz_author.harness import HarnessError
from buzz_author.testing.frame import Frame, Shared
from buzz_author.testing.stage import Stage
from buzz_author.testing.stage_tools import DESCRIPTION, PNG, StageTools
from buzz_author.testing.wires import (
    conversation,
    end_of_newest_user_message,
    newest_user_texts,
    offered_tools,
    result_text,
    tool_results,
)

LOOP_CALLS: Final = 12


def calling(*lines: str) -> str:
    """A message that has the model do this."""
    return "\n".join(f"rehearse: {line}" for line in lines)


class Tools(Frame):
    """Round trips, several at once, faults, an image, unknown tools, a loop, an interrupt, and permissions. A harness
    that declares `tools="none"` is held to that: no tool of a plugin is offered to its model."""

    @property
    def has_tools(self) -> bool:
        """Whether plugins' tools reach the model."""
        return self.kind.make().capabilities.tools != "none"

    @pytest.mark.req("HAR-03", "ASM-05", "TRN-07")
    async def test_the_model_is_offered_plugins_tools_by_their_wire_names(self, stage: Stage) -> None:
        listed: list[Any] = []
        for _ in range(2):
            tools = StageTools()
            talk = await stage.open(tools=tools.all)
            await talk.ask("Hello.")
            await talk.ask("Hello again.")
            first, second = stage.requests()[-2:]
            assert isinstance(first.body, dict)
            assert isinstance(second.body, dict)
            ours = [each for each in offered_tools(first) if each not in self.kind.own_tools]
            assert ours == (tools.names if self.has_tools else [])
            assert (DESCRIPTION in first.raw.decode()) == self.has_tools
            listed += [first.body.get("tools"), second.body.get("tools")]
        assert all(each == listed[0] for each in listed), "the same list in each session, to the byte"

    @pytest.mark.req("HAR-03", "AGP-02")
    async def test_a_call_and_its_result_go_round(self, shared: Shared) -> None:
        if not self.has_tools:
            return
        stage, talk = shared.stage, shared.talk
        ended = await talk.ask(calling('call mcp__stage__remember {"fact": "tea 🐝"}', "say Kept."))
        assert (ended.status, ended.reply) == ("completed", "Kept.")
        assert shared.tools.calls[-1] == ("remember", {"fact": "tea 🐝"})
        result = tool_results(stage.requests()[-1])[-1]
        assert "kept tea 🐝 for main" in result_text(result, self.kind)
        (called,) = talk.of(ToolCalled, ended.turn)
        (returned,) = talk.of(ToolReturned, ended.turn)
        assert (called.name, dict(called.arguments)) == ("mcp__stage__remember", {"fact": "tea 🐝"})
        assert (returned.call, returned.is_error) == (called.call, False)
        assert "kept tea 🐝 for main" in returned.text

    @pytest.mark.req("HAR-03")
    async def test_what_is_said_before_and_after_a_call_is_one_reply(self, shared: Shared) -> None:
        if not self.has_tools:
            return
        talk = shared.talk
        asked = calling("say First part.", 'and call mcp__stage__remember {"fact": "tea"}', "say Second part.")
        ended = await talk.ask(asked)
        assert ended.reply == f"First part.{self.kind.joint}Second part."
        told = [type(event) for event in talk.of(object, ended.turn) if not isinstance(event, TextDelta)]
        assert told == [TurnStarted, ToolCalled, ToolReturned, type(ended)]

    @pytest.mark.req("HAR-03", "AGP-02")
    async def test_results_that_are_faults_reach_the_model_as_such(self, shared: Shared) -> None:
        if not self.has_tools:
            return
        stage, talk = shared.stage, shared.talk
        for call, words in (
            ("mcp__stage__refuse", ["not today"]),
            ("mcp__stage__broken", ["'stage'", "tea"]),
            ('mcp__stage__remember {"fact": 5}', ["string"]),
        ):
            ended = await talk.ask(calling(f"call {call}", "say Seen."))
            assert (ended.status, ended.reply) == ("completed", "Seen.")
            said = result_text(tool_results(stage.requests()[-1])[-1], self.kind)
            assert all(word in said for word in words), said
            assert talk.of(ToolReturned)[-1].is_error

    @pytest.mark.req("HAR-03")
    async def test_a_tool_that_nobody_offers_is_an_error_for_the_model(self, shared: Shared) -> None:
        if not self.has_tools:
            return
        stage, talk = shared.stage, shared.talk
        for name in ("mcp__stage__forget", "nothing"):
            ended = await talk.ask(calling(f'call {name} {{"a": 1}}', "say Seen."))
            assert (ended.status, ended.reply) == ("completed", "Seen.")
            assert name.rpartition("__")[2] in json.dumps(conversation(stage.requests()[-1])[-1])
            if self.kind.tells_native_calls:
                assert [event.is_error for event in talk.of(ToolReturned, ended.turn)] == [True]

    @pytest.mark.req("HAR-03", "AGP-02")
    async def test_an_image_in_a_result_reaches_the_model(self, shared: Shared) -> None:
        if not self.has_tools:
            return
        stage, talk = shared.stage, shared.talk
        ended = await talk.ask(calling("call mcp__stage__picture", "say Seen."))
        assert (ended.status, ended.reply) == ("completed", "Seen.")
        raw = stage.requests()[-1].raw.decode()
        assert "drawn" in raw
        assert (base64.b64encode(PNG).decode() in raw) == self.kind.images

    @pytest.mark.req("HAR-03")
    async def test_several_calls_of_one_answer_run_together_and_a_slow_one_is_waited_for(self, shared: Shared) -> None:
        if not self.has_tools:
            return
        stage, talk = shared.stage, shared.talk
        meeting = calling("call mcp__stage__meet", "and call mcp__stage__meet", "say Met.")
        assert (await talk.ask(meeting)).reply == "Met."
        assert [result_text(each, self.kind) for each in tool_results(stage.requests()[-1])[-2:]] == ["met", "met"]
        assert (await talk.ask(calling("call mcp__stage__slow", "say Done."))).reply == "Done."
        assert result_text(tool_results(stage.requests()[-1])[-1], self.kind) == "at last"

    @pytest.mark.req("HAR-03", "TRN-07")
    async def test_in_a_loop_of_tools_the_sections_come_once_a_turn(self, shared: Shared) -> None:
        if not self.has_tools:
            return
        stage, talk = shared.stage, shared.talk
        await talk.ask("Before the loop.")
        asked, returned = len(stage.requests()), len(tool_results(stage.requests()[-1]))
        calls = [f'call mcp__stage__remember {{"fact": "{number}"}}' for number in range(LOOP_CALLS)]
        turn = talk.composed(calling(*calls, "say End."))
        assert (await talk.ask(turn)).reply == "End."
        requests = stage.requests()[asked:]
        assert len(requests) == LOOP_CALLS + 1
        for request in requests:
            parts = [text for role, text in conversation(request) if turn.text in text]
            assert len(parts) == 1
            assert turn.text in "".join(newest_user_texts(request))
        assert len(tool_results(requests[-1])) - returned == LOOP_CALLS
        again = talk.composed("After the loop.")
        await talk.ask(again)
        assert end_of_newest_user_message(stage.requests()[-1], self.kind) == again.text

    @pytest.mark.req("HAR-03", "AGP-02")
    async def test_an_interrupt_cancels_a_call_that_runs(self, stage: Stage) -> None:
        if not self.has_tools:
            return
        tools = StageTools()
        talk = await stage.open(tools=tools.all)
        turn = await talk.send(calling("call mcp__stage__hold", "say Never said."))
        await tools.has_begun()
        await talk.session.interrupt()
        assert (await talk.until_ended(turn)).status == "interrupted"
        await tools.was_cancelled()
        assert (await talk.ask("rehearse: say Again.")).reply == "Again."

    @pytest.mark.req("HAR-03", "PRM-01")
    async def test_a_tool_that_nobody_allows_is_not_called(self, stage: Stage) -> None:
        if not self.has_tools:
            return
        tools = StageTools()
        talk = await stage.open(tools=tools.all, policy="read-only")
        ended = await talk.ask(calling('call mcp__stage__remember {"fact": "tea"}', "say Seen."))
        assert (ended.status, ended.reply) == ("completed", "Seen.")
        assert tools.calls == []
        assert "read-only" in result_text(tool_results(stage.requests()[-1])[-1], self.kind)
        assert (await talk.ask(calling("call mcp__stage__picture", "say Seen."))).reply == "Seen."
        assert "drawn" in result_text(tool_results(stage.requests()[-1])[-1], self.kind)

    @pytest.mark.req("HAR-03", "PRM-01")
    async def test_what_the_program_asks_is_one_event_and_waits_for_its_answer(self, stage: Stage) -> None:
        asks = self.kind.make().capabilities.permission_requests
        assert (self.kind.own_call is not None) == asks, "declare `own_call`, or no permission_requests"
        talk = await stage.open(policy="ask")
        if self.kind.own_call is None:
            assert (await talk.ask("Hello.")).status == "completed"
            assert talk.of(PermissionRequested) == []
            with pytest.raises((HarnessError, NotImplementedError)):
                await talk.session.answer("nothing", "allow")
            return
        made = stage.folder / "work" / "made.txt"
        answers: tuple[Literal["deny", "allow"], ...] = ("deny", "allow")
        for decision in answers:
            turn = await talk.send(calling(f"call {self.kind.own_call(made)}", "say Seen."))
            asked = await talk.until(PermissionRequested, turn=turn)
            assert asked.tool
            assert not made.exists()
            await talk.session.answer(asked.request, decision)
            assert (await talk.until_ended(turn)).status == "completed"
            assert made.exists() == (decision == "allow")
            with pytest.raises(HarnessError):
                await talk.session.answer(asked.request, decision)
        # An interrupt, and the session's end, are answers as well.
        made.unlink()
        turn = await talk.send(calling(f"call {self.kind.own_call(made)}", "say Seen."))
        await talk.until(PermissionRequested, turn=turn)
        await talk.session.interrupt()
        assert (await talk.until_ended(turn)).status == "interrupted"
        turn = await talk.send(calling(f"call {self.kind.own_call(made)}", "say Seen."))
        await talk.until(TurnStarted, turn=turn)
        await talk.until(PermissionRequested, turn=turn)
        await talk.close()
        assert not made.exists()
