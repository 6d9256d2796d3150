"""Tools in the real Claude Code: plugins' own reach the model and back, the program's are as the policy says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from buzz_author.events import PermissionRequested, QuestionAsked, SteerSettled, ToolCalled, ToolReturned, TurnEnded
from buzz_author.harness import HarnessError, Policy
from buzz_author.testing import Stage, Talk, spec_for, staged
from buzz_author.tools import Annotations, Text, Tool, ToolCall, ToolResult
from buzz_host import Host
from buzz_host.processes import ProgramHost
from buzz_host.rehearsal import RecordedRequest, Rehearsal
from buzz_host.sessions import events
from buzz_host.sessions.access import SessionAccess
from buzz_host.sessions.session import Session
from tests.harnesses.claude_kind import CLAUDE

pytestmark = [pytest.mark.anyio, pytest.mark.claude]
ASKED = {
    "question": "Which color?",
    "header": "Color",
    "multiSelect": False,
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
}
DEADLINE_S = 20.0

NOTES = '''
import asyncio
import base64

from buzz_author import Annotations, tool, mcp_error, mcp_result

inject = ("agents",)
READS = Annotations(read_only=True)
both = asyncio.Event()
waiting = 0
ended = []


@tool("remember", "Remember a fact", {"fact": str})
async def remember(arguments, call):
    print("a line that a protocol must not meet")
    return mcp_result({"kept": arguments["fact"], "for": call.agent})


@tool("picture", "Draw it", {}, annotations=READS)
async def picture(arguments):
    return {"content": [
        {"type": "text", "text": "drawn"},
        {"type": "image", "data": "%s", "mimeType": "image/png"},
    ]}


@tool("refuse", "Say no", {})
async def refuse(arguments):
    return mcp_error("not today")


@tool("broken", "Fail", {})
async def broken(arguments):
    raise KeyError("tea")


@tool("meet", "Wait for another one", {}, annotations=READS)
async def meet(arguments):
    global waiting
    waiting += 1
    if waiting == 2:
        both.set()
    await both.wait()
    return "met"


@tool("hold", "Never end", {}, annotations=READS)
async def hold(arguments):
    began.touch()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ended.append("cancelled")
        raise


@tool("ended", "How the held call ended", {}, annotations=READS)
async def how(arguments):
    return mcp_result(ended)


def apply(ctx):
    global began
    began = ctx.plugin.data_dir / "began"
    for each in (remember, picture, refuse, broken, meet, hold, how):
        ctx.agents.addTool(each)
'''  # fmt: skip
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
async def host(home: Path) -> AsyncIterator[Host]:
    folder = home / "plugins"
    folder.mkdir(parents=True)
    (folder / "notes.py").write_text(NOTES % PNG, encoding="utf-8")
    async with Host(home) as running:
        yield running


async def turn(session: Session, *lines: str) -> list[events.SessionEvent]:
    async with session.turn("\n".join(f"rehearse: {line}" for line in lines)) as stream:
        return [event async for event in stream]


def wait_for(path: Path) -> None:
    until = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < until, f"{path} was not made"
        time.sleep(0.01)


def results(request: RecordedRequest) -> list[dict[str, Any]]:
    """What tools returned in a request of the model, in order."""
    assert isinstance(request.body, dict)
    return [
        block
        for message in request.body["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else [])
        if block["type"] == "tool_result"
    ]


def said(block: dict[str, Any]) -> str:
    content = block["content"]
    return content if isinstance(content, str) else "".join(each.get("text", "") for each in content)


def newest(session: Session) -> RecordedRequest:
    assert session.rehearsal is not None
    return [each for each in session.rehearsal.requests() if each.path.startswith("/v1/messages?")][-1]


@pytest.mark.req("HAR-03", "AGP-02", "ASM-02", "ASM-05", "REG-02", "TRN-07")
async def test_tools_of_a_plugin_reach_the_model_and_their_results_as_well(
    host: Host, capfd: pytest.CaptureFixture[str]
) -> None:
    async with host.session(agent="main", harness="claude", rehearse=True) as session:
        happened = await turn(
            session,
            'call mcp__notes__remember {"fact": "tea"}',
            "and call mcp__notes__picture",
            "and call mcp__notes__refuse",
            "and call mcp__notes__broken",
        )
        first = newest(session)
        assert isinstance(first.body, dict)
        names = ["broken", "ended", "hold", "meet", "picture", "refuse", "remember"]
        assert [each["name"] for each in first.body["tools"]] == [f"mcp__notes__{name}" for name in names]
        (kept, drawn, refused, broken) = results(first)
        assert '"kept": "tea"' in said(kept)
        assert '"for": "main"' in said(kept)
        assert {"type": "base64", "media_type": "image/png", "data": PNG} in [
            each.get("source") for each in drawn["content"]
        ]
        assert (said(refused), refused["is_error"]) == ("not today", True)
        assert broken["is_error"]
        assert "plugin 'notes'" in said(broken)
        assert "KeyError: 'tea'" in said(broken)
        calls = [event for event in happened if isinstance(event, events.ToolCall)]
        assert (calls[0].name, calls[0].arguments) == ("mcp__notes__remember", {"fact": "tea"})
        assert {each.plugin for each in calls} == {"notes"}
        assert [event.is_error for event in happened if isinstance(event, events.ToolResult)] == [
            False,
            False,
            True,
            True,
        ]
        # Two at once, each of which waits for the other.
        await turn(session, "call mcp__notes__meet", "and call mcp__notes__meet")
        assert [said(each) for each in results(newest(session))[-2:]] == ["met", "met"]
        # A value of another type, an argument that is missing, a tool that nobody offers.
        await turn(session, 'call mcp__notes__remember {"fact": 5}', "call mcp__notes__forget")
        wrong, unknown = results(newest(session))[-2:]
        assert "5 is not of type 'string'" in said(wrong)
        assert "mcp__notes__forget" in said(unknown)
        assert wrong["is_error"]
        assert unknown["is_error"]
        # Switched off in the middle of the session: what the model is offered stays, a call says why it fails.
        (source,) = [each for each in host.plugins.found.sources if each.id == "notes"]
        host.plugins.enablement.disable(source)
        await turn(session, 'call mcp__notes__remember {"fact": "gone"}')
        last = newest(session)
        assert isinstance(last.body, dict)
        assert last.body["tools"] == first.body["tools"]
        gone = results(last)[-1]
        assert gone["is_error"]
        assert "plugin 'notes'" in said(gone)
        assert "switched off" in said(gone)
    async with host.session(agent="main", harness="claude", rehearse=True) as session:
        await turn(session, "say Hello.")
        body = newest(session).body
        assert isinstance(body, dict)
        assert body.get("tools", []) == []
    assert "a line that a protocol must not meet" in capfd.readouterr().out


@pytest.mark.req("HAR-03", "AGP-02")
async def test_an_interrupt_ends_the_call_and_the_session_goes_on(host: Host) -> None:
    async with host.session(agent="main", harness="claude", rehearse=True) as session:
        async with session.turn("rehearse: call mcp__notes__hold") as stream:
            async for event in stream:
                if isinstance(event, events.ToolCall):
                    # The program has said that it calls: it is waited for that it has called.
                    await asyncio.to_thread(wait_for, host.home.data / "notes" / "began")
                    await session.interrupt()
                if isinstance(event, events.TurnCompleted):
                    assert event.status == "interrupted"
        async with asyncio.timeout(DEADLINE_S):
            while True:
                await turn(session, "call mcp__notes__ended")
                if "cancelled" in said(results(newest(session))[-1]):
                    break


@pytest.mark.req("PRM-01", "AGP-05", "HAR-03")
async def test_a_person_is_asked_about_plugins_tools_and_the_programs_alike(host: Host, home: Path) -> None:
    (home / "buzz.toml").write_text('permissions = "ask"\n', encoding="utf-8")
    work = home / "work"
    work.mkdir()
    lines = (
        "call mcp__notes__ended",  # it only reads: nobody is asked
        'call mcp__notes__remember {"fact": "tea"}',
        'call mcp__notes__remember {"fact": "coffee"}',
        f'call Write {{"file_path": "{work / "new.txt"}", "content": "new"}}',
    )
    asked: list[tuple[str, str | None]] = []
    async with host.session(agent="main", harness="claude", rehearse=True, cwd=work) as session:
        async with session.turn("\n".join(f"rehearse: {line}" for line in lines)) as stream:
            async for event in stream:
                if isinstance(event, events.PermissionRequested):
                    asked.append((event.tool, event.plugin))
                    allowed = event.arguments.get("fact") != "coffee"
                    await session.answer(event.request, "allow" if allowed else "deny", reason="no coffee")
        read, kept, denied, written = results(newest(session))
    name = "mcp__notes__remember"
    assert asked == [(name, "notes"), (name, "notes"), ("Write", None)]
    assert [bool(each.get("is_error")) for each in (read, kept, denied, written)] == [False, False, True, False]
    assert "no coffee" in said(denied)
    assert (work / "new.txt").read_text(encoding="utf-8") == "new"


class Answered(SessionAccess):
    """A host whose tools say that they were called, without any plugin."""

    async def call_tool(self, call_id: str, name: str, arguments: Any) -> ToolResult:
        return ToolResult((Text(f"called {name}"),))


async def never(arguments: Any, call: ToolCall) -> ToolResult:
    raise AssertionError("a harness calls tools through its host")


READS = Tool("mcp__notes__reads", "Read", {"type": "object"}, never, Annotations(read_only=True))
WRITES = Tool("mcp__notes__writes", "Write", {"type": "object"}, never)


@asynccontextmanager
async def opened(rehearsal: Rehearsal, folder: Path, policy: Policy) -> AsyncIterator[tuple[Stage, Talk]]:
    async with staged(CLAUDE, rehearsal, folder) as stage:
        (folder / "work" / "tea.txt").write_text("tea at four", encoding="utf-8")
        spec = attrs.evolve(spec_for(CLAUDE, folder, rehearsal.url), policy=policy, tools=(READS, WRITES))
        access = Answered(ProgramHost(stage.children, spec.session), policy)
        talk = Talk(await CLAUDE.make().open(spec, access), spec)
        try:
            yield stage, talk
        finally:
            await talk.close()


def own_names(stage: Stage) -> set[str]:
    body = stage.requests()[-1].body
    assert isinstance(body, dict)
    return {each["name"] for each in body["tools"]} - {READS.name, WRITES.name}


def answers(talk: Talk) -> dict[str, tuple[bool, str]]:
    """By the name of the tool: whether it failed, and what it said."""
    named = {event.call: event.name for event in talk.of(ToolCalled)}
    return {named[event.call]: (event.is_error, event.text) for event in talk.of(ToolReturned)}


def using(folder: Path) -> str:
    work = folder / "work"
    return "\n".join(
        [
            "rehearse: call mcp__notes__reads",
            "rehearse: call mcp__notes__writes",
            f'rehearse: call Read {{"file_path": "{work}/tea.txt"}}',
            f'rehearse: call Write {{"file_path": "{work}/new.txt", "content": "new"}}',
        ]
    )


@pytest.mark.req("PRM-01", "HAR-03")
@pytest.mark.parametrize(
    ("policy", "reads", "writes"),
    [("plugin-tools-only", False, False), ("read-only", True, False), ("all", True, True)],
)
async def test_the_programs_own_tools_are_there_as_the_policy_says(
    rehearsal: Rehearsal, tmp_path: Path, policy: Policy, reads: bool, writes: bool
) -> None:
    async with opened(rehearsal, tmp_path, policy) as (stage, talk):
        assert (await talk.ask(using(tmp_path))).status == "completed"
        own = own_names(stage)
        assert ("Read" in own, "Write" in own) == (reads, writes)
        if policy == "plugin-tools-only":
            assert own == set()
        if policy == "read-only":
            assert own == {"Read", "Glob", "Grep"}
        answered = answers(talk)
        # The policy for plugins' tools is the host's business.
        assert answered["mcp__notes__reads"] == (False, "called mcp__notes__reads")
        assert answered["mcp__notes__writes"] == (False, "called mcp__notes__writes")
        assert answered["Read"][0] is not reads
        assert answered["Write"][0] is not writes
        assert (tmp_path / "work" / "new.txt").exists() is writes
        assert talk.of(PermissionRequested) == []
        assert not own & {"EnterPlanMode", "EnterWorktree", "SendMessage", "Monitor", "Workflow"}


@pytest.mark.req("PRM-01", "HAR-03")
async def test_under_ask_each_request_is_one_event_and_waits_for_its_answer(
    rehearsal: Rehearsal, tmp_path: Path
) -> None:
    new = tmp_path / "work" / "new.txt"
    writing = f'rehearse: call Write {{"file_path": "{new}", "content": "new"}}'
    async with opened(rehearsal, tmp_path, "ask") as (_, talk):
        first = await talk.send("rehearse: call mcp__notes__writes\n" + writing)
        asked = await talk.until(PermissionRequested, turn=first)
        assert (asked.tool, asked.read_only, asked.arguments["content"]) == ("Write", False, "new")
        # A steer while the program waits is taken in with the tool's result.
        steer = await talk.steer("And this.", first)
        await talk.session.answer(asked.request, "deny", reason="not in this test")
        await talk.until(TurnEnded, turn=first)
        assert (await talk.until(SteerSettled, steer=steer)).outcome in ("folded", "own-turn")
        assert answers(talk)["mcp__notes__writes"] == (False, "called mcp__notes__writes")
        failed, words = answers(talk)["Write"]
        assert failed
        assert "not in this test" in words
        assert not new.exists()
        with pytest.raises(HarnessError, match="waits for no answer"):
            await talk.session.answer(asked.request, "allow")

        second = await talk.send(writing)
        asked = await talk.until(PermissionRequested, turn=second)
        await talk.session.answer(asked.request, "allow")
        assert (await talk.until(TurnEnded, turn=second)).status == "completed"
        assert new.read_text(encoding="utf-8") == "new"

        # Interrupted while it waits: the request is withdrawn.
        third = await talk.send(writing.replace("new.txt", "newer.txt"))
        asked = await talk.until(PermissionRequested, turn=third)
        await talk.session.interrupt()
        assert (await talk.until(TurnEnded, turn=third)).status == "interrupted"
        with pytest.raises(HarnessError, match="waits for no answer"):
            await talk.session.answer(asked.request, "allow")
        assert not new.with_name("newer.txt").exists()

        question = str({"questions": [ASKED]}).replace("'", '"').replace("False", "false")
        fourth = await talk.send(f"rehearse: call AskUserQuestion {question}")
        put = await talk.until(QuestionAsked, turn=fourth)
        assert [dict(each) for each in put.questions] == [ASKED]
        await talk.session.answer(put.request, "allow", reply="Blue")
        assert (await talk.until(TurnEnded, turn=fourth)).status == "completed"
        assert '"Which color?"="Blue"' in answers(talk)["AskUserQuestion"][1]
