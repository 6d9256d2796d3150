"""A fault that is made of an exception of a plugin: what its author needs to mend it, and nothing of the host.

The message ends with the place of the plugin's own innermost frame, and the traceback begins with its outermost one:
what lies above is the host, and Python's machinery of imports.
"""

from __future__ import annotations

import re
import traceback as tracebacks
from types import TracebackType
from typing import Final

from buzz_author.errors import FAULT_MESSAGE_MAX_CHARS, FAULT_TRACEBACK_MAX_CHARS, BuzzError, PluginFault, describe
from buzz_author.text import well_formed
from buzz_host.plugins.whose import own_place

ROOT: Final = "buzz_plugins"
_OF_IMPORTS: Final = ("<frozen importlib", __file__.replace("faults.py", "loading.py"))
_PACKAGE: Final = re.compile(rf"{ROOT}\.\w+?_[0-9a-f]{{16}}(?:_\d+)?(?=[.'\s]|$)")
# Python names a method by its class; an author knows it by what it is called on.
_KNOWN_AS: Final = {"HostAgents": "ctx.agents.", "Agents": "ctx.agents.", "HostContext": "ctx.", "TurnAgent": "agent."}
_OURS: Final = re.compile(rf"\b({'|'.join(_KNOWN_AS)})\.(?=\w+\(\))")
_READ_ONLY: Final = "'mappingproxy' object "


def exception_fault(plugin: str, phase: str, error: BaseException, hint: str = "") -> PluginFault:
    """The fault for what a plugin let escape; never fails, whatever `error` is.

    `hint` is added to what the exception says. An error of ours is written for people, and needs no traceback.
    """
    message = described(plugin, error, hint)
    return PluginFault(plugin, phase, message, "" if isinstance(error, BuzzError) else _traceback(plugin, error))


def described(plugin: str, error: BaseException, hint: str = "") -> str:
    """One line for an exception of a plugin, with the place in its code: `KeyError: 'branch' (plugin.py:12)`."""
    said = _said(plugin, error)
    hint = hint or _hint(said)
    if hint:
        said = f"{said}: {hint}"
    place = _place(plugin, error)
    end = f" ({place})" if place and place not in said else ""
    room = FAULT_MESSAGE_MAX_CHARS - len(end)
    return well_formed((said if len(said) <= room else said[: room - 1] + "…") + end)


def _said(plugin: str, error: BaseException) -> str:
    try:
        if isinstance(error, BuzzError):
            return " ".join(str.split(str(error)))
        if isinstance(error, SyntaxError) and error.filename:
            place = f"{error.filename}:{error.lineno}" if error.lineno else error.filename
            return " ".join(str.split(f"{place}: {type(error).__name__}: {error.msg}"))
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (package := _PACKAGE.match(missing)):
            file = missing[package.end() + 1 :].replace(".", "/")
            return f"{type(error).__name__}: plugin '{plugin}' has no file {file}.py"
    except BaseException:
        return describe(error)
    if isinstance(error, TypeError):
        return _OURS.sub(lambda match: _KNOWN_AS[match[1]], describe(error))
    if isinstance(error, ImportError):
        return _PACKAGE.sub(f"plugin {plugin}", describe(error)).replace(" (unknown location)", "")
    return describe(error)


def _hint(said: str) -> str:
    if _READ_ONLY in said:
        return "ctx.settings is read-only; the person's values stand in buzz.toml, dict(ctx.settings) is a copy"
    return ""


def _place(plugin: str, error: BaseException) -> str:
    places = []
    try:
        for frame, line in tracebacks.walk_tb(error.__traceback__):
            if place := own_place(plugin, frame, line):
                places.append(place)
    except BaseException:
        return ""
    return places[-1] if places else ""


def _traceback(plugin: str, error: BaseException) -> str:
    try:
        shown = tracebacks.TracebackException.from_exception(error)
        _cut(plugin, shown, error, set())
        return well_formed("".join(shown.format())[-FAULT_TRACEBACK_MAX_CHARS:])
    except BaseException:
        return f"{describe(error)}\n"


def _cut(plugin: str, shown: tracebacks.TracebackException, error: BaseException, seen: set[int]) -> None:
    """Leave the frames from the plugin's first one on; all of them where none is its own, unless Python could not
    even begin to run it."""
    if id(error) in seen:
        return
    seen.add(id(error))
    kept = _own_on(plugin, error.__traceback__)
    if kept is not None:
        frames = [frame for frame in shown.stack[kept:] if not frame.filename.startswith(_OF_IMPORTS)]
        shown.stack[:] = frames
    elif isinstance(error, SyntaxError | ImportError):
        shown.stack[:] = []
    for cause, inner in ((shown.__cause__, error.__cause__), (shown.__context__, error.__context__)):
        if cause is not None and inner is not None:
            _cut(plugin, cause, inner, seen)


def _own_on(plugin: str, trace: TracebackType | None) -> int | None:
    for number, (frame, line) in enumerate(tracebacks.walk_tb(trace)):
        if own_place(plugin, frame, line):
            return number
    return None
