"""Sessions over the socket: turns, steering, interruption; a client that vanishes takes its sessions along (OPS-03)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from buzz_host.services.audit import Audit
from tests.cli.commands import PARROT
from tests.host.serve.conftest import Served
from tests.host.serve.talking import Talk
from tests.host.services.test_asking import CALL, NOTES
from tests.host.services.test_host import ECHO, speaks, write_plugin

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def plugins(home: Path) -> None:
    write_plugin(home / "plugins", "brief", speaks("Be brief."))
    (home / "plugins" / "echo_harness.py").write_bytes(ECHO.read_bytes())


async def opened(talk: Talk, **more: Any) -> str:
    value = await talk.ask("session.open", here="/", **{**({} if "resume" in more else {"harness": "echo"}), **more})
    return str(value["session"])


def statuses(served: Served) -> list[str]:
    return [row.status for row in Audit(served.host.home).turns()]


async def wait_for(served: Served, expected: list[str]) -> None:
    until = time.monotonic() + 20
    while statuses(served) != expected:
        assert time.monotonic() < until, statuses(served)
        await asyncio.sleep(0.02)


@pytest.mark.req("API-02", "CLI-01")
async def test_turns_stream_and_the_session_goes_on(served: Served) -> None:
    async with Talk(served.path) as talk:
        session = await opened(talk)
        for id in ("one", "two"):
            await talk.request("session.turn", id, session=session, message="Hello")
            lines = []
            while (line := await talk.line()) is not None and "event" in line:
                lines.append(line["event"])
            assert [event["event"] for event in lines] == ["turn_started", "text_delta", "turn_completed"]
            assert {event["session"] for event in lines} == {session}
            assert line == {"id": id, "value": None}
        assert await talk.ask("session.close", session=session) is None
        assert await talk.ask("session.close", session=session) is None
        error = await talk.ask("session.turn", session=session, message="Hello")
        assert error["message"] == f"session {session} is not open on this connection: open it with session.open"
        again = await opened(talk, resume=session[:8])
        assert again == session
    assert statuses(served) == ["completed", "completed"]


@pytest.mark.req("CLI-01")
async def test_the_working_directory_is_where_the_person_is(served: Served, tmp_path: Path) -> None:
    async with Talk(served.path) as talk:
        value = await talk.ask("session.open", here=str(tmp_path), harness="echo")
        await talk.request("session.turn", session=value["session"], message="Hello")
        assert f"Working directory: {tmp_path}" in (await talk.event("turn_started"))["text"]
        await talk.answer()
        gone = await talk.ask("session.open", here=str(tmp_path / "gone"), harness="echo")
        assert "is no folder" in gone["message"]


@pytest.mark.req("API-02", "TRN-04")
async def test_a_turn_is_steered_and_interrupted_while_it_runs(served: Served) -> None:
    async with Talk(served.path) as talk:
        session = await opened(talk)
        await talk.request("session.turn", "turn", session=session, message="wait")
        await talk.event("turn_started")
        await talk.request("session.steer", "steer", session=session, message="and this")
        settled = await talk.event("steer_settled")
        assert settled["outcome"] == "folded"
        assert await talk.answer("turn") == {"id": "turn", "value": None}
        await talk.request("session.turn", "turn", session=session, message="wait")
        await talk.event("turn_started")
        await talk.request("session.interrupt", "stop", session=session)
        assert (await talk.event("turn_completed"))["status"] == "interrupted"
        assert await talk.answer("turn") == {"id": "turn", "value": None}
    await wait_for(served, ["interrupted", "folded", "completed"])


@pytest.mark.req("PRM-01", "API-02")
async def test_what_is_asked_is_answered_over_the_socket(served: Served, home: Path) -> None:
    (home / "plugins" / "notes.py").write_text(NOTES, encoding="utf-8")
    (home / "buzz.toml").write_text('permissions = "ask"\n', encoding="utf-8")
    async with Talk(served.path) as talk:
        session = await opened(talk, harness="direct", rehearse=True, start=True)
        await talk.request("session.turn", "turn", session=session, message=CALL)
        request = (await talk.event("permission_requested"))["request"]
        odd = await talk.ask("session.answer", "odd", session=session, request=request, decision="perhaps")
        assert odd["message"] == 'arguments.decision: expected "allow" or "deny", found the text \'perhaps\''
        await talk.request("session.answer", "yes", session=session, request=request, decision="allow")
        assert (await talk.event("permission_settled"))["by"] == "person"
        assert (await talk.event("turn_completed"))["reply"].endswith("Done.")
        assert await talk.answer("turn") == {"id": "turn", "value": None}
        late = await talk.ask("session.answer", session=session, request=request, decision="deny")
        assert (late["kind"], "settled already (person)" in late["message"]) == ("refused", True)
        # A client that cannot answer says so, and is not waited for.
        mute = await opened(talk, harness="direct", rehearse=True, answers=False)
        await talk.request("session.turn", "mute", session=mute, message=CALL)
        assert (await talk.event("permission_settled"))["by"] == "nobody"
        await talk.answer("mute")


@pytest.mark.req("OPS-03")
async def test_a_client_that_vanishes_has_its_turn_interrupted_and_recorded(served: Served) -> None:
    async with Talk(served.path) as talk:
        session = await opened(talk)
        await talk.request("session.turn", session=session, message="wait")
        await talk.event("turn_started")
        talk.vanish()
    await wait_for(served, ["interrupted"])
    # Its lease is free: the session goes on from another connection.
    until = time.monotonic() + 20
    async with Talk(served.path) as other:
        while True:
            value = await other.ask("session.open", here="/", resume=session)
            if "session" in value:
                break
            assert "is in use" in value["message"]
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
        await other.request("session.turn", session=session, message="Hello")
        assert (await other.event("turn_completed"))["status"] == "completed"


@pytest.mark.req("SEC-01")
async def test_a_session_belongs_to_the_connection_that_opened_it(served: Served) -> None:
    async with Talk(served.path) as talk, Talk(served.path) as other:
        session = await opened(talk)
        for call in ("session.turn", "session.steer"):
            error = await other.ask(call, session=session, message="Hello")
            assert error["message"].endswith("is not open on this connection: open it with session.open")
        taken = await other.ask("session.open", here="/", resume=session)
        assert taken["message"].startswith(f"session {session} is in use by process ")


@pytest.mark.req("OPS-03", "CLI-01")
async def test_a_stop_lets_a_turn_end_as_interrupted_and_tells_the_client(served: Served) -> None:
    async with Talk(served.path) as talk:
        session = await opened(talk)
        await talk.request("session.turn", session=session, message="wait")
        await talk.event("turn_started")
        begun = time.monotonic()
        stopping = asyncio.ensure_future(served.listening.stop(20))
        assert (await talk.event("turn_completed"))["status"] == "interrupted"
        assert await talk.answer() == {"id": 1, "value": None}
        assert await talk.line() is None
        await stopping
        assert time.monotonic() - begun < 10  # it was asked to end, not only waited for
    assert statuses(served) == ["interrupted"]
    assert not served.path.exists()


@pytest.mark.req("OPS-03", "CLI-01")
async def test_a_stop_ends_a_turn_that_will_not_be_interrupted(served: Served) -> None:
    (served.host.home.plugins / "parrot.py").write_bytes(PARROT.read_bytes())
    async with Talk(served.path) as talk:
        value = await talk.ask("session.open", here="/", harness="parrot")
        await talk.request("session.turn", session=value["session"], message='say "so far"\nhang deaf')
        await talk.event("text_delta")
        begun = time.monotonic()
        await served.listening.stop(0.5)
        assert time.monotonic() - begun < 5
        assert (await talk.event("turn_completed"))["status"] == "failed"
    assert statuses(served) == ["failed"]


@pytest.mark.req("CLI-01")
async def test_many_sessions_at_once(served: Served) -> None:
    async def conversation(number: int) -> None:
        async with Talk(served.path) as talk:
            session = await opened(talk)
            for turn in range(3):
                await talk.request("session.turn", turn, session=session, message=f"Hello {number}")
                assert f"Hello {number}" in (await talk.event("turn_started"))["text"]
                await talk.answer(turn)
            await talk.ask("session.close", session=session)

    await asyncio.gather(*(conversation(number) for number in range(12)))
    assert statuses(served) == ["completed"] * 36
