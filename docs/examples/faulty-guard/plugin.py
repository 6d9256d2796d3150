"""A plugin with a mistake in its guard. The text is left out, the ledger says why, and the turn goes on."""

from buzz_author import AgentHandle, PluginContext

inject = ("agents",)


ON_CALL = {"main": True}


def apply(ctx: PluginContext) -> None:
    def is_on_call(agent: AgentHandle) -> bool:
        # The mistake: for an agent that is not in the table this raises KeyError; `ON_CALL.get(agent.name)` was meant.
        return ON_CALL[agent.name]

    ctx.agents.addInstructions(id="on-call", text="You are on call this week. Answer alarms first.", when=is_on_call)
