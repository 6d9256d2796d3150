"""goose as a harness: the real program, driven over the Agent Client Protocol (HAR-01, HAR-02).

A plugin like any other: it imports `buzz_author` only, and what the harnesses of this folder share.
"""

from __future__ import annotations

from buzz_author.plugins import HarnessContext
from harnesses.goose.harness import GooseHarness

__all__ = ["GooseHarness", "apply", "inject"]

inject = ("agents", "programs")
description = "The real goose, driven over the Agent Client Protocol"


def apply(ctx: HarnessContext) -> None:
    """Offer the harness; it is there while the plugin is on."""
    ctx.agents.registerHarness(GooseHarness(programs=ctx.programs, settings=ctx.settings, log=ctx.log))
