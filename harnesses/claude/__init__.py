"""Claude Code as a harness: the real program, driven through claude-agent-sdk (HAR-01, HAR-02).

A plugin like any other: it imports `buzz_author` only, and the SDK, whose import takes seconds, when a session starts.
"""

from __future__ import annotations

from buzz_author.plugins import PluginContext
from harnesses.claude.harness import ClaudeHarness

__all__ = ["ClaudeHarness", "apply", "inject"]

inject = ("agents",)
description = "The real Claude Code, driven through claude-agent-sdk"


def apply(ctx: PluginContext) -> None:
    """Offer the harness; it is there while the plugin is on."""
    ctx.agents.registerHarness(ClaudeHarness(log=ctx.log))
