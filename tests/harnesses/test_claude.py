"""The real Claude Code in the conformance suite, and what is so of it alone."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from buzz_author.events import TextDelta, ToolCalled, ToolReturned, TurnEnded, TurnStarted
from buzz_author.harness import HarnessError
from buzz_author.testing import HarnessConformance, Stage
from buzz_author.testing.frame import Frame
from tests.harnesses.claude_kind import CLAUDE


@pytest.mark.program("claude")
class TestClaude(HarnessConformance):
    kind = CLAUDE


@pytest.mark.program("claude")
class TestClaudeAlone(Frame):
    kind = CLAUDE

    @pytest.mark.req("HAR-03")
    async def test_a_call_of_no_tool_is_told_and_the_turn_goes_on(self, stage: Stage) -> None:
        talk = await stage.open()
        assert talk.session.native_id is None
        ended = await talk.ask(
            'rehearse: say "First part."\nrehearse: and call nothing {"a": 1}\nrehearse: say Second part.'
        )
        assert (ended.status, ended.reply) == ("completed", "First part.\n\nSecond part.")
        assert [type(event) for event in talk.events if not isinstance(event, TextDelta)] == [
            TurnStarted,
            ToolCalled,
            ToolReturned,
            TurnEnded,
        ]
        (called,) = talk.of(ToolCalled)
        (returned,) = talk.of(ToolReturned)
        assert (called.name, dict(called.arguments), called.plugin) == ("nothing", {"a": 1}, None)
        assert (returned.call, returned.is_error) == (called.call, True)
        assert "nothing" in returned.text
        assert talk.session.native_id is not None

    @pytest.mark.req("HAR-03")
    async def test_what_cannot_be_resumed_is_refused_in_plain_words(self, stage: Stage) -> None:
        first = await stage.open()
        await first.ask("The word is heron.")
        native = first.session.native_id
        await first.close()
        unknown = str(uuid4())
        with pytest.raises(HarnessError, match=f"No conversation found.*{unknown}"):
            await stage.open(resume=unknown)
        with pytest.raises(HarnessError, match="already in use") as in_use:
            await stage.open(fixed={"new_id": lambda: native})
        assert in_use.value.kind == "invalid-request"
        # A session without a turn has no id to resume by; asked for nevertheless, it is refused.
        forced = str(uuid4())
        empty = await stage.open(fixed={"new_id": lambda: forced})
        await empty.close()
        assert empty.session.native_id is None
        with pytest.raises(HarnessError, match="No conversation found"):
            await stage.open(resume=forced)
        with pytest.raises(HarnessError, match="directory"):
            await stage.open(cwd=stage.folder / "nowhere")
        assert not list(stage.config_dir.glob("buzz/*")), "a session that did not start leaves no file"

    @pytest.mark.req("HAR-03")
    async def test_a_text_that_no_model_takes_is_refused_and_the_session_goes_on(self, stage: Stage) -> None:
        talk = await stage.open()
        ended = await talk.ask(talk.raw("rehearse: echo\n" + "x" * 17 * 1024 * 1024))
        assert ended.error is not None
        assert (ended.error.kind, ended.error.status, ended.error.retryable) == ("invalid-request", None, False)
        assert (await talk.ask("rehearse: say Alive.")).reply == "Alive."

    @pytest.mark.req("SEC-02")
    async def test_its_home_is_the_folder_that_it_is_given(self, stage: Stage) -> None:
        talk = await stage.open()
        (program,) = stage.programs(talk)
        environment = Path(f"/proc/{program}/environ").read_bytes()
        variables = dict(entry.split(b"=", 1) for entry in environment.split(b"\0") if entry)
        assert variables[b"HOME"] == str(stage.config_dir).encode()
