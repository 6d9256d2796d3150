"""Loading a plugin: a folder as a package of its own, from the very bytes that were hashed.

A folder becomes the package `buzz_plugins.<id>_<hash>`, its code the module `plugin` in it. Only relative imports reach
its other files, `sys.path` is untouched and nothing is written, so two plugins that each have a `utils.py` never meet
(decision 8). Executing a module is left to the thread of its plugin.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Final

import attrs

from buzz_author.errors import BuzzError, PluginFault
from buzz_host.plugins.faults import ROOT, exception_fault
from buzz_host.plugins.files import PluginFiles, PluginFilesError, read_file, read_folder
from buzz_host.plugins.sources import PluginSource, one_line
from buzz_host.plugins.whose import belongs

if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.resources.abc import TraversableResources

    from buzz_author.plugins import PluginContext
else:
    Loader = object  # the base classes in `importlib.abc` cost more to import than this module, and give nothing

MODULE: Final = "plugin"
HASH_CHARS: Final = 16

Apply = Callable[["PluginContext"], "None | Awaitable[None]"]


class LoadError(BuzzError):
    """A plugin's code was read, but it is not what a plugin must be."""


@attrs.frozen
class LoadedPlugin:
    """The code of one plugin, imported: its `apply`, and the names of the services that it waits for.

    `package` is the name to give to `unload`; None for a module that was imported in the ordinary way and stays.
    """

    apply: Apply
    inject: tuple[str, ...]
    package: str | None


def load(source: PluginSource) -> LoadedPlugin:
    """Import the plugin; runs its module's code. Raises whatever that raises, and `LoadError` or `PluginFilesError`
    with one line for a plugin that is gone, has changed, or is none. Leaves nothing behind when it fails."""
    if source.form == "module":
        return _checked(source, _imported(source), None)
    package = _packages.add(source.id, _read_again(source), source.form)
    try:
        module = importlib.import_module(f"{package}.{MODULE}")
        return _checked(source, module, package)
    except BaseException:
        unload(package)
        raise


def unload(package: str | None) -> None:
    """Forget the package of a plugin that was loaded from a folder or file; nothing happens for None."""
    if package is not None:
        _packages.remove(package)


def load_fault(source: PluginSource, phase: str, error: BaseException) -> PluginFault:
    """The fault for what loading or running a plugin raised, with a hint where its author is likely to need one."""
    hint = _import_hint(source, error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    fault = exception_fault(source.id, phase, error, hint)
    return attrs.evolve(fault, message=one_line(fault.message))


def _import_hint(source: PluginSource, name: str) -> str:
    if source.path is None or name.startswith(f"{ROOT}."):
        return ""
    top = name.partition(".")[0]
    folder = source.path if source.form == "folder" else source.path.parent
    if not top or not ((folder / f"{top}.py").is_file() or (folder / top).is_dir()):
        return ""
    if source.form == "file":
        return f"a single .py file stands alone; to use {top}, make a plugin folder of both (buzz plugin new)"
    return f"a plugin reaches its own files by relative imports only: write `from . import {top}`"


def _read_again(source: PluginSource) -> PluginFiles:
    if source.path is None:
        raise LoadError(f"plugin '{source.id}' has no path")
    if source.installation is not None:
        from buzz_host.plugins.install.integrity import read_locked

        return read_locked(source)
    try:
        files = read_folder(source.path) if source.form == "folder" else read_file(source.path)
    except FileNotFoundError:
        raise PluginFilesError(f"{source.path}: was there when plugins were looked for, and is gone now") from None
    if files.content_hash != source.content_hash:
        raise PluginFilesError(f"{source.path}: was changed while it was being loaded: try again")
    return files


def _imported(source: PluginSource) -> object:
    module, _, attribute = (source.import_path or "").partition(":")
    belongs(module, source.id)
    found: object = importlib.import_module(module)
    for name in filter(None, attribute.split(".")):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise LoadError(f"{source.import_path}: the module {module} has no {name}") from None
    return found() if isinstance(found, type) else found


def _checked(source: PluginSource, plugin: object, package: str | None) -> LoadedPlugin:
    place = source.where if source.form != "folder" else str((source.path or Path()) / "plugin.py")
    apply = getattr(plugin, "apply", None)
    if apply is None:
        raise LoadError(f"{place}: a plugin needs a function apply(ctx), and this has none")
    if not callable(apply):
        raise LoadError(f"{place}: apply: expected a function of ctx, found {type(apply).__name__}")
    return LoadedPlugin(apply, _checked_inject(place, getattr(plugin, "inject", ())), package)


def _checked_inject(place: str, inject: object) -> tuple[str, ...]:
    if isinstance(inject, str):
        raise LoadError(f"{place}: inject: expected a list of names, found a text: write inject = [{inject!r}]")
    if not isinstance(inject, Sequence | set | frozenset):
        raise LoadError(f"{place}: inject: expected a list of names, found {type(inject).__name__}")
    names = sorted(inject, key=repr) if isinstance(inject, set | frozenset) else list(inject)
    for name in names:
        if not isinstance(name, str) or not name.isidentifier():
            raise LoadError(f"{place}: inject: expected the name of a service, found {ascii(name)[:80]}")
    return tuple(dict.fromkeys(names))


class _BytesLoader(Loader):
    """Executes one module of a plugin from bytes. `path` is the real file, so that tracebacks name it."""

    def __init__(self, path: Path, source: bytes, files: PluginFiles) -> None:
        self.path = str(path)
        self._source = source
        self._files = files

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # an ordinary module will do

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self._source, self.path, "exec", dont_inherit=True)
        return code

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._source)

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str) -> bytes:
        """A file of the plugin, for `pkgutil.get_data`; raises `OSError` where it has none of that name."""
        try:
            return self._files.files[Path(path).relative_to(self._files.root).as_posix()]
        except (KeyError, ValueError):
            raise FileNotFoundError(f"{path} is no file of this plugin") from None

    def get_resource_reader(self, fullname: str) -> TraversableResources:
        from importlib.resources.readers import FileReader

        return FileReader(self)  # type: ignore[arg-type]

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)


class _Packages:
    """Finds the modules below `buzz_plugins`, among the files of the plugins that are loaded now and nowhere else."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[str, tuple[PluginFiles, str]] = {}

    def add(self, plugin: str, files: PluginFiles, form: str) -> str:
        """Make the files importable; gives the name of their package. A name that is in use gets a number."""
        base = f"{ROOT}.{plugin.replace('-', '_')}_{files.content_hash[:HASH_CHARS]}"
        with self._lock:
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)
            if ROOT not in sys.modules:
                root = ModuleType(ROOT, "The plugins that were loaded from folders and files, one package for each.")
                root.__path__ = []
                sys.modules[ROOT] = root
            package, number = base, 1
            while package in self._loaded:
                number += 1
                package = f"{base}_{number}"
            self._loaded[package] = (files, form)
        belongs(package, plugin, files.root)
        return package

    def remove(self, package: str) -> None:
        with self._lock:
            self._loaded.pop(package, None)
        for name in [name for name in list(sys.modules) if name == package or name.startswith(f"{package}.")]:
            sys.modules.pop(name, None)
        root, _, name = package.rpartition(".")
        vars(sys.modules[root]).pop(name, None)

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not fullname.startswith(f"{ROOT}."):
            return None
        package = ".".join(fullname.split(".")[:2])
        with self._lock:
            loaded = self._loaded.get(package)
        found = loaded and self._spec(fullname, fullname.split(".")[2:], *loaded)
        if not found:
            # Not None: then the ordinary finders would look on the disk, for code that was never hashed.
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return found

    def _spec(self, fullname: str, parts: list[str], files: PluginFiles, form: str) -> ModuleSpec | None:
        if form == "file":
            if not parts:
                return _package_spec(fullname, files, [])
            return _module_spec(fullname, files, next(iter(files.files))) if parts == [MODULE] else None
        folder = "".join(f"{part}/" for part in parts)
        if f"{folder}__init__.py" in files.files:
            return _module_spec(fullname, files, f"{folder}__init__.py", parts)
        if parts and f"{folder[:-1]}.py" in files.files:
            return _module_spec(fullname, files, f"{folder[:-1]}.py")
        if any(name.startswith(folder) for name in files.files):
            return _package_spec(fullname, files, parts)
        return None


def _module_spec(fullname: str, files: PluginFiles, name: str, folder: list[str] | None = None) -> ModuleSpec:
    path = files.root / name
    loader = _BytesLoader(path, files.files[name], files)
    spec = ModuleSpec(fullname, loader, origin=str(path), is_package=folder is not None)
    spec.has_location = True
    if folder is not None:
        spec.submodule_search_locations = [str(files.root.joinpath(*folder))]
    return spec


def _package_spec(fullname: str, files: PluginFiles, folder: list[str]) -> ModuleSpec:
    """A package without an `__init__.py`: the plugin's folder itself, or a folder in it."""
    place = files.root.joinpath(*folder)
    spec = ModuleSpec(fullname, _BytesLoader(place / "__init__.py", b"", files), is_package=True)
    spec.submodule_search_locations = [str(place)]
    return spec


_packages = _Packages()
