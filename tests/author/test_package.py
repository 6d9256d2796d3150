"""The package as an author meets it: light to import, complete, and enough to type-check a plugin with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import buzz_author
from tests.quality.tree import ROOT

HEAVY = (
    "asyncio", "attr", "attrs", "cattrs", "click", "hashlib", "json", "jinja2", "logging", "rich", "ruamel",
    "socket", "sqlite3", "subprocess", "tomlkit", "unicodedata", "urllib", "buzz_host", "harnesses",
)  # fmt: skip

GOOD_PLUGIN = """
from collections.abc import Awaitable

from buzz_author import AgentHandle, AgentInstructions, PluginContext

inject: tuple[str, ...] = ("agents",)


def releases(agent: AgentHandle) -> bool:
    return agent.name == "release" and agent.cwd.name != "" and agent.model is None


async def apply(ctx: PluginContext) -> None:
    ctx.agents.addInstructions(id="style", text="Be kind.")
    ctx.agents.add_instructions({"id": "more", "text": "Be brief."})
    dispose = ctx.agents.addInstructions(AgentInstructions("freeze", "Do not release.", releases))
    ctx.effect(dispose)
    ctx.agents.addNote("main", f"{ctx.plugin.id} is here")()
    ctx.agents.add_note("main", "again")
    ctx.log.info("settings: %s", ctx.settings.get("level"))


def check(ctx: PluginContext) -> Awaitable[None]:
    return apply(ctx)
"""

GOOD_HARNESS = """
from collections.abc import AsyncIterator
from typing import Literal

from buzz_author import Capabilities, Harness, HarnessSession, PluginContext, Probe, SessionHost, SessionSpec, Turn
from buzz_author.events import HarnessEvent, SessionEnded, TurnEnded, TurnStarted


class Session:
    native_id: str | None = None

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx

    async def send(self, turn: Turn) -> None:
        print(self._ctx.agents.harness.turnPrompt(turn), self._ctx.agents.harness.turn_note(turn))

    async def steer(self, turn: Turn) -> None:
        print(self._ctx.agents.harness.steerPrompt(turn))

    async def interrupt(self) -> None: ...

    async def answer(
        self,
        request_id: str,
        decision: Literal["allow", "deny"],
        *,
        reason: str | None = None,
        reply: str | None = None,
    ) -> None: ...

    async def events(self) -> AsyncIterator[HarnessEvent]:
        yield TurnStarted("t")
        yield TurnEnded("t", "completed", reply="x")
        yield SessionEnded()

    async def close(self, *, deadline_s: float) -> None: ...


class Echo:
    id = "echo"
    title = "Echo"
    capabilities = Capabilities(steer="queues")

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx

    async def probe(self) -> Probe:
        return Probe(version="1")

    def encode(self, text: str, spec: SessionSpec) -> str:
        return text

    async def open(self, spec: SessionSpec, host: SessionHost) -> HarnessSession:
        return Session(self._ctx)


def apply(ctx: PluginContext) -> None:
    harness: Harness = Echo(ctx)
    ctx.agents.registerHarness(harness)
    ctx.agents.register_harness(harness)
"""

WRONG_PLUGIN = """
from buzz_author import AgentHandle, PluginContext


def guard(agent: AgentHandle) -> str:
    agent.name = "other"
    return "yes"


def apply(ctx: PluginContext) -> None:
    ctx.agents.addInstructions(id=3, text="x")
    ctx.agents.addInstructions(id="a", text="x", when=guard)
    ctx.agents.add_note("main")
    ctx.agents.addInstruction(id="a", text="x")
"""


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, encoding="utf-8", timeout=60
    ).stdout.strip()


@pytest.mark.req("INS-09")
def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys; before = set(sys.modules); import buzz_author; print(*sorted(set(sys.modules) - before))"
    loaded = python(code).split()
    assert "buzz_author" in loaded
    assert set(loaded) & set(HEAVY) == set()
    assert [name for name in loaded if name.startswith("buzz_author.")] == []


@pytest.mark.req("INS-09")
def test_every_exported_name_is_there() -> None:
    for name in buzz_author.__all__:
        assert getattr(buzz_author, name) is not None
        assert name in dir(buzz_author)
    assert len(set(buzz_author.__all__)) == len(buzz_author.__all__)
    with pytest.raises(AttributeError, match="module 'buzz_author' has no attribute 'nothing'"):
        getattr(buzz_author, "nothing")  # noqa: B009


@pytest.mark.req("INS-01", "INS-09", "HAR-02")
def test_the_package_alone_is_enough_to_type_check_a_plugin(tmp_path: Path) -> None:
    for name, code in {"good": GOOD_PLUGIN, "harness": GOOD_HARNESS, "wrong": WRONG_PLUGIN}.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(tmp_path / "cache"),
         "good.py", "harness.py", "wrong.py"],
        cwd=tmp_path, env={"MYPYPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True, encoding="utf-8",
        timeout=110,
    )  # fmt: skip
    lines = [line for line in done.stdout.split("\n") if ": error:" in line]
    assert [line.split(": error:")[0] for line in lines] == [
        "wrong.py:6", "wrong.py:11", "wrong.py:12", "wrong.py:13", "wrong.py:14",
    ], done.stdout + done.stderr  # fmt: skip
    assert done.returncode == 1
