"""Programs that plugins start: on the plugin's own loop, without the host's secrets, and gone with the plugin."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from buzz_host import Host
from tests.host.services.test_host import ECHO, one_turn

pytestmark = pytest.mark.anyio
DEADLINE_S = 10.0

PLUGIN = """
async def apply(ctx):
    process = await ctx.spawn(["sh", "-c", "echo $$ ${SECRET:-none}; exec sleep 60"])
    said = (await process.stdout.readline()).decode().split()
    ctx.agents.addInstructions(id="pid", text=" ".join(said))
"""


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def ended(pids: list[int]) -> bool:
    until = time.monotonic() + DEADLINE_S
    while any(map(runs, pids)):
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.02)
    return True


@pytest.mark.req("PLG-01", "PLG-02", "SEC-02")
async def test_a_plugins_program_is_its_own_and_ends_with_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "of-the-host")
    for name in ("first", "second", "third"):
        path = home / "plugins" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLUGIN, encoding="utf-8")
    async with Host(home, plugins=[ECHO]) as host, host.session(harness="echo") as session:
        spoken = {row.plugin: row.body for row in (await one_turn(session)).sections if row.plugin}
        assert [body.split()[1] for body in spoken.values()] == ["none"] * 3
        pids = {str(plugin): int(body.split()[0]) for plugin, body in spoken.items()}
        assert len(set(pids.values())) == 3
        assert all(runs(pid) and os.getpgid(pid) != os.getpgid(0) for pid in pids.values())
        (source,) = [each for each in host.plugins.found.sources if each.id == "first"]
        host.plugins.enablement.disable(source)
        await one_turn(session)
        assert await ended([pids["first"]])
        assert runs(pids["second"])
        assert runs(pids["third"])
    assert await ended(list(pids.values()))
