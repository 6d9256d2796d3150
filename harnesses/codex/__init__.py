"""Codex as a harness: the real program's app-server, driven over JSON-RPC (HAR-01, HAR-02).

A plugin like any other: it imports `buzz_author` only, and what the harnesses of this folder share.
"""

from __future__ import annotations

from buzz_author.plugins import HarnessContext
from harnesses.codex.harness import CodexHarness

__all__ = ["CodexHarness", "apply", "inject"]

inject = ("agents", "programs")
description = "The real Codex, driven through its app-server"


def apply(ctx: HarnessContext) -> None:
    """Offer the harness; it is there while the plugin is on."""
    ctx.agents.registerHarness(CodexHarness(programs=ctx.programs, settings=ctx.settings, log=ctx.log))
