"""What docs/turn-text.md says about the program's own additions is what the real Claude Code sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from buzz_host.services.host import Host
from buzz_host.turns.base_prompt import base_prompt
from tests.docs.test_facts import TEXT, says

pytestmark = [pytest.mark.anyio, pytest.mark.claude, pytest.mark.req("HAR-01")]


def _texts(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [block.get("text", "") for block in content]


async def test_the_program_adds_what_the_page_says(home: Path) -> None:
    sent: list[str] = []
    async with Host(home) as host, host.session(rehearse=True) as session:
        for message in ("Hello", "rehearse: fail 401", "And now?"):
            async with session.turn(message) as events:
                sent += [event.as_json()["text"] async for event in events if event.event == "turn_started"]
        assert session.rehearsal is not None
        bodies: list[Any] = [request.body for request in session.rehearsal.requests()]

    says(TEXT, "Its system prompt begins with lines of its own, then comes ours")
    system = [block["text"] for block in bodies[0]["system"]]
    assert base_prompt() not in "".join(system[:-1])
    assert system[0]
    assert system[-1].startswith(base_prompt())

    says(TEXT, "Behind the first message of a session stands a message with the role `system`, which describes")
    first = bodies[0]["messages"]
    assert [each["role"] for each in first] == ["user", "system"]
    assert _texts(first[0]) == sent[:1]
    assert "environment" in _texts(first[1])[0].lower()

    says(TEXT, "sends it again in front of the next turn, in the same message")
    newest = [each for each in bodies[-1]["messages"] if each["role"] == "user"][-1]
    failed, last = _texts(newest)
    assert failed.rstrip("\n") == sent[1]
    assert last == sent[2]
