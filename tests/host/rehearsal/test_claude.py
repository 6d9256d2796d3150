"""The real Claude Code against the real server, through the SDK that people install."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from buzz_host.rehearsal import Rehearsal
from tests.host.rehearsal.asking import until

pytestmark = [pytest.mark.anyio, pytest.mark.claude, pytest.mark.req("HAR-05")]

TURN_DEADLINE_S = 60.0
QUIET = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_TELEMETRY",
    "DISABLE_AUTOUPDATER",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_BUG_COMMAND",
)
Opened = Callable[[Rehearsal], AbstractAsyncContextManager[Any]]


@pytest.fixture
def claude(tmp_path: Path) -> Opened:
    """Opens a Claude Code process of its own, with nobody's settings and one tool."""
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, create_sdk_mcp_server, tool

    @tool("remember", "Remember a fact.", {"fact": str})
    async def remember(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"kept: {arguments['fact']}"}]}

    home, work = tmp_path / "claude-home", tmp_path / "work"
    home.mkdir()
    work.mkdir()

    @asynccontextmanager
    async def opened(rehearsal: Rehearsal) -> AsyncIterator[ClaudeSDKClient]:
        options = ClaudeAgentOptions(
            model="claude-sonnet-4-5",
            cwd=work,
            env={
                "HOME": str(home),
                "CLAUDE_CONFIG_DIR": str(home / ".claude"),
                "ANTHROPIC_BASE_URL": rehearsal.url,
                "ANTHROPIC_API_KEY": "sk-rehearsal",
                "CLAUDE_CODE_MAX_RETRIES": "1",
                **dict.fromkeys(QUIET, "1"),
            },
            system_prompt="You are rehearsed.",
            tools=[],
            allowed_tools=["mcp__notes__*"],
            mcp_servers={"notes": create_sdk_mcp_server("notes", "1.0.0", tools=[remember])},
            permission_mode="dontAsk",
            strict_mcp_config=True,
            setting_sources=[],
            verbatim_prompts=True,
        )
        async with ClaudeSDKClient(options) as client:
            yield client

    return opened


async def turn(client: Any, text: str) -> list[Any]:
    """One turn: what came back, the result last."""
    async with asyncio.timeout(TURN_DEADLINE_S):
        await client.query(text)
        return [message async for message in client.receive_response()]


def retries(messages: list[Any]) -> list[int | None]:
    return [message.data["error_status"] for message in messages if getattr(message, "subtype", "") == "api_retry"]


def statuses(rehearsal: Rehearsal) -> dict[int, str]:
    """What became of each request; the line that tells it follows the answer, so it is waited for."""

    def told() -> dict[int, str]:
        lines = [json.loads(line) for line in rehearsal.record_path.read_bytes().split(b"\n") if line]
        return {line["n"]: str(line.get("status", line["event"])) for line in lines if "event" in line}

    until(lambda: len(told()) == len(rehearsal.requests()))
    return dict(sorted(told().items()))


async def test_a_plain_turn_says_that_no_model_was_called(rehearsal: Rehearsal, claude: Opened) -> None:
    text = (
        "<context>\nagent: main\n</context>\n\n"
        '<buzz-event type="message">\nHello.\n</buzz-event>\n\n'
        '<plugin-instructions plugin="style-guide">\nUse short sentences.\n</plugin-instructions>'
    )
    async with claude(rehearsal) as client:
        result = (await turn(client, text))[-1]
    assert result.result == (
        "rehearsal: no model was called. Sections received: context (11 bytes); buzz-event type=message (6 bytes); "
        "plugin-instructions plugin=style-guide (20 bytes)."
    )
    assert not result.is_error
    (request,) = rehearsal.requests()
    assert request.path == "/v1/messages?beta=true"
    assert request.newest_user_text == text
    assert b"sk-rehearsal" not in rehearsal.record_path.read_bytes()


async def test_two_turns_of_one_process_arrive_to_the_byte(rehearsal: Rehearsal, claude: Opened) -> None:
    texts = [
        'Grüße, 你好, 😀, \u2028 and \u2029 and \x85, ＜context＞, \u200b, \t, and a \\ and a " end',
        "rehearse: say ok\n" + "é\u2028x😀" * 10_000 + "\nthe end of 100 KB",
        "/compact is no command here",
    ]
    assert len(texts[1].encode()) >= 100_000
    async with claude(rehearsal) as client:
        for text in texts:
            assert not (await turn(client, text))[-1].is_error
    assert [request.newest_user_text for request in rehearsal.requests()] == texts


async def test_tools_are_called_and_what_they_return_comes_back(rehearsal: Rehearsal, claude: Opened) -> None:
    text = (
        "rehearse: say I keep two facts.\n"
        'rehearse: and call mcp__notes__remember {"fact": "tea \\u2028 é"}\n'
        'rehearse: and call mcp__notes__remember {"fact": "four"}\n'
        'rehearse: call mcp__notes__remember {"fact": "last"}'
    )
    async with claude(rehearsal) as client:
        messages = await turn(client, text)
        assert messages[-1].result.startswith("rehearsal: mcp__notes__remember returned: kept: last")
        after = await turn(client, "rehearse: call mcp__notes__forget")
        assert "rehearsal: mcp__notes__forget failed: " in after[-1].result
    first, second, third = rehearsal.requests()[:3]
    assert first.newest_user_text == second.newest_user_text == third.newest_user_text == text
    assert b"kept: tea \xe2\x80\xa8 \xc3\xa9" in second.raw
    assert b"kept: four" in second.raw
    assert b"kept: last" in third.raw


async def test_a_slow_answer_can_be_interrupted_and_the_next_turn_is_not_confused(
    rehearsal: Rehearsal, claude: Opened
) -> None:
    async with claude(rehearsal) as client:
        slow = await turn(client, "rehearse: wait 0.4\nrehearse: pace 0.05\nrehearse: say slow but there")
        assert slow[-1].result == "slow but there"
        assert slow[-1].duration_ms >= 400
        async with asyncio.timeout(TURN_DEADLINE_S):
            await client.query("rehearse: hang")
            await asyncio.to_thread(until, lambda: len(rehearsal.requests()) == 2)
            await client.interrupt()
            ended = [message async for message in client.receive_response()]
        assert ended[-1].is_error
        assert (await turn(client, "rehearse: say back again"))[-1].result == "back again"
    assert statuses(rehearsal) == {1: "200", 2: "disconnected", 3: "200"}


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "authentication_failed"), (429, "rate_limit"), (500, "server_error")]
)
async def test_a_status_reaches_the_program_as_the_error_it_knows(
    rehearsal: Rehearsal, claude: Opened, status: int, kind: str
) -> None:
    async with claude(rehearsal) as client:
        failed = await turn(client, f"rehearse: fail {status}")
        assert retries(failed) == [status]
        assert [message.error for message in failed if getattr(message, "error", None)] == [kind]
        assert (failed[-1].is_error, failed[-1].api_error_status) == (True, status)
        recovered = await turn(client, f"rehearse: fail {status} 1 time\nrehearse: say recovered")
        assert retries(recovered) == [status]
        assert recovered[-1].result == "recovered"
        assert not recovered[-1].is_error
        again = await turn(client, "the failed text stands in front of this one")
        assert "no model was called" in again[-1].result
    assert list(statuses(rehearsal).values()) == [str(status)] * 3 + ["200", "200"]


async def test_a_text_behind_a_tool_result_is_the_newest_after_a_failed_turn(
    rehearsal: Rehearsal, claude: Opened
) -> None:
    async with claude(rehearsal) as client:
        failed = await turn(client, 'rehearse: call mcp__notes__remember {"fact": "tea"}\nrehearse: fail 500')
        assert failed[-1].is_error
        assert "no model was called" in (await turn(client, "hello"))[-1].result
    assert rehearsal.requests()[-1].newest_user_text == "hello"


async def test_a_dropped_stream_is_asked_again_at_last_without_streaming(rehearsal: Rehearsal, claude: Opened) -> None:
    async with claude(rehearsal) as client:
        messages = await turn(client, "rehearse: drop 2 times\nrehearse: say recovered")
        assert messages[-1].result == "recovered"
        lost = await turn(client, "rehearse: drop")
        assert lost[-1].is_error
        assert (await turn(client, "rehearse: say still alive"))[-1].result == "still alive"
    bodies = [request.body for request in rehearsal.requests()]
    assert [body["stream"] for body in bodies if isinstance(body, dict)][:3] == [True, True, False]
    assert list(statuses(rehearsal).values())[:3] == ["200", "200", "200"]


async def test_a_message_that_arrives_during_a_tool_call_is_told(rehearsal: Rehearsal, claude: Opened) -> None:
    steer = (
        "<new-message-arrived-while-you-were-working>\nAnd sugar.\n</new-message-arrived-while-you-were-working>\n\n"
        '<plugin-instructions plugin="p">\nBe brief.\n</plugin-instructions>'
    )
    async with claude(rehearsal) as client, asyncio.timeout(TURN_DEADLINE_S):
        await client.query('rehearse: wait 1\nrehearse: call mcp__notes__remember {"fact": "tea"}')
        await asyncio.to_thread(until, rehearsal.requests)
        await client.query(steer)
        result = [message async for message in client.receive_response()][-1]
    assert result.result.endswith(
        "rehearsal: a message arrived meanwhile. Sections received: new-message-arrived-while-you-were-working "
        "(10 bytes); plugin-instructions plugin=p (9 bytes)."
    )


async def test_a_malformed_directive_is_an_error_that_names_it(rehearsal: Rehearsal, claude: Opened) -> None:
    async with claude(rehearsal) as client:
        failed = await turn(client, "rehearse: shout")
    assert failed[-1].is_error
    assert 'rehearsal: line 1 "shout": unknown directive; there are say,' in failed[-1].result


async def test_a_script_file_answers_whatever_the_turns_say(tmp_path: Path, claude: Opened) -> None:
    script = tmp_path / "script.toml"
    script.write_text(
        """answers = ['call mcp__notes__remember {"fact": "tea"}', "report", "fail 429 1 time", "say end"]""",
        encoding="utf-8",
    )
    async with Rehearsal.start(script=script) as rehearsal, claude(rehearsal) as client:
        first = await turn(client, "rehearse: say this is not looked at")
        assert first[-1].result.startswith("rehearsal: mcp__notes__remember returned: kept: tea")
        second = await turn(client, "and on")
        assert (retries(second), second[-1].result) == ([429], "end")
