"""A release freeze: instructions for one agent only, chosen by `when`, with a setting of the person's own."""

from buzz_author import AgentHandle, PluginContext

inject = ("agents",)


def apply(ctx: PluginContext) -> None:
    def writes_code(agent: AgentHandle) -> bool:
        return agent.name == "dev"

    ctx.agents.addInstructions(
        id="freeze",
        text=(
            f"A release is being cut. Do not commit to the branch `{ctx.settings['branch']}`, and do not propose to.\n"
            "Work that must wait goes to a branch of its own, with a note that it waits for the release."
        ),
        when=writes_code,
    )
