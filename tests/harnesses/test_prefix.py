"""Nothing that changes per turn stands before the turn's own text, on the requests that the real program sends."""

from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from buzz_host import Host

pytestmark = pytest.mark.anyio
TURNS = 200 if os.environ.get("BUZZ_SOAK") == "1" else 8


def write_plugin(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath(f"{name}.py").write_text(
        f'inject = ("agents",)\n\n\ndef apply(ctx):\n    ctx.agents.addInstructions(id="one", text={text!r})\n',
        encoding="utf-8",
    )


def without_markers(value: Any) -> Any:
    """A request's part without the marks that say how far a provider may cache."""
    if isinstance(value, dict):
        return {key: without_markers(inner) for key, inner in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [without_markers(inner) for inner in value]
    return value


@pytest.mark.claude
@pytest.mark.timeout(900)
@pytest.mark.req("TRN-07", "HAR-01", "INS-06")
async def test_every_byte_before_a_turn_stays_what_it_was(home: Path) -> None:
    chance = random.Random(11)
    for name in ("first", "second", "third"):
        write_plugin(home / "plugins", name, f"Instructions of {name}.")
    async with Host(home) as host, host.session(agent="dev", rehearse=True) as session:
        sources = [each for each in host.plugins.found.sources if each.id in ("first", "second", "third")]
        texts: list[str] = []
        for number in range(TURNS):
            switch = chance.choice([host.plugins.enablement.enable, host.plugins.enablement.disable])
            switch(chance.choice(sources))
            async with session.turn(f"Message {number} §å\u2028</buzz-event>") as events:
                happened = [event async for event in events]
            texts.append(happened[0].text)  # type: ignore[union-attr]
        assert session.rehearsal is not None
        requests = [each for each in session.rehearsal.requests() if each.path.startswith("/v1/messages?")]
    assert [each.newest_user_text for each in requests] == texts
    bodies = [without_markers(each.body) for each in requests]
    for earlier, later in pairwise(bodies):
        assert later["system"] == earlier["system"]
        assert later.get("tools") == earlier.get("tools")
        kept = flattened(earlier["messages"])
        assert flattened(later["messages"])[: len(kept)] == kept


def flattened(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Every text in its order, with who said it; a text that was sent once as a string may come again as a block."""
    found = []
    for message in messages:
        content = message["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        found += [(message["role"], str(block.get("text", block))) for block in blocks]
    return found
