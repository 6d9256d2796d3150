"""The calls of `buzz preview`, in a module of their own: a preview has to be quick (DESIGN, "Speed that we owe")."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from buzz_host.services.call import HostCall

if TYPE_CHECKING:
    from buzz_host.services.host import Host
    from buzz_host.sessions.turn_text import Preview


@attrs.frozen(kw_only=True)
class PreviewTurn(HostCall["Preview"]):
    """The text of the next turn. `here` is the folder that the person is in: the working directory where the agent's
    file names none."""

    name = "preview"
    message: str
    here: str
    agent: str | None = None
    harness: str | None = None
    trigger: Literal["message", "steer"] = "message"

    @staticmethod
    def answer_type() -> object:
        from buzz_host.sessions.turn_text import Preview

        return Preview

    async def answer(self, host: Host) -> Preview:
        return await host.preview(
            self.message, agent=self.agent, harness=self.harness, trigger=self.trigger, here=Path(self.here)
        )


@attrs.frozen(kw_only=True)
class WarnOfTurn(HostCall["tuple[str, ...]"]):
    """What the person should know before a turn of `agent`, or of the session to `resume`: odd lines in `buzz.toml`, in
    the agent's file, and in the manifests of plugins that take part."""

    name = "turn.warnings"
    agent: str | None = None
    resume: str | None = None

    @staticmethod
    def answer_type() -> object:
        return tuple[str, ...]

    async def answer(self, host: Host) -> tuple[str, ...]:
        from buzz_host.services.warnings import turn_warnings

        await host.plugins.refresh()
        return turn_warnings(host, self.agent, self.resume)
