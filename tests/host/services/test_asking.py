"""Tools of plugins under the policy `ask`, on the harness `direct`; and many sessions of one host at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from buzz_host import Host
from buzz_host.ledger.verify import verify
from buzz_host.rehearsal import Rehearsal
from buzz_host.sessions import events
from buzz_host.sessions.session import Session

pytestmark = pytest.mark.anyio
SESSIONS = 20
TURNS = 3
NOTES = """
from buzz_author import PluginContext, tool

inject = ("agents",)


def apply(ctx: PluginContext) -> None:
    @tool("remember", "Keeps a fact.", {"fact": str})
    async def remember(arguments):
        (ctx.plugin.data_dir / "kept").write_text(arguments["fact"])
        return {"content": [{"type": "text", "text": f"kept {arguments['fact']}"}]}

    ctx.agents.addTool(remember)
    ctx.agents.addInstructions(id="use", text="Use the tool.")
"""
CALL = 'rehearse: call mcp__notes__remember {"fact": "tea"}\nrehearse: say Done.'


@pytest.fixture
async def host(home: Path) -> AsyncIterator[Host]:
    (home / "plugins").mkdir(parents=True)
    (home / "plugins" / "notes.py").write_text(NOTES, encoding="utf-8")
    (home / "buzz.toml").write_text('permissions = "ask"\npermission_deadline_s = 1\n', encoding="utf-8")
    async with Host(home) as host:
        yield host


async def turn(session: Session, message: str, answer: events.Decision | None = None) -> list[events.Event]:
    """One turn; what it asks is answered by `answer`, None: not at all."""
    told: list[events.Event] = []
    async with session.turn(message) as stream:
        async for event in stream:
            told.append(event)
            if isinstance(event, events.PermissionRequested) and answer is not None:
                await session.answer(event.request, answer)
    return told


@pytest.mark.req("PRM-01", "AGP-05")
async def test_the_policy_of_the_home_has_a_person_asked_about_a_plugins_tool(host: Host, home: Path) -> None:
    kept = home / "data" / "notes" / "kept"
    async with host.session(harness="direct", rehearse=True) as session:
        for answer, by, exists in (("deny", "person", False), (None, "deadline", False), ("allow", "person", True)):
            told = await turn(session, CALL, answer)  # type: ignore[arg-type]
            (asked,) = [each for each in told if isinstance(each, events.PermissionRequested)]
            (settled,) = [each for each in told if isinstance(each, events.PermissionSettled)]
            assert (asked.tool, asked.plugin, asked.arguments) == ("mcp__notes__remember", "notes", {"fact": "tea"})
            assert (settled.request, settled.by) == (asked.request, by)
            # The call is told before it is asked about.
            kinds = [each.event for each in told]
            assert kinds.index("tool_call") < kinds.index("permission_requested") < kinds.index("tool_result")
            (result,) = [each for each in told if isinstance(each, events.ToolResult)]
            assert result.is_error != exists
            assert kept.exists() == exists


@pytest.mark.req("PRM-01", "SPC-01")
async def test_what_an_agents_file_says_is_stronger_than_the_home(host: Host, home: Path) -> None:
    (home / "agents").mkdir()
    (home / "agents" / "free.md").write_text(
        "---\nname: free\ndescription: d\nbuzz:\n  permissions: plugin-tools-only\n---\n\nYou work.\n", encoding="utf-8"
    )
    async with host.session(agent="free", harness="direct", rehearse=True) as session:
        told = await turn(session, CALL)
        assert not [each for each in told if isinstance(each, events.PermissionRequested)]
        assert (home / "data" / "notes" / "kept").read_text(encoding="utf-8") == "tea"


@pytest.mark.req("PRM-01")
async def test_an_interrupt_ends_a_call_that_waits_for_a_person(host: Host) -> None:
    async with host.session(harness="direct", rehearse=True) as session, session.turn(CALL) as stream:
        told: list[events.Event] = []
        async for event in stream:
            told.append(event)
            if isinstance(event, events.PermissionRequested):
                await session.interrupt()
        (settled,) = [each for each in told if isinstance(each, events.PermissionSettled)]
        assert settled.decision == "deny"
        assert isinstance(told[-1], events.TurnCompleted)
        assert told[-1].status == "interrupted"


@pytest.mark.req("HAR-03", "HAR-04", "AUD-03")
async def test_twenty_sessions_at_once_each_with_turns_of_its_own(host: Host) -> None:
    async with Rehearsal.start() as model, AsyncExitStack() as stack:
        opened = [
            stack.enter_async_context(host.session(harness="direct", model_url=model.url, start=True))
            for _ in range(SESSIONS)
        ]
        sessions = await asyncio.gather(*opened)

        async def several(number: int, session: Session) -> list[str]:
            replies = []
            for n in range(TURNS):
                told = await turn(session, f"rehearse: say {number} {n}.")
                assert {each.session for each in told} == {session.id}
                replies += [each.reply for each in told if isinstance(each, events.TurnCompleted)]
            return replies

        replies = await asyncio.gather(*(several(*each) for each in enumerate(sessions)))
    assert replies == [[f"{number} {n}." for n in range(TURNS)] for number in range(SESSIONS)]
    with host.store.read() as connection:
        assert not list(verify(connection))
        counted = "SELECT session, count(*) FROM turns WHERE status = 'completed' GROUP BY session"
        with closing(connection.execute(counted)) as rows:
            assert sorted(rows.fetchall()) == sorted((each.id, TURNS) for each in sessions)
