"""One plugin at one revision: its thread, its module, and what it has in hand while it is active.

Says how loading, `apply` and clean-up are run, bounded and given up; when they are run is the business of
`lifecycle`. Everything here is called on the host's loop, save `Activation.fence`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from buzz_author.errors import PluginFault
from buzz_host.plugins.context import HostContext, Spawn
from buzz_host.plugins.contributions import Contributions
from buzz_host.plugins.ctx_agents import HostAgents
from buzz_host.plugins.effects import PHASE, Effects
from buzz_host.plugins.faults import ROOT, exception_fault
from buzz_host.plugins.loading import LoadedPlugin, load, load_fault, unload
from buzz_host.plugins.services import ServiceRegistry
from buzz_host.plugins.threads import GivenUp, Job, PluginThread

if TYPE_CHECKING:
    from buzz_author.json_values import JsonObject
    from buzz_host.plugins.sources import PluginSource
    from buzz_host.settings import Home


T = TypeVar("T")
TASK_PHASE: Final = "task"


@attrs.frozen
class Limits:
    """Seconds that a plugin has for each part of its life (PLG-02).

    `grace_s` is how long code that was given up may take to notice before its thread is.
    """

    load_s: float = 10.0
    activate_s: float = 10.0
    cleanup_s: float = 10.0
    grace_s: float = 0.25


@attrs.frozen
class Surroundings:
    """What every activation needs of its host."""

    home: Home
    contributions: Contributions
    services: ServiceRegistry
    limits: Limits
    spawn: Spawn | None = None


class Activation:
    """One run of a plugin's `apply`, and what it registered until its clean-ups have run."""

    def __init__(
        self,
        source: PluginSource,
        settings: JsonObject,
        services: Mapping[str, object],
        around: Surroundings,
        thread: PluginThread,
    ) -> None:
        self.services = services
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._scope = around.contributions.open(source.id, source.content_hash)
        self.effects = Effects(source.id, thread)
        agents = HostAgents(self._scope, around.contributions.next_note, thread)
        self.context = HostContext(
            source, settings, services, self._scope, agents, self.effects, around.home, around.spawn
        )

    @property
    def fenced(self) -> bool:
        """Whether it is over; `over` is set soon after."""
        return self._scope.closed

    def show(self) -> bool:
        """Let what was registered be seen; False when it is over."""
        return self._scope.show()

    def fence(self) -> None:
        """End it, at once and for good: what it registered is gone, what comes later is refused. From any thread."""
        self._scope.close()
        self.effects.close()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for `over`
            self._loop.call_soon_threadsafe(self.over.set)


class Revision:
    """The code of one revision on a thread of its own, from `load` to `end`.

    `told` is given, on the host's loop, the fault of each task of the plugin's own that nobody awaited.
    """

    def __init__(self, source: PluginSource, around: Surroundings, told: Callable[[PluginFault], None]) -> None:
        self.source = source
        self.over = asyncio.Event()
        self._around = around
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._thread: PluginThread | None = None
        self._loaded: LoadedPlugin | None = None
        self._given_up = False

    @property
    def inject(self) -> tuple[str, ...]:
        """The services that the plugin waits for; known once it is loaded."""
        return self._loaded.inject if self._loaded is not None else ()

    async def load(self) -> PluginFault | None:
        """Import the plugin's code; the fault if it cannot be imported, or takes too long. Ends early, without one,
        when the revision is `over`."""
        source, limit_s = self.source, self._around.limits.load_s
        job = self._on_thread().run(self._load)
        if not await job.wait(limit_s, self.over):
            called_off = self.over.is_set()
            self._given_up = True
            await self._give_up(job)
            if job.ended:
                with contextlib.suppress(BaseException):  # what it raises now, nobody needs to know
                    unload(job.result().package)
            if called_off:
                return None
            return PluginFault(source.id, "load", f"its module was still being imported after {limit_s:g} s")
        try:
            self._loaded = job.result()
        except BaseException as error:
            return load_fault(source, "load", error)
        return None

    def _load(self) -> LoadedPlugin:
        # On the plugin's thread.
        loaded = load(self.source)
        if self._given_up:
            unload(loaded.package)
            raise GivenUp
        return loaded

    def activation(self, settings: JsonObject, services: Mapping[str, object]) -> Activation:
        """What `apply` is to be run with."""
        return Activation(self.source, settings, services, self._around, self._on_thread())

    async def apply(self, activation: Activation) -> PluginFault | None:
        """Run the plugin's `apply`; the fault if it raises or takes too long. Ends early, without one, when
        `activation` is over."""
        loaded, source, limit_s = self._loaded, self.source, self._around.limits.activate_s
        if loaded is None:
            raise RuntimeError(f"plugin '{source.id}' is not loaded")
        job = self._on_thread().run(lambda: loaded.apply(activation.context))
        ended = await job.wait(limit_s, activation.over)
        if activation.fenced:
            await self._give_up(job)
            return None
        if not ended:
            activation.fence()
            await self._give_up(job)
            return PluginFault(source.id, "apply", f"apply(ctx) had not returned after {limit_s:g} s")
        try:
            job.result()
        except BaseException as error:
            activation.fence()
            return load_fault(source, "apply", error)
        return None

    async def clean_up(self, activation: Activation, overdue: Callable[[PluginFault], None]) -> list[PluginFault]:
        """Run the clean-ups of `activation`, and return what they raised once all have really ended.

        `overdue` is told when that takes longer than it may; the wait goes on.
        """
        activation.fence()
        effects, limit_s = activation.effects, self._around.limits.cleanup_s
        if self._thread is not None or not effects.empty:
            thread = self._on_thread()

            async def dispose() -> None:
                thread.tell_unawaited()  # to cancel a task, as a clean-up may, counts as having seen its failure
                await effects.dispose_all()
                thread.tell_unawaited()

            job: Job[None] = thread.run(dispose)
            if not await job.wait(limit_s):
                at = f" (in {effects.running})" if effects.running else ""
                overdue(PluginFault(self.source.id, PHASE, f"its clean-up had not ended after {limit_s:g} s{at}"))
                await job.wait(None)
        return effects.faults

    def end(self, *, by_force: bool = False) -> None:
        """Forget the module and end the thread; returns at once."""
        if self._loaded is not None:
            unload(self._loaded.package)
        if self._thread is not None:
            self._thread.condemn() if by_force else self._thread.stop()

    async def _give_up(self, job: Job[T]) -> None:
        if job.ended:
            return
        job.cancel()
        if not await job.wait(self._around.limits.grace_s) and self._thread is not None:
            self._thread.condemn()
            # What is still to be run of this plugin, its clean-ups above all, runs on a fresh one.
            self._thread = None

    def _on_thread(self) -> PluginThread:
        if self._thread is None:
            self._thread = PluginThread(self.source.id, self._modules, self._task_failed)
        return self._thread

    def _task_failed(self, error: BaseException) -> bool:
        # On the plugin's thread.
        fault = exception_fault(self.source.id, TASK_PHASE, error)
        try:
            self._loop.call_soon_threadsafe(self._told, fault)
        except RuntimeError:  # the loop is closed: nobody can be told
            return False
        return True

    @property
    def _modules(self) -> str:
        source = self.source
        return f"{ROOT}." if source.form != "module" else (source.import_path or "").partition(":")[0]
