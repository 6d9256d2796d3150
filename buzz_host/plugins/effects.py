"""The clean-ups of one activation: last in, first out, each run once, on whichever side asks first.

A clean-up that raises costs only itself. Its place in the plugin's code is kept, so that one that hangs can be named.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from buzz_author.errors import PluginClosed, PluginFault
from buzz_host.plugins.faults import exception_fault

if TYPE_CHECKING:
    from buzz_author.plugins import Disposer, Effect
    from buzz_host.plugins.threads import PluginThread

PHASE: Final = "dispose"


class Effects:
    """The stack of clean-ups that a plugin gave to `ctx.effect`. All of it may be called from any thread.

    `thread` is the plugin's; an async clean-up that the plugin calls early runs on its loop.
    """

    def __init__(self, plugin: str, thread: PluginThread) -> None:
        self._plugin = plugin
        self._thread = thread
        self._lock = threading.Lock()
        self._stack: list[_Effect] = []
        self._early: list[_Effect] = []
        self._early_done: asyncio.Event | None = None
        self._closed = False
        self.faults: list[PluginFault] = []
        self.running: str | None = None

    def add(self, disposer: Effect) -> Disposer:
        """Keep `disposer` for the end; the result runs it now instead. Raises `PluginClosed` after the end."""
        effect = _Effect(disposer)
        with self._lock:
            if self._closed:
                raise PluginClosed(f"plugin '{self._plugin}' was stopped: nothing can be registered any more")
            self._stack.append(effect)
        return lambda: self._dispose_early(effect)

    def close(self) -> None:
        """Refuse what comes later."""
        with self._lock:
            self._closed = True

    @property
    def empty(self) -> bool:
        """Whether there is nothing to run, and nothing that runs."""
        with self._lock:
            return not self._stack and not self._early

    async def dispose_all(self) -> None:
        """Run every clean-up that has not run, the last one first, and wait for those that run already, unless their
        thread had to be given up.

        On the plugin's own thread, or a fresh one. What a clean-up raises becomes a fault.
        """
        self.close()
        while True:
            with self._lock:
                effect = self._stack.pop() if self._stack else None
            if effect is None:
                break
            await self._run(effect)
        with self._lock:
            if not self._early or self._thread.condemned:
                return
            self._early_done = asyncio.Event()
        self.running = self._early[0].place
        await self._early_done.wait()
        self.running = None

    async def _run(self, effect: _Effect) -> None:
        self.running = effect.place
        try:
            result = effect.disposer()
            if inspect.isawaitable(result):
                await result
        except BaseException as error:
            self.faults.append(exception_fault(self._plugin, PHASE, error))
        finally:
            self.running = None

    def _dispose_early(self, effect: _Effect) -> None:
        with self._lock:
            if effect not in self._stack:
                return
            self._stack.remove(effect)
        result = effect.disposer()
        if not inspect.isawaitable(result):
            return
        with self._lock:
            self._early.append(effect)
        if not self._thread.run_later(lambda: self._finish(effect, result)):
            self._finished(effect)
            if inspect.iscoroutine(result):
                result.close()

    async def _finish(self, effect: _Effect, result: Awaitable[None]) -> None:
        try:
            await result
        except BaseException as error:
            self.faults.append(exception_fault(self._plugin, PHASE, error))
        finally:
            self._finished(effect)

    def _finished(self, effect: _Effect) -> None:
        with self._lock:
            self._early.remove(effect)
            if not self._early and self._early_done is not None:
                self._early_done.set()


class _Effect:
    """One clean-up, by identity: the same function may be given twice."""

    __slots__ = ("disposer",)

    def __init__(self, disposer: Effect) -> None:
        self.disposer = disposer

    @property
    def place(self) -> str:
        code = getattr(inspect.unwrap(self.disposer), "__code__", None)
        name = getattr(self.disposer, "__qualname__", type(self.disposer).__name__)
        return f"{name} at {code.co_filename}:{code.co_firstlineno}" if code else str(name)
