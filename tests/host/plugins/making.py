"""Plugins for tests: folders on a real disk, and a runtime around them that ends with the test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from buzz_host.plugins.activation import Limits
from buzz_host.plugins.candidates import file_source, folder_source
from buzz_host.plugins.contributions import INSTRUCTIONS, Contributions
from buzz_host.plugins.keeper import PluginStatus
from buzz_host.plugins.lifecycle import PluginRuntime
from buzz_host.plugins.sources import PluginSource
from buzz_host.settings import Home

# For tests of what happens when time runs out; all others have the real limits.
SHORT = Limits(load_s=0.8, activate_s=0.8, cleanup_s=0.8, grace_s=0.05)
WAIT_S = 15.0

SPEAKS = """
    inject = ("agents",)

    def apply(ctx):
        ctx.agents.addInstructions(id="main", text="{text}")
"""


def write_plugin(parent: Path, name: str, code: str, *, manifest: str = "", **files: str) -> Path:
    """A plugin folder; further files by their names, `__` standing for a dot."""
    folder = parent / name
    folder.mkdir(parents=True, exist_ok=True)
    text = f'api = 1\nname = "{name}"\n{manifest}'
    (folder / "plugin.toml").write_text(text, encoding="utf-8")
    (folder / "plugin.py").write_text(dedent(code), encoding="utf-8")
    for file, content in files.items():
        path = folder / file.replace("__", ".").replace("___", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(content), encoding="utf-8")
    return folder


def source_of(path: Path) -> PluginSource:
    """The source of a folder or a `.py` file, as a dropped-in one."""
    if path.is_dir():
        return folder_source(path, path.name, "dropped in")[0]
    return file_source(path, path.stem, "dropped in")


def speaking(parent: Path, name: str, text: str = "hello") -> PluginSource:
    """A plugin with one standing instruction."""
    return source_of(write_plugin(parent, name, SPEAKS.format(text=text)))


def spoken(contributions: Contributions) -> list[tuple[str, str]]:
    """What active plugins say now: plugin/id and text."""
    return [(each.key, each.value.section.body) for each in contributions.snapshot(INSTRUCTIONS)]


def status_of(runtime: PluginRuntime, plugin: str) -> PluginStatus:
    return next(status for status in runtime.states() if status.id == plugin)


async def eventually(true: Callable[[], object], what: str = "") -> None:
    """Wait until something holds, with a deadline."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, what or "it never came to hold"
        await asyncio.sleep(0.002)


@asynccontextmanager
async def running(home: Path, limits: Limits | None = None, **options: Any) -> AsyncIterator[PluginRuntime]:
    """A runtime that is closed at the end, within two seconds."""
    runtime = PluginRuntime(Home(home), Contributions(), limits=limits, **options)
    try:
        yield runtime
    finally:
        await runtime.close(2.0)
