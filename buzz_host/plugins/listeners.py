"""Who wants to be told of changes (REG-03): the same for the registry, the services and what is enabled."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, ParamSpec

from buzz_author.plugins import Disposer

P = ParamSpec("P")

_log = logging.getLogger("buzz.plugins")


class Listeners(Generic[P]):
    """Functions to call after each change, on the thread that made it. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, Callable[P, object]] = {}

    def subscribe(self, listener: Callable[P, object]) -> Disposer:
        """Call `listener` after each change, until the disposer is called."""
        key = object()
        with self._lock:
            self._listeners[key] = listener

        def unsubscribe() -> None:
            with self._lock:
                self._listeners.pop(key, None)

        return unsubscribe

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call them all; one that fails is logged and keeps none of the others from hearing it."""
        with self._lock:
            listeners = list(self._listeners.values())
        for listener in listeners:
            try:
                listener(*args, **kwargs)
            except Exception:
                _log.exception("a listener failed")
