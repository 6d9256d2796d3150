"""A thread and an event loop for each plugin, so that one that spins or blocks stops nobody else (PLG-02).

The threads are daemons: none holds up the exit of the process. One that no longer answers is condemned: nothing of it
counts any more, and it is ended by an asynchronous exception, where Python can do that; a call that holds on to a
blocking system call or to the interpreter lock cannot be ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from buzz_host.plugins.whose import THREAD_PREFIX

T = TypeVar("T")
Work = Callable[[], Awaitable[T]] | Callable[[], T]

# What a plugin left running on its loop gets this long to take its cancellation before the loop is closed.
LEFT_TASKS_S: Final = 1.0
# A task that has failed gets this long to be awaited by another one; then its failure is told.
UNAWAITED_S: Final = 0.1
# A condemned thread is asked again and again to end, since code may swallow what it is sent; then it is left alone.
FORCE_PAUSE_S: Final = 0.05
FORCE_TRIES: Final = 400
FORCE_TRIES_IN_OWN_CODE: Final = 60


class GivenUp(BaseException):
    """Raised inside a plugin's code whose time is over."""


class Job(Generic[T]):
    """Work on a plugin's thread. Await `outcome()` on the loop that started it."""

    def __init__(self, thread: PluginThread) -> None:
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[T] = self._loop.create_future()
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    @property
    def ended(self) -> bool:
        return self._future.done()

    async def wait(self, timeout_s: float | None, unless: asyncio.Event | None = None) -> bool:
        """Whether the work has ended, `timeout_s` seconds from now at the latest, or when `unless` is set; it goes on
        if it has not."""
        if unless is None:
            await asyncio.wait([self._future], timeout=timeout_s)
            return self._future.done()
        called_off: asyncio.Future[bool] = asyncio.ensure_future(unless.wait())
        try:
            either: list[asyncio.Future[Any]] = [self._future, called_off]
            await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            called_off.cancel()
        return self._future.done()

    def result(self) -> T:
        """What the work gave; raises what it raised, `GivenUp` for a work that was cancelled."""
        try:
            return self._future.result()
        except _Carried as letter:
            raise letter.error from None

    def cancel(self) -> None:
        """Ask the work to end; only what awaits something hears it."""
        self._cancelled = True
        self._thread.call(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _start(self, work: Work[T]) -> None:
        # On the plugin's thread.
        self._task = asyncio.get_running_loop().create_task(self._run(work))

    async def _run(self, work: Work[T]) -> None:
        try:
            if self._cancelled:
                raise GivenUp
            result = work()
            value = await result if inspect.isawaitable(result) else result
        except BaseException as error:
            given_up = self._cancelled and isinstance(error, asyncio.CancelledError)
            self._report(None, GivenUp() if given_up else error)
        else:
            self._report(value, None)

    def _report(self, value: T | None, error: BaseException | None) -> None:
        def settle() -> None:
            if self._future.done():
                return
            if error is None:
                self._future.set_result(value)  # type: ignore[arg-type]
            else:
                self._future.set_exception(_Carried(error))
                self._future.exception()  # retrieved: nobody may be waiting any more

        # Where the host's loop is closed, nobody waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(settle)


class _Carried(Exception):
    """Takes any exception through a future, which refuses some."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class PluginThread:
    """One plugin's thread with its loop. Made on the host's loop; runs until `stop` or `condemn`.

    `modules` is how the names of the plugin's own modules begin. `failed` is told, on the thread, what a task of the
    plugin's own raised that nobody awaited; it says whether it could do anything about it.
    """

    def __init__(self, plugin: str, modules: str, failed: Callable[[BaseException], bool] | None = None) -> None:
        self._plugin = plugin
        self._modules = modules
        self._failed = failed or (lambda _: False)
        self._unawaited: set[asyncio.Task[Any]] = set()
        self._log = logging.getLogger(f"buzz.plugin.{plugin}")
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._background_fault)
        self._loop.set_task_factory(self._task)  # type: ignore[arg-type]  # typeshed knows no generic one
        self._stopping = False
        self.condemned = False
        self._thread = threading.Thread(target=self._main, name=f"{THREAD_PREFIX}{plugin}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def run(self, work: Work[T]) -> Job[T]:
        """Start `work` on the thread; what it returns is awaited there if it can be."""
        job: Job[T] = Job(self)
        if not self.call(job._start, work):
            job._report(None, GivenUp())
        return job

    def call(self, function: Callable[..., object], *arguments: object) -> bool:
        """Call `function` soon on the thread; False when its loop is closed."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return False
        return True

    def run_later(self, work: Callable[[], Coroutine[object, object, None]]) -> bool:
        """Run a coroutine function on the thread without waiting for it; False when its loop is closed."""
        tasks: set[asyncio.Task[None]] = set()

        def start() -> None:
            task: asyncio.Task[None] = self._loop.create_task(work())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        return not self._stopping and self.call(start)

    def stop(self) -> None:
        """End the thread once it has nothing to do; returns at once."""
        self._stopping = True
        self.call(self._loop.stop)

    def break_off(self) -> None:
        """Raise `GivenUp` in what runs on the thread now, if that is the plugin's own code; the thread goes on."""
        if _may_be_ended(self._thread, self._modules, anywhere=False):
            raise_in_thread(self._thread, GivenUp)

    def condemn(self) -> None:
        """Give the thread up: end it by an asynchronous exception, as soon as it runs the plugin's own code."""
        if self.condemned:
            return
        self.condemned = True
        self.stop()
        end_by_force(self._thread, self._modules)

    def _main(self) -> None:
        # What is raised to end the thread may arrive anywhere.
        with contextlib.suppress(GivenUp):
            self._run_loop()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._stopping:
            try:
                self._loop.run_forever()
            except BaseException as error:
                # SystemExit or KeyboardInterrupt from a task of the plugin's own: only that task ends.
                if not isinstance(error, GivenUp):
                    self._tell("a task of its own ended", error)
        with contextlib.suppress(BaseException):
            self._end_left_tasks()
        with contextlib.suppress(BaseException):
            self._loop.close()

    def _end_left_tasks(self) -> None:
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left, timeout=LEFT_TASKS_S))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    def _background_fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        self._tell(str(context.get("message")), error if isinstance(error, BaseException) else None)

    def _task(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(work, loop=loop, **options)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if _raised_unseen(task):
            self._unawaited.add(task)
            self._loop.call_later(UNAWAITED_S, self._tell_unawaited, task)

    def tell_unawaited(self) -> None:
        """Tell of every task that has failed and that nobody has awaited; on the thread."""
        for task in list(self._unawaited):
            self._tell_unawaited(task)

    def _tell_unawaited(self, task: asyncio.Task[Any]) -> None:
        if task in self._unawaited:
            self._unawaited.discard(task)
            if _raised_unseen(task):
                self._tell("a task of its own raised", task.exception())

    def _tell(self, what: str, error: BaseException | None) -> None:
        if error is None or not self._failed(error):
            self._log.error("%s", what, exc_info=error)


def _raised_unseen(task: asyncio.Task[Any]) -> bool:
    """Whether `task` has failed and nobody has asked for its exception; to ask for it would be to have seen it."""
    return task.done() and bool(getattr(task, "_log_traceback", False))


def end_by_force(thread: threading.Thread, modules: str) -> None:
    """End `thread` by an asynchronous exception when it runs a module whose name begins with `modules`.

    Returns at once. Code that swallows what it is sent is left alone after a while.
    """

    def work() -> None:
        for number in range(FORCE_TRIES):
            if _may_be_ended(thread, modules, anywhere=number >= FORCE_TRIES_IN_OWN_CODE):
                raise_in_thread(thread, GivenUp)
            thread.join(FORCE_PAUSE_S)
            if not thread.is_alive():
                return

    threading.Thread(target=work, name=f"ends {thread.name}", daemon=True).start()


def _may_be_ended(thread: threading.Thread, modules: str, *, anywhere: bool) -> bool:
    """Whether the thread is in code of those modules: in the very frame that is running, or `anywhere` below it.

    An exception that arrives inside a library may leave a lock of it locked (that of `logging`, say), so at first only
    the plugin's own frame will do; it arrives where the thread is when the interpreter lets it go on. Inside the import
    of somebody else's module it never comes: that would leave a library half imported, for everybody.
    """
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if isinstance(name, str) and name.startswith(modules):
            return True
        if not anywhere or frame.f_code.co_filename.startswith("<frozen importlib"):
            return False
        frame = frame.f_back
    return False


def raise_in_thread(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise `error` in another thread the next time it runs Python code; nothing happens when it has ended."""
    import ctypes

    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error))
