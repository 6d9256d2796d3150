"""`ctx`: what a running plugin is given.

One context belongs to one activation. When that is over (stopped, failed, given up, a service lost) the context is
closed for good: a late result registers nothing and is told so by `PluginClosed` (PLG-02). Every call may be made from
any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from buzz_author.errors import RegistrationError
from buzz_author.plugins import Agents, PluginIdentity
from buzz_host.plugins.contributions import Scope
from buzz_host.plugins.ctx_agents import no_attribute
from buzz_host.plugins.effects import Effects
from buzz_host.plugins.services import ALWAYS_THERE

if TYPE_CHECKING:
    from logging import Logger

    from buzz_author.harness import Process
    from buzz_author.json_values import JsonObject
    from buzz_author.plugins import Disposer, Effect
    from buzz_host.plugins.sources import PluginSource
    from buzz_host.settings import Home

Spawn = Callable[[Sequence[str], "Mapping[str, str] | None", "Path | None"], Awaitable["Process"]]
"""Starts a program for a plugin; awaited on the plugin's own loop. The process must die with the host."""


class HostContext:
    """`ctx` of one activation (`buzz_author.PluginContext`); injected services are further attributes."""

    def __init__(
        self,
        source: PluginSource,
        settings: JsonObject,
        services: Mapping[str, object],
        scope: Scope,
        agents: Agents,
        effects: Effects,
        home: Home,
        spawn: Spawn | None,
    ) -> None:
        self.agents = agents
        self.settings = settings
        self.log: Logger = logging.getLogger(f"buzz.plugin.{source.id}")
        self._source = source
        self._services = services
        self._scope = scope
        self._effects = effects
        self._home = home
        self._spawn = spawn
        self._identity: PluginIdentity | None = None

    @property
    def plugin(self) -> PluginIdentity:
        """Who this plugin is. Its folder `data_dir` is made when this is first asked for; raises `HomeError`."""
        if self._identity is None:
            source = self._source
            data_dir = self._home.folder(self._home.data / source.id)
            self._identity = PluginIdentity(source.id, source.version, source.content_hash, data_dir)
        return self._identity

    def effect(self, disposer: Effect) -> Disposer:
        if not callable(disposer):
            raise RegistrationError(
                f"plugin '{self._scope.plugin}': effect: expected a function that cleans up, "
                f"found {type(disposer).__name__}"
            )
        self._scope.must_be_open()
        return self._effects.add(disposer)

    async def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Process:
        self._scope.must_be_open()
        if self._spawn is None:
            raise RegistrationError(f"plugin '{self._scope.plugin}': spawn: no program can be started here")
        process = await self._spawn(argv, env, cwd)
        try:
            self.effect(_killer(process))
        except BaseException:
            # It was stopped while the program was starting: nobody would ever end it.
            process.kill()
            raise
        return process

    def __getattr__(self, name: str) -> object:
        try:
            return self.__dict__["_services"][name]
        except KeyError:
            pass
        there = sorted({*ALWAYS_THERE, *self.__dict__.get("_services", ())})
        if name.startswith("_") or get_close_matches(name, there, n=1):
            raise no_attribute("ctx", name, there)
        raise AttributeError(f"ctx has no '{name}'; a service of the host is asked for by name: inject = ['{name}']")


def _killer(process: Process) -> Effect:
    async def kill() -> None:
        if process.returncode is None:
            process.kill()
            await process.wait()

    return kill
