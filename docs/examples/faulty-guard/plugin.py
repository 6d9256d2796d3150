"""A plugin with a mistake in its guard. The text is left out, the ledger says why, and the turn goes on."""

from buzz_author import AgentHandle, PluginContext

inject = ("agents",)


def apply(ctx: PluginContext) -> None:
    on_call = {"main": "nobody"}

    def is_on_call(agent: AgentHandle) -> bool:
        # The mistake: an agent that is not in the table is a KeyError, where `on_call.get(agent.name)` was meant.
        return on_call[agent.name.upper()] == agent.name

    ctx.agents.addInstructions(id="on-call", text="You are on call this week. Answer alarms first.", when=is_on_call)
