"""The life of plugins: a declared set of revisions is brought about, each plugin by a keeper of its own (PLG-02).

`reconcile` says what is wanted and returns at once. What is no longer wanted has stopped showing by then; the rest
happens in one task for each plugin (`keeper`), so no plugin waits for another. The calls are made on one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from buzz_author.errors import BuzzError, PluginFault
from buzz_host.plugins.activation import Limits, Surroundings
from buzz_host.plugins.keeper import Keeper, PluginStatus, Wanted
from buzz_host.plugins.services import ServiceRegistry

if TYPE_CHECKING:
    from buzz_author.json_values import JsonObject
    from buzz_host.plugins.context import Spawn
    from buzz_host.plugins.contributions import Contributions
    from buzz_host.plugins.sources import PluginSource
    from buzz_host.settings import Home

# What one command of a person waits for plugins; what is not active then is a fault row of that command (PLG-02).
ONE_SHOT_WAIT_S: Final = 2.0
# What an abandoned keeper may take to notice; it awaits nothing of a plugin any more.
ABANDONED_S: Final = 1.0


class PluginRuntime:
    """Runs the plugins of one host.

    `settings_of` gives a plugin's own settings when it is reconciled; a change of them starts the plugin anew.
    `services` is what plugins can inject, `spawn` is behind `ctx.spawn`, `limits` are seconds for tests to shorten.
    """

    def __init__(
        self,
        home: Home,
        contributions: Contributions,
        *,
        services: ServiceRegistry | None = None,
        settings_of: Callable[[PluginSource], JsonObject] | None = None,
        spawn: Spawn | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.contributions = contributions
        self.services = services or ServiceRegistry()
        self._settings_of = settings_of or (lambda source: source.defaults)
        self._around = Surroundings(home, contributions, self.services, limits or Limits(), spawn)
        self._keepers: dict[str, Keeper] = {}
        self._closed = False
        self._moved = asyncio.Event()
        self._unsubscribe = self.services.subscribe(self._services_changed)

    def reconcile(self, sources: Iterable[PluginSource]) -> None:
        """Make exactly `sources` run: start what is new, replace what has another revision or other settings, stop the
        rest.

        Idempotent, and returns at once: what is not wanted any more has stopped showing by then. A plugin that failed
        at this revision stays failed. Raises `BuzzError` after `close`.
        """
        if self._closed:
            raise BuzzError("the plugins of this host are stopped: it is closing")
        wanted = {source.id: Wanted(source, self._settings_of(source)) for source in sources}
        for identifier, keeper in self._keepers.items():
            if identifier not in wanted:
                keeper.want(None)
        for identifier, each in wanted.items():
            keeper_of = self._keepers.get(identifier)
            if keeper_of is None:
                self._keepers[identifier] = Keeper(each, self._around, self._moved.set)
            else:
                keeper_of.want(each)

    def retry(self, plugin: str) -> bool:
        """Start a failed plugin again; False when there is no such plugin, or it has not failed."""
        keeper = self._keepers.get(plugin)
        return keeper is not None and not self._closed and keeper.retry()

    def states(self) -> tuple[PluginStatus, ...]:
        """How each plugin is that was ever wanted, sorted by id."""
        return tuple(keeper.status for _, keeper in sorted(self._keepers.items()))

    def faults(self) -> tuple[PluginFault, ...]:
        """What went wrong with the present revisions, and with the clean-up of those before them; by plugin."""
        return tuple(fault for _, keeper in sorted(self._keepers.items()) for fault in keeper.faults)

    async def settled(self, deadline_s: float = ONE_SHOT_WAIT_S) -> tuple[PluginFault, ...]:
        """Wait until each plugin is active, failed or stopped, or cannot get on by itself; `deadline_s` at most.

        Returns a fault for each that is still starting then: it takes no part in what comes now.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                while not all(keeper.settled for keeper in self._keepers.values()):
                    self._moved.clear()
                    await self._moved.wait()
        return tuple(keeper.late() for _, keeper in sorted(self._keepers.items()) if keeper.status.state == "starting")

    async def close(self, deadline_s: float) -> tuple[PluginFault, ...]:
        """Stop all plugins at the same time, and wait for their clean-ups, `deadline_s` seconds at most.

        What has not ended by then is given up. Returns the faults that there are then. Never hangs; closing twice is
        fine.
        """
        self._closed = True
        self._unsubscribe()
        tasks = [keeper.last() for keeper in self._keepers.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=deadline_s)
            for keeper in self._keepers.values():
                keeper.abandon(deadline_s)
            await asyncio.wait(tasks, timeout=ABANDONED_S)
        return self.faults()

    def _services_changed(self) -> None:
        # On the thread of whoever provides or withdraws a service.
        for keeper in list(self._keepers.values()):
            keeper.services_changed()
