"""A harness under test on a stage: its children, its tools, and the model that records what it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import attrs

from buzz_author.harness import Harness, SessionSpec
from buzz_author.testing.talk import Talk
from buzz_author.testing.under_test import HarnessUnderTest
from buzz_author.testing.wires import asks_a_model
from buzz_author.tools import Tool

if TYPE_CHECKING:
    from buzz_host.plugins.threads import PluginThread
    from buzz_host.rehearsal import RecordedRequest, Rehearsal
    from buzz_host.tools.gateway import Gateway
    from buzz_host.tools.session_tools import SessionTools

SYSTEM_PROMPT: Final = "You are an agent of a test, and this line is how it is known."
PLUGIN: Final = "stage"
"""The plugin whose tools a stage offers: the model knows them as `mcp__stage__<tool>`."""


def spec_for(under_test: HarnessUnderTest, folder: Path, model_url: str) -> SessionSpec:
    """A session of a fresh id in `folder`."""
    from buzz_host.agents.handle import TurnAgent

    work = folder / "work"
    return SessionSpec(
        session=str(uuid4()),
        agent=TurnAgent("main", "core", under_test.id, None, work, lambda: ()),
        cwd=work,
        config_dir=folder / "data" / under_test.id,
        system_prompt=SYSTEM_PROMPT,
        model_url=model_url,
    )


class Stage:
    """A harness, its children, and the model that records what it is sent."""

    def __init__(self, under_test: HarnessUnderTest, rehearsal: Rehearsal, folder: Path) -> None:
        from buzz_host.processes import Children

        self.kind = under_test
        self.rehearsal = rehearsal
        self.folder = folder
        self.children = Children(folder / "run")
        self._before = len(rehearsal.requests())
        self._talks: list[Talk] = []
        self._threads: list[PluginThread] = []
        self._gateway: Gateway | None = None
        self._revoked: list[Callable[[], None]] = []
        self.config_dir = spec_for(under_test, folder, rehearsal.url).config_dir
        (folder / "work").mkdir(exist_ok=True)

    async def open(
        self,
        *,
        harness: Harness | None = None,
        fixed: dict[str, object] | None = None,
        tools: Sequence[Tool] = (),
        **fields: Any,
    ) -> Talk:
        """Start a session, with these tools of a plugin; raises `HarnessError` as the harness does.

        `harness` is one that was made already; else `fixed` are arguments for its constructor. `fields` are those of
        the `SessionSpec`.
        """
        from buzz_host.processes import ProgramHost
        from buzz_host.sessions.access import SessionAccess

        harness = harness or self.kind.make(**(fixed or {}))
        spec = attrs.evolve(spec_for(self.kind, self.folder, self.rehearsal.url), **fields)
        offered = self._offered(tools, spec)
        spec = attrs.evolve(spec, tools=offered.tools)
        access = SessionAccess(ProgramHost(self.children, spec.session), spec.policy, offered)
        if offered.tools and harness.capabilities.tools in ("mcp", "rpc"):
            access.gateway = await self._served(offered, access)
        talk = Talk(await harness.open(spec, access), spec, lambda text: harness.encode(text, spec))
        self._talks.append(talk)
        return talk

    def _offered(self, tools: Sequence[Tool], spec: SessionSpec) -> SessionTools:
        """The tools of a session, offered by a plugin as every plugin offers them: they run on its own thread."""
        from buzz_author.tooling import check_tool
        from buzz_host.plugins.contributions import TOOLS, Contributions, OfferedTool
        from buzz_host.plugins.threads import PluginThread
        from buzz_host.tools.session_tools import SessionTools

        contributions = Contributions()
        if tools:
            scope = contributions.open(PLUGIN, "1")
            thread = PluginThread(PLUGIN, "no.module.of.a.plugin")
            self._threads.append(thread)
            for each in tools:
                checked = check_tool(PLUGIN, each)
                scope.register(TOOLS, checked.name, OfferedTool(checked, thread.run, thread.break_off))
            scope.show()

        async def refresh() -> None: ...

        return SessionTools.take(
            contributions, lambda _: None, refresh=refresh, agent=spec.agent.name, session=spec.session
        )

    async def _served(self, offered: SessionTools, access: Any) -> Any:
        from buzz_host.tools.gateway import Gateway

        if self._gateway is None:
            self._gateway = Gateway()
        address, revoke = await self._gateway.serve(offered.tools, access.call_tool)
        self._revoked.append(revoke)
        return address

    def requests(self) -> list[RecordedRequest]:
        """What the model was asked for on this stage; lists of models and counts of tokens apart."""
        return [each for each in self.rehearsal.requests()[self._before :] if asks_a_model(each)]

    def programs(self, talk: Talk) -> list[int]:
        """The programs of a session, without their keepers."""
        return programs_of(talk.spec.session)

    def leftovers(self) -> list[Path]:
        """Files that should be there only while a session runs."""
        return [path for pattern in self.kind.leftovers for path in self.config_dir.glob(pattern)]

    async def close(self) -> None:
        """End everything, and see that nothing is left."""
        from buzz_host.processes import launcher as keeper

        for talk in self._talks:
            await talk.close()
        for revoke in self._revoked:
            revoke()
        if self._gateway is not None:
            await self._gateway.close()
        for thread in self._threads:
            thread.stop()
        assert await self.children.close() == ()
        marked = keeper.environments(keeper.table()).values()
        assert not [each for each in marked if each.get("BUZZ_HOST") == self.children.marker]
        assert not self.leftovers(), "files of ours were left behind"


def programs_of(session: str) -> list[int]:
    """The programs of a session, without their keepers."""
    from buzz_host.processes import launcher as keeper

    return [
        pid
        for pid, marked in keeper.environments(keeper.table()).items()
        if marked.get("BUZZ_SESSION") == session and "BUZZ_KEEPER" not in marked
    ]


def marked(session: str) -> list[int]:
    """Every process of a session that lives, keepers as well."""
    from buzz_host.processes import launcher as keeper

    rows = keeper.table()
    return [
        pid
        for pid, variables in keeper.environments(rows).items()
        if variables.get("BUZZ_SESSION") == session and not rows[pid].zombie
    ]


def descriptors() -> int:
    """How many files and connections this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@asynccontextmanager
async def staged(under_test: HarnessUnderTest, rehearsal: Rehearsal, folder: Path) -> AsyncIterator[Stage]:
    """A stage for as long as the block lasts."""
    stage = Stage(under_test, rehearsal, folder)
    try:
        yield stage
    finally:
        await stage.close()
