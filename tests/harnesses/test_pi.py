"""The real Pi in the conformance suite, the line before 1.0 as well, and what is so of Pi alone."""

from __future__ import annotations

import functools
import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from buzz_author.events import PermissionRequested, SteerSettled, ToolCalled, ToolReturned, TurnStarted
from buzz_author.harness import FoundProgram, Harness, HarnessError, NpmProgram, Policy
from buzz_author.plugins import Programs
from buzz_author.testing import HarnessConformance, HarnessUnderTest, Stage
from buzz_author.testing.frame import Frame
from buzz_author.testing.programs import missing, programs
from buzz_author.testing.stage_tools import StageTools
from buzz_author.testing.talk import Talk
from buzz_author.testing.wires import (
    contains_text,
    end_of_newest_user_message,
    offered_tools,
    result_text,
    system_texts,
    tool_results,
)
from harnesses.pi import program
from harnesses.pi.harness import PiHarness

EARLIER_VERSION = "0.74.2"
READING = {"find", "grep", "ls", "read"}
WRITING = {"bash", "edit", "write"}


def pi_harness(*, found: Programs | None = None, **fixed: Any) -> Harness:
    return PiHarness(programs=found or programs(), **fixed)


PI = HarnessUnderTest(
    "pi",
    pi_harness,
    own_call=lambda path: f"write {json.dumps({'path': str(path), 'content': 'made'})}",
    # Too long, says the model: what stands before the newest twenty thousand tokens becomes a summary.
    compact="rehearse: fail 413 1 time\n" + "word " * 20_000,
    idle_s=lambda seconds: {"idle_s": seconds},
    lower_line_bound=lambda patched, octets: {"limit_bytes": octets},
    leftovers=("buzz/*",),
)


@attrs.frozen
class Earlier:
    """The programs of this machine, of which Pi is of the line before 1.0."""

    def find(self, harness: str, wanted: NpmProgram) -> FoundProgram | None:
        found = programs().find(harness, attrs.evolve(wanted, version=EARLIER_VERSION, node=(20, 6)))
        return found if found is not None and found.version == EARLIER_VERSION else None


def calling(*lines: str) -> str:
    return "\n".join(f"rehearse: {line}" for line in lines)


@pytest.mark.program("pi")
class TestPi(HarnessConformance):
    kind = PI


@pytest.mark.program("pi")
class TestPiBefore1(Frame):
    """The line before 1.0, which tells less of itself: the same session of each kind of event."""

    kind = attrs.evolve(PI, make=functools.partial(pi_harness, found=Earlier()))

    @pytest.mark.req("HAR-01", "HAR-03", "TRN-04", "PRM-01")
    async def test_turns_tools_steers_interrupts_and_resuming(self, stage: Stage) -> None:
        tools = StageTools()
        talk = await stage.open(tools=tools.all)
        first = talk.composed(calling('call mcp__stage__remember {"fact": "tea 🐝"}', "say Kept."))
        assert (await talk.ask(first)).reply == "Kept."
        request = stage.requests()[-1]
        assert tools.calls == [("remember", {"fact": "tea 🐝"})]
        assert end_of_newest_user_message(request) == first.text
        assert system_texts(request) == [talk.spec.system_prompt]
        assert offered_tools(request) == tools.names
        # A steer that is read, and one that comes too late to be.
        turn = await talk.send(calling("call mcp__stage__hold", "say Done."))
        await tools.has_begun()
        steer = await talk.steer("Also this.", turn)
        tools.release()
        assert (await talk.until(SteerSettled, steer=steer)).outcome == "folded"
        assert (await talk.until_ended(turn)).status == "completed"
        assert contains_text(stage.requests()[-1], "Also this.")
        hanging = await talk.send("rehearse: hang")
        await talk.until(TurnStarted, turn=hanging)
        unread = await talk.steer("Never read.", hanging)
        await talk.session.interrupt()
        assert (await talk.until_ended(hanging)).status == "interrupted"
        assert (await talk.until(SteerSettled, steer=unread)).outcome == "returned"
        assert (await talk.ask("rehearse: say Next.")).reply == "Next."
        assert not contains_text(stage.requests()[-1], "Never read.")
        # Asked again after a fault, in a turn that ends once; then one that fails.
        assert (await talk.ask("rehearse: fail 500 1 time\nrehearse: say There.")).reply == "There."
        failed = await talk.ask("rehearse: fail 401")
        assert failed.error is not None
        assert (failed.status, failed.error.kind, failed.error.status) == ("failed", "authentication", 401)
        native = talk.session.native_id
        await talk.close()
        again = await stage.open(resume=native, tools=StageTools().all)
        assert again.session.native_id == native
        assert (await again.ask("rehearse: say Back.")).reply == "Back."
        assert contains_text(stage.requests()[-1], "Also this.")

    @pytest.fixture(autouse=True)
    def needed(self) -> None:
        if Earlier().find("pi", program.PROGRAM) is None:
            missing(f"Pi {EARLIER_VERSION} is not here: buzz harness install pi --version {EARLIER_VERSION}")


def answers(talk: Talk) -> dict[str, tuple[bool, str]]:
    """By the name of the tool: whether it failed, and what it said."""
    named = {event.call: event.name for event in talk.of(ToolCalled)}
    return {named[event.call]: (event.is_error, event.text) for event in talk.of(ToolReturned)}


def using(folder: Path) -> str:
    work = folder / "work"
    return calling(
        f'call read {{"path": "{work}/tea.txt"}}', f'call write {{"path": "{work}/new.txt", "content": "new"}}'
    )


@pytest.mark.program("pi")
class TestOnlyPi(Frame):
    kind = PI

    @pytest.mark.req("PRM-01", "HAR-03")
    @pytest.mark.parametrize(
        ("policy", "own"),
        [("plugin-tools-only", set()), ("read-only", READING), ("all", READING | WRITING)],
    )
    async def test_the_programs_own_tools_are_there_as_the_policy_says(
        self, stage: Stage, policy: Policy, own: set[str]
    ) -> None:
        (stage.folder / "work" / "tea.txt").write_text("tea at four", encoding="utf-8")
        tools = StageTools()
        talk = await stage.open(policy=policy, tools=tools.all)
        assert (await talk.ask(using(stage.folder))).status == "completed"
        assert set(offered_tools(stage.requests()[-1])) == own | set(tools.names)
        answered = answers(talk)
        assert answered["read"][0] is not ("read" in own)
        assert ("tea at four" in answered["read"][1]) is ("read" in own)
        assert (stage.folder / "work" / "new.txt").exists() is ("write" in own)
        assert talk.of(PermissionRequested) == []
        # A conversation remembers the tools that it had; what holds is the policy of today.
        if policy == "all":
            native = talk.session.native_id
            await talk.close()
            again = await stage.open(resume=native)
            assert (await again.ask("Hello.")).status == "completed"
            assert offered_tools(stage.requests()[-1]) == []

    @pytest.mark.req("PRM-01", "HAR-03")
    async def test_a_request_says_which_tools_only_read_and_why_it_was_denied(self, stage: Stage) -> None:
        (stage.folder / "work" / "tea.txt").write_text("tea at four", encoding="utf-8")
        talk = await stage.open(policy="ask")
        turn = await talk.send(using(stage.folder))
        reading = await talk.until(PermissionRequested, turn=turn, tool="read")
        assert (reading.read_only, reading.arguments["path"]) == (True, str(stage.folder / "work" / "tea.txt"))
        await talk.session.answer(reading.request, "allow")
        writing = await talk.until(PermissionRequested, turn=turn, tool="write")
        assert (writing.read_only, writing.arguments["content"]) == (False, "new")
        await talk.session.answer(writing.request, "deny", reason="not in this test")
        assert (await talk.until_ended(turn)).status == "completed"
        assert "tea at four" in answers(talk)["read"][1]
        assert answers(talk)["write"] == (True, "not in this test")
        assert "not in this test" in result_text(tool_results(stage.requests()[-1])[-1])

    @pytest.mark.req("SEC-02")
    async def test_the_token_of_the_tools_is_in_no_file_argument_or_variable(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written: list[tuple[int, bytes]] = []
        write = program.write_setup

        def watched(path: Path, said: Mapping[str, Any]) -> None:
            write(path, said)
            written.append((stat.S_IMODE(path.stat().st_mode), said["gateway"]["token"].encode()))

        monkeypatch.setattr(program, "write_setup", watched)
        left = stage.config_dir / "buzz" / "of-a-host-that-was-killed.json"
        left.parent.mkdir(parents=True)
        left.write_text("{}", encoding="utf-8")
        os.utime(left, (1, 1))
        talk = await stage.open(tools=StageTools().all)
        ((mode, token),) = written
        assert mode == 0o600
        assert (await talk.ask(calling("call mcp__stage__picture", "say Drawn."))).reply == "Drawn."
        running = stage.programs(talk)
        assert running
        for pid in running:
            for part in ("environ", "cmdline"):
                assert token not in Path(f"/proc/{pid}/{part}").read_bytes()
        assert not left.exists()
        # Our extension has read its file, and removed it.
        assert not [path for path in stage.config_dir.rglob("*") if path.is_file() and token in path.read_bytes()]

    @pytest.mark.req("HAR-03")
    @pytest.mark.parametrize("api", ["openai-responses", "anthropic-messages"])
    async def test_an_endpoint_may_speak_each_of_its_protocols(self, stage: Stage, api: str) -> None:
        talk = await stage.open(fixed={"settings": {"api": api, "model": "one-of-mine"}}, tools=StageTools().all)
        turn = talk.composed(calling('call mcp__stage__remember {"fact": "tea"}', "say Kept."))
        assert (await talk.ask(turn)).reply == "Kept."
        request = stage.requests()[-1]
        assert request.path.partition("?")[0] == {"openai-responses": "/v1/responses"}.get(api, "/v1/messages")
        assert isinstance(request.body, dict)
        assert request.body["model"] == "one-of-mine"
        assert system_texts(request) == [talk.spec.system_prompt]

    @pytest.mark.req("HAR-03")
    @pytest.mark.parametrize(
        ("settings", "says"), [({"api": "smoke-signals"}, "expected one of"), ({"context_tokens": 0}, "a number")]
    )
    async def test_settings_that_mean_nothing_are_refused(
        self, stage: Stage, settings: dict[str, object], says: str
    ) -> None:
        with pytest.raises(HarnessError, match=says) as refused:
            await stage.open(fixed={"settings": settings})
        assert refused.value.kind == "invalid-request"

    @pytest.mark.req("HAR-03", "SEC-02")
    async def test_without_an_endpoint_the_programs_own_providers_have_the_key(self, stage: Stage) -> None:
        with pytest.raises(HarnessError) as refused:
            await stage.open(model_url=None, model="no-such-model", fixed={"environ": {"OPENAI_API_KEY": "sk-none"}})
        assert (refused.value.kind, refused.value.retryable) == ("invalid-request", False)
        assert "no-such-model" in refused.value.native
        assert not stage.leftovers()
        talk = await stage.open(model_url=None, fixed={"environ": {"PATH": os.environ["PATH"]}})
        with pytest.raises(HarnessError) as keyless:
            await talk.session.send(talk.composed("Hello."))
        assert keyless.value.kind == "authentication"

    @pytest.mark.req("HAR-06")
    async def test_a_login_is_kept_in_the_harnesss_own_folder(self, tmp_path: Path) -> None:
        harness = PiHarness(programs=programs(), environ={"PATH": "/bin", "OPENAI_API_KEY": "sk-none"})
        command = harness.login(tmp_path)
        assert Path(command.env["PI_CODING_AGENT_DIR"]).is_relative_to(tmp_path)
        assert "OPENAI_API_KEY" not in command.env
        kept = tmp_path / "agent" / "auth.json"
        kept.parent.mkdir()
        said: Sequence[tuple[str, bool]] = (("{}", False), ("", False), ('{"openai": {"type": "api_key"}}', True))
        assert not harness.logged_in(tmp_path)
        for text, logged_in in said:
            kept.write_text(text, encoding="utf-8")
            assert harness.logged_in(tmp_path) is logged_in
