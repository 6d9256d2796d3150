"""Pi as a harness: the real program in its RPC mode, with a small extension of ours (HAR-01, HAR-02).

A plugin like any other: it imports `buzz_author` only, and what the harnesses of this folder share.
"""

from __future__ import annotations

from buzz_author.plugins import HarnessContext
from harnesses.pi.harness import PiHarness

__all__ = ["PiHarness", "apply", "inject"]

inject = ("agents", "programs")
description = "The real Pi, driven in its RPC mode"


def apply(ctx: HarnessContext) -> None:
    """Offer the harness; it is there while the plugin is on."""
    ctx.agents.registerHarness(PiHarness(programs=ctx.programs, settings=ctx.settings, log=ctx.log))
