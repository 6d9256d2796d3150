"""What a harness session may ask of the host: programs that die with it, tools, and judgements.

The one implementation of `SessionHost`. No tools are served in this release, so a call of one is answered as an error,
and whatever a program wants to do by itself is refused under the default policy (PRM-01).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import attrs

from buzz_author.errors import BuzzError
from buzz_author.harness import Gateway, Policy, Process
from buzz_author.json_values import JsonObject
from buzz_author.tools import GateDecision, Text, ToolRequest, ToolResult
from buzz_host.processes import ProgramHost


@attrs.frozen
class SessionAccess:
    """The host as one session sees it."""

    programs: ProgramHost
    policy: Policy

    async def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> Process:
        """Start a program of this session."""
        return await self.programs.spawn(argv, env=env, cwd=cwd)

    def launcher(self, program: Path, *, keep: Collection[str]) -> Path:
        """A program that starts `program` as one of this session, for an SDK that spawns by itself."""
        return self.programs.launcher(program, keep=keep)

    async def end(self, *, deadline_s: float) -> None:
        """End all programs of this session."""
        await self.programs.end(deadline_s=deadline_s)

    async def call_tool(self, call_id: str, name: str, arguments: JsonObject) -> ToolResult:
        """The answer of a tool; an error for every name, since no tools are served yet."""
        return ToolResult((Text(f"there is no tool '{name}' in this session"),), is_error=True)

    async def gate(self, call: ToolRequest) -> GateDecision:
        """Whether a program may use a tool of its own: not under a policy that allows the tools of plugins only."""
        if self.policy == "all" or (self.policy == "read-only" and call.read_only):
            return GateDecision("allow", f"the policy '{self.policy}' allows it", "policy")
        return GateDecision("deny", f"the policy '{self.policy}' does not allow '{call.name}'", "policy")

    @property
    def gateway(self) -> Gateway:
        """Where tools are served; raises `BuzzError`, since none are yet."""
        raise BuzzError("no tools are served in this session")
