"""What a harness session may ask of the host: programs that die with it, tools, judgements, and the gateway.

The one implementation of `SessionHost`. The policy of the agent is applied here, for plugins' tools and for the
program's own alike; where it says that a person is to be asked, the session's actor asks (PRM-01).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from buzz_author.errors import BuzzError
from buzz_author.harness import Gateway, Policy, Process
from buzz_author.json_values import JsonObject
from buzz_author.tools import GateDecision, Text, ToolRequest, ToolResult
from buzz_host.processes import ProgramHost
from buzz_host.tools.policy import judged

if TYPE_CHECKING:
    from buzz_host.tools.session_tools import SessionTools

Asker = Callable[[ToolRequest, "str | None"], Awaitable[GateDecision]]
"""Asks a person about a call; the second is the plugin whose tool it is, None for one of the program's own."""


async def nobody_answers(call: ToolRequest, plugin: str | None) -> GateDecision:
    """The asker of a session that nobody watches."""
    return GateDecision("deny", "nobody is there to answer", "person")


class SessionAccess:
    """The host as one session sees it. `asker` is set by whoever can ask a person."""

    def __init__(
        self,
        programs: ProgramHost,
        policy: Policy,
        tools: SessionTools | None = None,
        asker: Asker | None = None,
    ) -> None:
        self._programs = programs
        self._policy: Policy = policy
        self._tools = tools
        self._gateway: Gateway | None = None
        self.asker: Asker = asker or nobody_answers

    async def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> Process:
        """Start a program of this session."""
        return await self._programs.spawn(argv, env=env, cwd=cwd)

    def launcher(self, program: Path, *, keep: Collection[str]) -> Path:
        """A program that starts `program` as one of this session, for an SDK that spawns by itself."""
        return self._programs.launcher(program, keep=keep)

    async def end(self, *, deadline_s: float) -> None:
        """End all programs of this session."""
        await self._programs.end(deadline_s=deadline_s)

    async def call_tool(self, call_id: str, name: str, arguments: JsonObject) -> ToolResult:
        """The answer of a plugin's tool, once the policy, and a person where it asks one, allow the call."""
        found = self._tools.find(name) if self._tools is not None else None
        if self._tools is None or found is None:
            known = ", ".join(each.name for each in self._tools.tools) if self._tools is not None else ""
            return _refused(f"there is no tool '{name}' in this session; the tools are: {known or 'none'}")
        call = ToolRequest(call_id, name, arguments, read_only=found.tool.annotations.read_only)
        decision = await self._decided(call, found.plugin)
        if decision.verdict != "allow":
            return _refused(f"the tool '{name}' was not called: {decision.reason}")
        return await self._tools.call(name, arguments)

    async def gate(self, call: ToolRequest) -> GateDecision:
        """What the policy says to a call; where it asks, the person's answer."""
        return await self._decided(call, self.plugin_of(call.name))

    def judged(self, call: ToolRequest) -> GateDecision:
        """What the policy says to a call, without asking anybody."""
        return judged(self._policy, call, self.plugin_of(call.name))

    def plugin_of(self, name: str) -> str | None:
        """Whose tool this is; None for one of the program's own."""
        return self._tools.plugin_of(name) if self._tools is not None else None

    @property
    def gateway(self) -> Gateway:
        """Where this session's tools are served; raises `BuzzError` where none are."""
        if self._gateway is None:
            raise BuzzError("no tools are served in this session")
        return self._gateway

    @gateway.setter
    def gateway(self, served: Gateway) -> None:
        self._gateway = served

    async def _decided(self, call: ToolRequest, plugin: str | None) -> GateDecision:
        decision = judged(self._policy, call, plugin)
        return await self.asker(call, plugin) if decision.verdict == "ask" else decision


def _refused(why: str) -> ToolResult:
    return ToolResult((Text(why),), is_error=True)
