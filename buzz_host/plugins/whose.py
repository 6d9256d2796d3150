"""Whose code runs: from a frame, or a module's name, to the plugin that it belongs to.

Faults name the author's own line, and what a plugin prints is shown with its name. Both need to tell the plugin's code
from that of the host, of the standard library and of other plugins, on any thread.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Final

THREAD_PREFIX: Final = "buzz plugin "

# How the names of a plugin's modules begin: the plugin, and the folder that its files are named from. Replaced as a
# whole, so that readers need no lock; kept for good, since code of a plugin that was unloaded may still run.
_roots: dict[str, tuple[str, Path | None]] = {}
_writing = threading.Lock()


def belongs(root: str, plugin: str, folder: Path | None = None) -> None:
    """From now on the module `root`, and those below it, are code of `plugin`."""
    global _roots
    with _writing:
        _roots = {**_roots, root: (plugin, folder)}


def owner_of(module: object) -> str | None:
    """The plugin that the module called `module` belongs to; None where it is nobody's."""
    found = _root_of(module)
    return _roots[found][0] if found is not None else None


def own_place(plugin: str, frame: FrameType, line: int) -> str | None:
    """`file:line` where `frame` runs code of `plugin`, the file named from the plugin's folder; None elsewhere."""
    module = frame.f_globals.get("__name__")
    if not isinstance(module, str):
        return None
    for root, (owner, folder) in _roots.items():
        # A package's modules are its author's own, also those beside the one that is the plugin.
        whole = root if folder is not None else root.partition(".")[0]
        if owner == plugin and (module == whole or module.startswith(f"{whole}.")):
            return f"{_named_from(folder, Path(frame.f_code.co_filename), module)}:{line}"
    return None


def speaker(frame: FrameType | None = None) -> str | None:
    """The plugin whose code is running: by the thread that is the plugin's own, else by the frames from `frame` (that
    of the caller) outwards."""
    name = threading.current_thread().name
    if name.startswith(THREAD_PREFIX):
        return name.removeprefix(THREAD_PREFIX)
    at: FrameType | None = frame if frame is not None else sys._getframe(1)
    while at is not None:
        owner = owner_of(at.f_globals.get("__name__"))
        if owner is not None:
            return owner
        at = at.f_back
    return None


def _root_of(module: object) -> str | None:
    roots = _roots
    name = module if isinstance(module, str) else ""
    while name:
        if name in roots:
            return name
        name = name.rpartition(".")[0]
    return None


def _named_from(folder: Path | None, file: Path, module: str) -> str:
    if folder is not None and file.is_relative_to(folder):
        return file.relative_to(folder).as_posix()
    depth = module.count(".") + (2 if file.name == "__init__.py" else 1)
    return "/".join(file.parts[-depth:])
