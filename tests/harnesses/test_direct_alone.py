"""`direct` alone: its settings, its model, its key, its transcript, and what it does when a conversation grows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from buzz_author.errors import BuzzError
from buzz_author.events import Compacted, ToolReturned
from buzz_author.testing import Stage
from buzz_author.testing.frame import Frame
from buzz_author.testing.stage_tools import StageTools
from buzz_author.testing.wires import contains_text, end_of_newest_user_message
from buzz_host.rehearsal import Rehearsal
from harnesses.direct import DirectHarness
from harnesses.direct.session import CALLS_MAX, RETRY_PAUSES_S
from harnesses.direct.settings import DirectSettings
from tests.docs.pages import code, tables
from tests.harnesses.chat_only import ChatOnly
from tests.harnesses.test_direct import DIRECT
from tests.quality.tree import ROOT

pytestmark = pytest.mark.anyio
PERSONS = {"OPENAI_API_KEY": "sk-person", "OPENAI_ORG_ID": "org-person", "OPENAI_PROJECT_ID": "proj-person"}


def body_of(stage: Stage) -> dict[str, Any]:
    body = stage.requests()[-1].body
    assert isinstance(body, dict)
    return body


class TestDirectAlone(Frame):
    kind = DIRECT

    @pytest.mark.req("HAR-04")
    async def test_the_model_is_the_agents_or_the_settings_or_the_endpoints_first(self, stage: Stage) -> None:
        for fixed, named, expected in (
            ({}, None, "rehearsal"),
            ({"settings": {"model": "of-the-settings"}}, None, "of-the-settings"),
            ({"settings": {"model": "of-the-settings"}}, "of-the-agent", "of-the-agent"),
        ):
            talk = await stage.open(fixed=dict(fixed), model=named)
            assert (await talk.ask("Hello.")).status == "completed"
            assert body_of(stage)["model"] == expected

    @pytest.mark.req("HAR-04")
    async def test_the_effort_of_an_agent_is_passed_on_in_both_protocols(
        self, stage: Stage, rehearsal: Rehearsal
    ) -> None:
        plain = await stage.open()
        await plain.ask("Hello.")
        assert "reasoning" not in body_of(stage)
        talk = await stage.open(effort="low")
        await talk.ask("Hello.")
        assert body_of(stage)["reasoning"]["effort"] == "low"
        async with ChatOnly(rehearsal).listening() as chat_only:
            other = await stage.open(effort="low", model_url=chat_only.url)
            await other.ask("Hello.")
            assert body_of(stage)["reasoning_effort"] == "low"
            await other.close()

    @pytest.mark.req("HAR-04")
    async def test_a_conversation_that_grows_loses_its_oldest_turns_and_keeps_pairs_whole(self, stage: Stage) -> None:
        talk = await stage.open(tools=StageTools().all, fixed={"settings": {"context_tokens": 1500}})
        for number in range(6):
            call = f'rehearse: call mcp__stage__remember {{"fact": "fact {number}"}}\nrehearse: say Kept.\n'
            turn = talk.composed(f"{call}Number {number}. {'word ' * 200}")
            assert (await talk.ask(turn)).reply == "Kept."
            newest = stage.requests()[-1]
            assert end_of_newest_user_message(newest) == turn.text
            items = body_of(stage)["input"]
            called = [item["call_id"] for item in items if item.get("type") == "function_call"]
            assert called == [item["call_id"] for item in items if item.get("type") == "function_call_output"]
            assert called
        assert talk.of(Compacted)
        assert not contains_text(stage.requests()[-1], "Number 0.")
        # What was left out is left out in the next session, too.
        native = talk.session.native_id
        await talk.close()
        again = await stage.open(resume=native)
        assert (await again.ask("Hello.")).status == "completed"
        assert not contains_text(stage.requests()[-1], "Number 0.")
        assert contains_text(stage.requests()[-1], "Number 5.")

    @pytest.mark.req("HAR-04")
    async def test_a_model_that_calls_without_end_is_stopped(self, stage: Stage) -> None:
        tools = StageTools()
        talk = await stage.open(tools=tools.all)
        calls = ['and call mcp__stage__remember {"fact": "x"}'] * CALLS_MAX
        asked = "\n".join(
            f"rehearse: {line}" for line in ["say Many.", *calls, 'call mcp__stage__remember {"fact": "y"}']
        )
        ended = await talk.ask(asked)
        assert ended.error is not None
        assert (ended.status, ended.error.kind) == ("failed", "invalid-request")
        assert f"more than {CALLS_MAX} calls" in ended.error.native
        assert len(tools.calls) == CALLS_MAX
        assert ("remember", {"fact": "y"}) not in tools.calls
        assert (await talk.ask("rehearse: say Alive.")).reply == "Alive."

    @pytest.mark.req("HAR-04", "OPS-03")
    async def test_a_transcript_whose_writer_was_killed_in_a_line_goes_on(self, stage: Stage) -> None:
        first = await stage.open(tools=StageTools().all)
        await first.ask('rehearse: call mcp__stage__remember {"fact": "tea"}\nrehearse: say Kept.\nThe word is heron.')
        native = first.session.native_id
        await first.close()
        (file,) = stage.config_dir.rglob("*.jsonl")
        assert file.stat().st_mode & 0o777 == 0o600
        whole = file.read_bytes()
        lines = whole.splitlines(keepends=True)
        (returned,) = [n for n, line in enumerate(lines) if json.loads(line)["kind"] == "returned"]
        for left in (whole[:-20], b"".join(lines[:returned]) + lines[returned][:10]):
            file.write_bytes(left)
            again = await stage.open(resume=native, tools=StageTools().all)
            assert (await again.ask("rehearse: say Back.")).reply == "Back."
            assert contains_text(stage.requests()[-1], "The word is heron.")
            await again.close()

    @pytest.mark.req("HAR-04")
    async def test_arguments_that_do_not_fit_are_told_to_the_model(self, stage: Stage) -> None:
        talk = await stage.open(tools=StageTools().all)
        ended = await talk.ask("rehearse: call mcp__stage__remember {}\nrehearse: say Seen.")
        assert ended.reply == "Seen."
        (returned,) = talk.of(ToolReturned)
        assert returned.is_error
        assert "fact" in returned.text


@pytest.mark.req("HAR-04", "SEC-02")
async def test_an_endpoint_on_this_machine_is_sent_nothing_of_a_persons(tmp_path: Path) -> None:
    heads: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server, Rehearsal.start() as rehearsal:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        stage = Stage(DIRECT, rehearsal, tmp_path)
        talk = await stage.open(model_url=url, model="m", fixed={"environ": PERSONS})
        assert (await talk.ask("Hello.")).status == "failed"
        await stage.close()
    assert heads
    assert not [head for head in heads if b"person" in head]


@pytest.mark.req("HAR-04", "SEC-02")
async def test_another_endpoint_is_sent_the_persons_key() -> None:
    from harnesses.direct.endpoint import Endpoint

    endpoint = Endpoint("https://models.example", PERSONS, 1.0, {})
    assert endpoint.client.api_key == "sk-person"
    assert str(endpoint.client.base_url) == "https://models.example/v1/"
    await endpoint.close()


@pytest.mark.req("HAR-04", "HAR-06")
async def test_the_probe_tells_the_package_and_imports_nothing() -> None:
    probe = await DirectHarness().probe()
    assert (probe.version or "").startswith("openai ")
    assert probe.fault is None


@pytest.mark.req("HAR-04")
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": 5}, "model: expected a text"),
        ({"context_tokens": 10}, "context_tokens: expected a number of at least 1,000"),
        ({"idle_s": 0}, "idle_s: expected seconds, more than 0"),
    ],
)
def test_a_setting_that_is_wrong_is_refused_by_its_key(settings: dict[str, object], words: str) -> None:
    with pytest.raises(BuzzError, match=words):
        DirectHarness(settings=settings)  # type: ignore[arg-type]


@pytest.mark.req("HAR-04", "HAR-06")
def test_the_page_of_harnesses_tells_its_settings_and_limits() -> None:
    page = ROOT / "docs" / "harnesses.md"
    rows = tables(page)["key of `[plugins.direct]` | default | meaning"]
    fields = {each.name: each.default for each in attrs.fields(DirectSettings)}
    assert {code(row[0])[0]: row[1] for row in rows} == {
        name: "none" if default is None else f"{default:.0f}" for name, default in fields.items()
    }
    said = " ".join(page.read_text(encoding="utf-8").partition("## direct")[2].split())
    assert f"After {CALLS_MAX} calls in one turn" in said
    assert f"twice at most, after {RETRY_PAUSES_S[0]:g} s and {RETRY_PAUSES_S[1]:g} s" in said
    assert len(RETRY_PAUSES_S) == 2
