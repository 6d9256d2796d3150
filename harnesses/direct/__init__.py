"""`direct`: a harness in this process, over any endpoint that speaks OpenAI's protocols (HAR-04).

It needs no program: a machine with Python alone can run agents, with Ollama, vLLM, llama.cpp or a provider behind them.
"""

from __future__ import annotations

from buzz_author.plugins import PluginContext
from harnesses.direct.harness import DirectHarness

__all__ = ["DirectHarness", "apply", "inject"]

inject = ("agents",)
description = "A loop in this process, over any endpoint that speaks OpenAI's protocols"


def apply(ctx: PluginContext) -> None:
    """Offer the harness; it is there while the plugin is on."""
    ctx.agents.registerHarness(DirectHarness(settings=ctx.settings, log=ctx.log))
