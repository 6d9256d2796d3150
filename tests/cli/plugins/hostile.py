"""A plugin whose text, reasons and faults hold what a terminal would obey."""

from buzz_author import AgentHandle, PluginContext

inject = ("agents",)
HOSTILE = "\x1b[31mred\x9b2J \u202eback\x07"


def apply(ctx: PluginContext) -> None:
    def raises(agent: AgentHandle) -> bool:
        raise ValueError(HOSTILE)

    ctx.agents.addInstructions(id="told", text=f"Told {HOSTILE}.")
    ctx.agents.addInstructions(id="left-out", text="never", when=raises)
