"""One place on disk, judged: the plugin that stands there, or the one line that says why none does.

Nothing is executed: a folder is described by its `plugin.toml`, a single file by its literals. Everything is read from
the same bytes that are hashed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from buzz_author.errors import BuzzError
from buzz_author.names import check_name
from buzz_host.plugins.files import PluginFiles, PluginFilesError, read_file, read_folder
from buzz_host.plugins.loading import MODULE
from buzz_host.plugins.sources import MANIFEST_NAME, Origin, PluginSource

CODE_NAME: Final = f"{MODULE}.py"
# A module that is larger is no plugin that somebody wrote; it is found all the same, only not described.
DESCRIBED_MAX_BYTES: Final = 1024 * 1024
DESCRIPTION_MAX_CHARS: Final = 200


class NoPluginError(BuzzError):
    """What stands at a path is no plugin; the message says which path and why."""


def folder_source(path: Path, name: str, origin: Origin) -> tuple[PluginSource, tuple[str, ...]]:
    """The plugin in the folder `path`, which is called `name`, and warnings about its manifest.

    Raises `NoPluginError`, `ManifestError`, `InvalidName` or `PluginFilesError`, each with one line.
    """
    try:
        names = [entry.name for entry in path.iterdir()]
    except OSError as error:
        raise NoPluginError(f"{path}: the folder cannot be read ({error.strerror})") from None
    if MANIFEST_NAME not in names:
        raise NoPluginError(without_manifest(path, names))
    check_name(name, f"{path}: plugin")
    try:
        read = read_folder(path)
    except FileNotFoundError as error:
        raise PluginFilesError(f"{error.filename or path}: disappeared while it was read") from None
    return described_folder(read, path, name, origin)


def described_folder(read: PluginFiles, path: Path, name: str, origin: Origin) -> tuple[PluginSource, tuple[str, ...]]:
    """The plugin that these files are, and warnings about its manifest. They stand in the folder `path`, or are to be
    put there: nothing is read from it.

    Raises as `folder_source` does.
    """
    names = {each.partition("/")[0] for each in read.files}
    if MANIFEST_NAME not in read.files:
        raise NoPluginError(without_manifest(path, names))
    # Here, not above: a home without a plugin folder, where only packages bring plugins, needs no reader of manifests.
    from buzz_host.plugins.manifest import parse_manifest

    manifest, warnings = parse_manifest(read.files[MANIFEST_NAME], path / MANIFEST_NAME, name)
    if CODE_NAME not in read.files:
        raise NoPluginError(_without_code(path, names, hooks=bool(manifest.hooks)))
    if manifest.hooks:
        warnings = (
            *warnings, f"{path / MANIFEST_NAME}: hooks: this version of Buzz runs no hooks; the rest of it is loaded"
        )  # fmt: skip
    source = PluginSource(
        id=manifest.name,
        origin=origin,
        form="folder",
        content_hash=read.content_hash,
        path=path,
        version=manifest.version,
        description=manifest.description,
        author=manifest.author,
        enabled_by_default=manifest.enabled_by_default,
        isolation=manifest.isolation,
        plugin_depends=tuple(manifest.plugin_depends),
        defaults=manifest.defaults,
        setting_rules=manifest.setting_rules,
    )
    return source, warnings


def file_source(path: Path, name: str, origin: Origin) -> PluginSource:
    """The plugin in the single file `path`; `name` is its name without `.py`. Raises as `folder_source` does."""
    check_name(name, f"{path}: plugin")
    try:
        read = read_file(path)
    except FileNotFoundError:
        raise PluginFilesError(f"{path}: disappeared while it was read") from None
    return described_file(read, path, name, origin)


def described_file(read: PluginFiles, path: Path, name: str, origin: Origin) -> PluginSource:
    """The plugin that this one file is; it stands at `path`, or is to be put there."""
    (content,) = read.files.values()
    said = Literals.of(content)
    return PluginSource(
        id=name,
        origin=origin,
        form="file",
        content_hash=read.content_hash,
        path=path,
        title=said.text("name"),
        version=said.text("version"),
        description=said.description,
        author=said.text("author"),
        enabled_by_default=said.values.get("enabled_by_default") is not False,
    )


class Literals:
    """What a module says of itself in plain literals, read without running it."""

    def __init__(self, values: dict[str, object], docstring: str) -> None:
        self.values = values
        self._docstring = docstring

    @classmethod
    def of(cls, content: bytes) -> Literals:
        """The module-level literals in `content`; none where it is no Python, which is found out when it is loaded."""
        if len(content) > DESCRIBED_MAX_BYTES:
            return cls({}, "")
        try:
            module = ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return cls({}, "")
        values: dict[str, object] = {}
        for statement in module.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                    values[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value)):
                    values[name] = value
        return cls(values, ast.get_docstring(module) or "")

    def text(self, name: str) -> str:
        """The text that is assigned to `name`; empty where none is."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    @property
    def description(self) -> str:
        """What `description` says, else the first line of the docstring."""
        said = self.text("description") or self._docstring.strip().partition("\n")[0]
        return said[:DESCRIPTION_MAX_CHARS]


def without_manifest(path: Path, names: Iterable[str]) -> str:
    """Why the folder `path`, which holds `names`, is no plugin: nearly a manifest, or none."""
    names = list(names)
    near = _near(MANIFEST_NAME, [name for name in names if not name.endswith(".py")])
    if near:
        return f"{path / near}: a plugin's manifest is called {MANIFEST_NAME}: rename it"
    if CODE_NAME in names:
        return f'{path}: has {CODE_NAME} but no {MANIFEST_NAME}: add one with api = 1 and name = "{path.name}"'
    return f"{path}: is no plugin: it has no {MANIFEST_NAME}"


def _without_code(path: Path, names: Iterable[str], *, hooks: bool) -> str:
    near = _near(CODE_NAME, [name for name in names if name.endswith((".py", ".PY"))])
    if near:
        return f"{path / near}: the code of a plugin is called {CODE_NAME}: rename it"
    if hooks:
        return f"{path}: has hooks but no {CODE_NAME}, and this version of Buzz runs no hooks"
    return f"{path}: has no {CODE_NAME}: put `def apply(ctx): ...` into one"


def _near(name: str, names: list[str]) -> str | None:
    lower = {each.lower(): each for each in names}
    near = get_close_matches(name, lower, n=1, cutoff=0.75)
    return lower[near[0]] if near else None
