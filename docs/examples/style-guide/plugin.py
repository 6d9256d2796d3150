"""A style guide: the simplest useful plugin. Its text is part of every turn of every agent."""

from buzz_author import PluginContext

inject = ("agents",)

STYLE = """
Write short sentences in the active voice, with British spelling.
Explain a term of the trade at its first use, in half a sentence.
Put code, paths and commands in backticks: `git push`, `<main class="page">`.
"""


def apply(ctx: PluginContext) -> None:
    ctx.agents.addInstructions(id="style", text=STYLE)
