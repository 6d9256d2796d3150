"""What the policy of an agent says to one call of a tool: allow, ask a person, or deny (PRM-01, AGP-05).

| policy | a plugin's tool | the program's own tool |
|---|---|---|
| `plugin-tools-only` | allowed | denied |
| `read-only` | allowed if it is annotated as read-only | allowed if the program says that it only reads |
| `ask` | allowed if it is annotated as read-only, else asked | allowed if it only reads, else asked |
| `all` | allowed | allowed |
"""

from __future__ import annotations

from buzz_author.harness import Policy
from buzz_author.tools import GateDecision, ToolRequest

GATE = "policy"


def judged(policy: Policy, call: ToolRequest, plugin: str | None) -> GateDecision:
    """The decision for `call`; `plugin` is whose tool it is, None for one of the program's own."""
    reads = call.read_only is True
    allowed = plugin is not None if policy == "plugin-tools-only" else reads
    if allowed or policy == "all":
        return GateDecision("allow", f"the policy '{policy}' allows it", GATE)
    if policy == "ask":
        return GateDecision("ask", f"the policy '{policy}' asks a person", GATE)
    return GateDecision("deny", f"the policy '{policy}' does not allow '{call.name}'", GATE)
