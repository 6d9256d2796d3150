"""The plugins of a running host: found, switched, run, and looked at again before each turn.

What a surface shows is what the next turn does, so nothing is remembered here that a file could contradict: when
`buzz.toml`, the plugin folder or the lock of what is installed has changed since the last look, the set that runs is
brought in line first (PLG-06).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from buzz_author.errors import BuzzError, PluginFault
from buzz_author.harness import Harness
from buzz_host.plugins.context import Spawn
from buzz_host.plugins.contributions import HARNESSES, Contributions
from buzz_host.plugins.discovery import discover
from buzz_host.plugins.effects import PHASE as DISPOSE
from buzz_host.plugins.enablement import Enablement, Reason
from buzz_host.plugins.keeper import PluginStatus
from buzz_host.plugins.lifecycle import ONE_SHOT_WAIT_S, PluginRuntime
from buzz_host.plugins.services import ServiceRegistry
from buzz_host.plugins.sources import Discovery, PluginSource
from buzz_host.settings import Home, Settings, Signature, signature
from buzz_host.turns.snapshot import PluginStanding, Standing

CLOSE_DEADLINE_S: Final = 10.0
# Why a plugin is off, for people.
OFF_BECAUSE: Final[Mapping[Reason, str]] = {
    "disabled": "it is switched off",
    "off for the agent": "it is switched off for this agent",
    "default": "it is off unless somebody switches it on",
}


class LivePlugins:
    """The plugins of one host, from `start` to `close`. `contributions` is what the active ones offer."""

    def __init__(
        self, home: Home, further: Sequence[Path], *, spawn: Spawn, services: Mapping[str, object] | None = None
    ) -> None:
        """`services` are what plugins may inject, by name."""
        self._services = ServiceRegistry(services)
        self._home = home
        self._further = tuple(further)
        self._spawn = spawn
        self.contributions: Final = Contributions()
        self.enablement: Final = Enablement(home)
        self._runtime: PluginRuntime | None = None
        self._closed = False
        self._found = Discovery()
        self._seen: tuple[Signature, object] | None = None
        self._late: tuple[PluginFault, ...] = ()
        self._told: frozenset[PluginFault] = frozenset()
        self._looking = asyncio.Lock()

    async def start(self) -> None:
        """Find the plugins and start those that are on; waits for them 2 s at most (PLG-02)."""
        self._runtime = PluginRuntime(
            self._home,
            self.contributions,
            services=self._services,
            settings_of=self.enablement.settings_of,
            spawn=self._spawn,
        )
        await self.refresh()

    async def refresh(self) -> None:
        """Bring what runs in line with `buzz.toml`, the plugin folder and what is installed, if any has changed; cheap
        if not.

        Of several that ask at once one looks; the others wait for what it finds.
        """
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        seen = (signature(self._home), (_signature_of(self._home.plugins), _signature_of(self._home.lock)))
        if seen != self._seen:
            self.enablement.refresh()
            if self._seen is None or seen[1] != self._seen[1]:
                self._found = await asyncio.to_thread(discover, self._home, self._further)
            self._running.reconcile(each for each in self._found.sources if self.enablement.enabled_anywhere(each))
            self._seen = seen
            self._late = await self._running.settled(ONE_SHOT_WAIT_S)
        elif self._late:
            self._late = await self._running.settled(0)

    async def settle(self, deadline_s: float) -> None:
        """Wait until each plugin is active, failed or stopped, or cannot get on by itself; `deadline_s` at most."""
        self._late = await self._running.settled(deadline_s)

    def retry(self, plugin: str) -> bool:
        """Start a plugin that has failed again; False when it has not."""
        return self._running.retry(plugin)

    async def close(self) -> None:
        """Stop all plugins; what does not end within 10 s is given up. What goes wrong meanwhile no turn can tell any
        more: it is logged under the plugin's name."""
        self._closed = True
        if self._runtime is not None:
            before = frozenset(self._runtime.faults())
            for fault in await self._runtime.close(CLOSE_DEADLINE_S):
                if fault not in before:
                    logging.getLogger(f"buzz.plugin.{fault.plugin}").error(
                        "fault in %s: %s", fault.phase, fault.message
                    )

    @property
    def settings(self) -> Settings:
        """What `buzz.toml` says, as of the last look."""
        return self.enablement.settings

    @property
    def found(self) -> Discovery:
        """The plugins that there are, on or off, with the faults and warnings of finding them."""
        return self._found

    def statuses(self) -> dict[str, PluginStatus]:
        """How each plugin is that was ever started, by id."""
        return {each.id: each for each in self._running.states()}

    def faults(self) -> tuple[PluginFault, ...]:
        """What is wrong with plugins now: those that cannot be used, that failed, or that are late."""
        # An overdue clean-up is both a fault and a reason for being late.
        return tuple(dict.fromkeys((*self._found.faults, *self._running.faults(), *self._late)))

    def turn_faults(self, *, told: bool) -> tuple[PluginFault, ...]:
        """The faults that concern a turn that is made now; `told` says that it is sent, and tells them.

        What an earlier run of a plugin left behind when it stopped is told once, unless the plugin still waits for it:
        it says nothing of the one that is active now.
        """
        waiting = {each.id for each in self._running.states() if each.state == "starting"}
        passed = {each for each in self.faults() if each.phase == DISPOSE and each.plugin not in waiting}
        shown = tuple(each for each in self.faults() if each not in passed & self._told)
        if told:
            self._told = frozenset(passed)
        return shown

    def standings(self, agent: str) -> tuple[PluginStanding, ...]:
        """How each plugin stands towards `agent`, by id."""
        statuses = self.statuses()
        return tuple(self._standing(source, statuses.get(source.id), agent) for source in self._found.sources)

    def harness(self, identifier: str) -> Harness:
        """The harness `identifier` of an active plugin. Raises `BuzzError`: one line with those that there are."""
        harnesses = self.harnesses()
        if identifier not in harnesses:
            raise BuzzError(f"no harness is called '{identifier}'; {self._why_not(identifier, sorted(harnesses))}")
        return harnesses[identifier]

    def harnesses(self) -> dict[str, Harness]:
        """The harnesses of the active plugins, by id; the first plugin, by id, wins where two offer one."""
        offered: dict[str, Harness] = {}
        for each in self.contributions.snapshot(HARNESSES):
            offered.setdefault(each.id, each.value)
        return offered

    def _standing(self, source: PluginSource, status: PluginStatus | None, agent: str) -> PluginStanding:
        decision = self.enablement.decision(source, agent)
        standing: Standing
        if not decision.enabled:
            standing, detail = "off", OFF_BECAUSE[decision.reason]
        elif status is None or status.state in ("starting", "disabled"):
            late = next((each.message for each in self._late if each.plugin == source.id), "")
            standing, detail = "starting", late or "not active yet"
        elif status.state == "failed":
            standing, detail = "failed", status.error.message if status.error else ""
        else:
            standing, detail = "active", ""
        return PluginStanding(source.id, source.content_hash, standing, detail)

    def _why_not(self, identifier: str, there: Sequence[str]) -> str:
        for fault in self.faults():
            if fault.plugin == identifier:
                return f"its plugin has a fault: {fault.message}"
        if any(source.id == identifier for source in self._found.sources) and identifier not in self.statuses():
            return f"its plugin is off: buzz plugin enable {identifier}"
        line = f"the harnesses are: {', '.join(there) or 'none'}"
        near = get_close_matches(identifier, there, n=1)
        if near:
            line = f"did you mean '{near[0]}'? {line}"
        # A harness is known only once its plugin is active, so any of these may be the one that offers it.
        absent = [f"plugin '{each.plugin}' ({each.phase}): {each.message}" for each in self._absent()]
        if not absent:
            return line
        return f"{line}; it may be one that did not start: {'; '.join(absent)}"

    def _absent(self) -> list[PluginFault]:
        """A fault for each plugin that was to be active and is not."""
        errors = [each.error for each in self._running.states() if each.state == "failed" and each.error is not None]
        return sorted((*self._found.faults, *errors, *self._late), key=lambda fault: fault.plugin)

    @property
    def _running(self) -> PluginRuntime:
        if self._closed:
            raise BuzzError("this host has ended: start another one")
        if self._runtime is None:
            raise BuzzError("this host has not been started: use `async with Host() as host`")
        return self._runtime


def _signature_of(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
