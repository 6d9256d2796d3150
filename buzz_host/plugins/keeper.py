"""The keeper of one plugin: brings about what is wanted of it, one thing after the other, in a task of its own.

Because it does one thing after the other, a replacement begins only when the clean-up of its predecessor has really
ended, however late that is. What stops is fenced off at the moment it is not wanted any more, before anything is
awaited.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import attrs

from buzz_author.errors import PluginFault
from buzz_host.plugins.activation import Activation, Revision, Surroundings

if TYPE_CHECKING:
    from buzz_author.json_values import JsonObject
    from buzz_host.plugins.sources import PluginSource

PluginState = Literal["starting", "active", "failed", "disabled"]

_log = logging.getLogger("buzz.plugins")


@attrs.frozen
class PluginStatus:
    """How one plugin is. `revision` is its content hash; `error` is what it failed of, or is late with;
    `waiting_for` names the services that it injects and that do not exist."""

    id: str
    state: PluginState
    revision: str
    source: PluginSource
    error: PluginFault | None = None
    waiting_for: tuple[str, ...] = ()


@attrs.frozen(eq=False)
class Wanted:
    """One wish: a revision with its settings. Compared by identity: the same wish made again is another attempt."""

    source: PluginSource
    settings: JsonObject

    def same(self, other: Wanted) -> bool:
        """Whether nothing would run differently."""
        return self.source.content_hash == other.source.content_hash and self.settings == other.settings


class Keeper:
    """Keeps one plugin as it is wanted. `moved` is called whenever `status` or `settled` may have changed."""

    def __init__(self, wanted: Wanted, around: Surroundings, moved: Callable[[], None]) -> None:
        self.status = PluginStatus(wanted.source.id, "starting", wanted.source.content_hash, wanted.source)
        self.faults: tuple[PluginFault, ...] = ()
        self._around = around
        self._moved = moved
        self._wanted: Wanted | None = wanted
        self._revision: Revision | None = None
        self._activation: Activation | None = None
        self._rests: Literal["active", "waiting", "overdue"] | None = None
        self._clean_up_faults: tuple[PluginFault, ...] = ()
        self._closing = False
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._task = self._loop.create_task(self._run(), name=f"keeper of plugin {wanted.source.id}")

    @property
    def settled(self) -> bool:
        """Whether nothing will change by itself: it rests, or waits for a service, or for an overdue clean-up."""
        match self._rests:
            case "active":
                return self._activation is not None and not self._activation.fenced
            case "waiting":
                return not self._changed.is_set()
            case "overdue":
                return True
            case _:
                return False

    def want(self, wanted: Wanted | None) -> None:
        """Replace what is wanted. What runs and is not wanted any more has stopped showing when this returns."""
        before = self._wanted
        if wanted is not None and before is not None and before.same(wanted):
            # `self._wanted` stays, it is the attempt that was made; what is told of the plugin may be new.
            self.status = attrs.evolve(self.status, source=wanted.source)
        elif wanted is not before:
            self._begin(wanted)

    def retry(self) -> bool:
        """Try again what failed; False when it has not failed."""
        if self._wanted is None or self.status.state != "failed":
            return False
        self._begin(attrs.evolve(self._wanted))
        return True

    def services_changed(self) -> None:
        """A service came or went. From any thread: what has lost one has stopped showing when this returns."""
        activation = self._activation
        if activation is not None and not self._around.services.still_hold(activation.services):
            activation.fence()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody keeps anything any more
            self._loop.call_soon_threadsafe(self._changed.set)

    def late(self) -> PluginFault:
        """The fault of a plugin that is not active yet."""
        status = self.status
        waited_s = self._loop.time() - self._began
        if status.waiting_for:
            names = ", ".join(f"'{name}'" for name in status.waiting_for)
            return PluginFault(status.id, "starting", f"it waits for {names}, which this host does not provide now")
        waited = f"{waited_s:.0f} s" if waited_s >= 1 else f"{waited_s * 1000:.0f} ms"
        return status.error or PluginFault(status.id, "starting", f"not active yet after {waited}")

    def last(self) -> asyncio.Task[None]:
        """Want nothing any more; the task ends when the plugin has stopped."""
        self._closing = True
        self.want(None)
        self._changed.set()
        return self._task

    def abandon(self, waited_s: float) -> None:
        """Give up what has not stopped, `waited_s` seconds after it was asked to."""
        if not self._task.done():
            self._add(PluginFault(self.status.id, "dispose", f"had not stopped after {waited_s:g} s, and was given up"))
            self._task.cancel()

    def _begin(self, wanted: Wanted | None) -> None:
        self._wanted = wanted
        self._began = self._loop.time()
        if self._activation is not None:
            self._activation.fence()
        if self._revision is not None:
            self._revision.over.set()
        if wanted is None:
            self._set("disabled")
        else:
            self._set("starting", source=wanted.source)
        self._changed.set()

    async def _run(self) -> None:
        while True:
            wanted = self._wanted
            if wanted is not None:
                try:
                    await self._attempt(wanted)
                except Exception as error:
                    _log.exception("the keeper of plugin '%s' failed", self.status.id)
                    self._fail(PluginFault.from_exception(self.status.id, "host", error), wanted)
            while self._wanted is wanted:
                if self._closing:
                    return
                await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        self._rest("waiting")
        try:
            await self._changed.wait()
        finally:
            self._rest(None)

    async def _attempt(self, wanted: Wanted) -> None:
        """Load one revision, and keep it active until it is not wanted any more, or fails."""
        self.faults, self._clean_up_faults = self._clean_up_faults, ()
        revision = self._revision = Revision(wanted.source, self._around, self._task_failed)
        by_force = True
        try:
            fault = await revision.load()
            if fault is not None:
                self._fail(fault, wanted)
            while fault is None and (services := await self._services_for(revision, wanted)) is not None:
                fault = await self._activate(revision, wanted, services)
            by_force = False
        finally:
            revision.end(by_force=by_force)
            self._revision = None

    async def _services_for(self, revision: Revision, wanted: Wanted) -> Mapping[str, object] | None:
        """What the plugin injects, as soon as all of it exists; None when the plugin is not wanted any more."""
        services = self._around.services
        while self._wanted is wanted:
            found = services.take(revision.inject)
            if found is not None:
                return found
            self._set("starting", waiting_for=services.missing(revision.inject))
            await self._wait_for_change()
        return None

    async def _activate(self, revision: Revision, wanted: Wanted, services: Mapping[str, object]) -> PluginFault | None:
        """Apply, and stay active until the plugin is not wanted or has lost a service; then clean up."""
        activation = self._activation = revision.activation(wanted.settings, services)
        if not self._around.services.still_hold(services):
            activation.fence()  # it went just before there was a fence
        if self.status.waiting_for:
            self._set("starting")
        fault = await revision.apply(activation)
        if fault is not None:
            self._fail(fault, wanted)
        elif activation.show():
            self._set("active")
            self._rest("active")
            await activation.over.wait()
            self._rest(None)
            if self._wanted is wanted:
                self._set("starting", waiting_for=self._around.services.missing(services))
        for found in await revision.clean_up(activation, self._overdue):
            self._add(found)
        self._rest(None)
        self._activation = None
        return fault

    def _task_failed(self, fault: PluginFault) -> None:
        """A task of the plugin's own raised, and nobody awaited it: told until the next attempt."""
        if fault not in self.faults:
            self.faults += (fault,)
            self._moved()

    def _overdue(self, fault: PluginFault) -> None:
        self._add(fault)
        self._rest("overdue")

    def _rest(self, rests: Literal["active", "waiting", "overdue"] | None) -> None:
        self._rests = rests
        self._moved()

    def _set(
        self,
        state: PluginState,
        *,
        source: PluginSource | None = None,
        error: PluginFault | None = None,
        waiting_for: tuple[str, ...] = (),
    ) -> None:
        source = source or self.status.source
        self.status = PluginStatus(source.id, state, source.content_hash, source, error, waiting_for)
        self._moved()

    def _fail(self, fault: PluginFault, wanted: Wanted | None) -> None:
        if self._wanted is wanted:
            self.faults += (fault,)
            self._set("failed", error=fault)

    def _add(self, fault: PluginFault) -> None:
        """A fault of a clean-up: told beside the state, and until the attempt after the next one."""
        self.faults += (fault,)
        self._clean_up_faults += (fault,)
        if self.status.error is None and self.status.state != "active":
            self.status = attrs.evolve(self.status, error=fault)
        self._moved()
