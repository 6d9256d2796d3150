"""The host's services that plugins ask for with `inject`: provided and withdrawn while plugins run.

A plugin waits in `starting` until every service that it injects exists, and goes back to it when one is withdrawn
(PLG-02). What every context has anyway counts as a service that is always there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from buzz_author.errors import RegistrationError
from buzz_author.plugins import Disposer
from buzz_host.plugins.listeners import Listeners

ALWAYS_THERE: Final = frozenset({"agents", "effect", "log", "plugin", "settings", "spawn"})


class ServiceRegistry:
    """Names and values of the services that exist now. All of it may be called from any thread."""

    def __init__(self, services: Mapping[str, object] | None = None) -> None:
        self._lock = threading.Lock()
        self._services: dict[str, object] = {}
        self._listeners: Listeners[[]] = Listeners()
        for name, value in (services or {}).items():
            self.provide(name, value)

    def provide(self, name: str, value: object) -> None:
        """Let plugins have `value` as `ctx.<name>`. Raises `RegistrationError` for a name that is taken."""
        if not name.isidentifier() or name.startswith("_"):
            raise RegistrationError(f"a service cannot be called {name!r}: plugins reach it as an attribute of ctx")
        with self._lock:
            if name in ALWAYS_THERE or name in self._services:
                raise RegistrationError(f"the service '{name}' exists already: withdraw it first")
            self._services[name] = value
        self._listeners.tell()

    def withdraw(self, name: str) -> None:
        """Take the service away; nothing happens where there is none. Plugins that inject it stop being active."""
        with self._lock:
            if name not in self._services:
                return
            del self._services[name]
        self._listeners.tell()

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of `names` that no service answers to, in their order."""
        with self._lock:
            return tuple(name for name in names if name not in ALWAYS_THERE and name not in self._services)

    def take(self, names: Iterable[str]) -> Mapping[str, object] | None:
        """The values for `names`, save what every context has anyway; None when one is missing."""
        with self._lock:
            wanted = [name for name in names if name not in ALWAYS_THERE]
            if any(name not in self._services for name in wanted):
                return None
            return {name: self._services[name] for name in wanted}

    def still_hold(self, taken: Mapping[str, object]) -> bool:
        """Whether each service that was taken is still there, and still the same."""
        with self._lock:
            return all(name in self._services and self._services[name] is value for name, value in taken.items())

    def subscribe(self, listener: Callable[[], object]) -> Disposer:
        """Call `listener` after each change, on the thread that made it."""
        return self._listeners.subscribe(listener)
