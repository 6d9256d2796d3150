"""`buzz plugin validate`: what is wrong with a plugin, as far as it can be seen without running it.

Reads the manifest, the syntax of every module, and what stands in the code as plain literals: ids and texts of
instructions, `inject`, imports. What a plugin computes is only known once it runs, so a clean result is no promise.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs

from buzz_author.errors import BuzzError
from buzz_host.plugins.candidates import CODE_NAME
from buzz_host.plugins.discovery import named_source
from buzz_host.plugins.files import PluginFiles, read_file, read_folder
from buzz_host.plugins.manifest import ManifestError, key_line
from buzz_host.plugins.services import ALWAYS_THERE
from buzz_host.plugins.sources import MANIFEST_NAME, PluginSource
from buzz_host.plugins.validate_calls import judge_calls


@attrs.frozen
class Finding:
    """One thing that is wrong, or may be: where it is (`line` counts from 1; None for a whole file), and what to do."""

    level: Literal["error", "warning"]
    path: Path
    line: int | None
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{place}: {self.level}: {self.message}"


def validate(path: Path) -> tuple[Finding, ...]:
    """What is wrong with the plugin at `path`, by file and line; empty where nothing is found. Runs nothing of it.

    Raises `PluginPathError` where there is no such path.
    """
    absolute = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - as the path is judged elsewhere
    if not absolute.exists():
        named_source(path)
    try:
        source, warnings = named_source(path)
    except BuzzError as error:
        return (_manifest_finding(absolute, error.__cause__, str(error)),)
    place = source.path or absolute
    files = read_folder(place) if source.form == "folder" else read_file(place)
    manifest = files.files.get(MANIFEST_NAME, b"").decode("utf-8-sig", "replace")
    findings = [_warning(place / MANIFEST_NAME, line, manifest) for line in warnings]
    for name, content in files.files.items():
        if name.endswith(".py"):
            findings += _of_module(source, files, name, content)
    return tuple(sorted(findings, key=lambda each: (str(each.path), each.line or 0)))


def _manifest_finding(path: Path, cause: BaseException | None, message: str) -> Finding:
    if isinstance(cause, ManifestError):
        return Finding("error", cause.file, cause.line, cause.message)
    return Finding("error", path, None, message.removeprefix(f"{path}: "))


def _warning(file: Path, line: str, text: str) -> Finding:
    message = line.removeprefix(f"{file}: ")
    return Finding("warning", file, key_line(text, message.partition(": ")[0]), message)


def _of_module(source: PluginSource, files: PluginFiles, name: str, content: bytes) -> Iterator[Finding]:
    path = files.root / name
    try:
        module = ast.parse(content, str(path))
    except SyntaxError as error:
        yield Finding("error", path, error.lineno, f"{type(error).__name__}: {error.msg}")
        return
    except (ValueError, RecursionError, MemoryError) as error:
        yield Finding("error", path, None, f"cannot be parsed: {error}")
        return
    is_code = source.form == "file" or name == CODE_NAME
    if is_code:
        yield from _apply(path, module)
        yield from _inject(path, module)
    yield from _imports(source, files, path, module)
    yield from _relative_imports(source, files, name, module)
    for remark in judge_calls(source.id, module, injected=_injected(module) if is_code else None):
        yield Finding(remark.level, path, remark.line, remark.message)


def _apply(path: Path, module: ast.Module) -> Iterator[Finding]:
    for statement in module.body:
        match statement:
            case ast.FunctionDef(name="apply", args=args) | ast.AsyncFunctionDef(name="apply", args=args):
                positional = [*args.posonlyargs, *args.args]
                required = len(positional) - len(args.defaults)
                keywords = [default for default in args.kw_defaults if default is None]
                if required > 1 or keywords or not (positional or args.vararg):
                    yield Finding(
                        "error", path, statement.lineno, "apply is called as apply(ctx): give it one argument"
                    )
                return
    bound = {each.id for each in ast.walk(module) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    imported = {
        alias.asname or alias.name
        for each in module.body
        if isinstance(each, ast.Import | ast.ImportFrom)
        for alias in each.names
    }
    if not {"apply", "*"} & (bound | imported):
        yield Finding("error", path, None, "a plugin needs a function apply(ctx), and this has none")


def _inject(path: Path, module: ast.Module) -> Iterator[Finding]:
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="inject")], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id="inject"), value=ast.expr() as value):
                pass
            case _:
                continue
        match value:
            case ast.Constant(value=str() as name):
                message = f"inject: expected a list of names, found a text: write inject = [{name!r}]"
                yield Finding("error", path, statement.lineno, message)
            case ast.Constant():
                yield Finding("error", path, statement.lineno, "inject: expected a list of names")
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                for each in elements:
                    if isinstance(each, ast.Constant) and each.value not in ALWAYS_THERE:
                        yield Finding(
                            "warning", path, each.lineno,
                            f"inject: the plugin will wait until the host has a service {each.value!r}",
                        )  # fmt: skip


def _imports(source: PluginSource, files: PluginFiles, path: Path, module: ast.Module) -> Iterator[Finding]:
    if source.form != "folder":
        return
    own = {name.partition("/")[0].removesuffix(".py") for name in files.files if name.endswith(".py")}
    for statement in ast.walk(module):
        match statement:
            case ast.Import(names=names):
                tops = [alias.name.partition(".")[0] for alias in names]
            case ast.ImportFrom(module=str() as name, level=0):
                tops = [name.partition(".")[0]]
            case _:
                continue
        for top in tops:
            if top in own:
                message = f"a plugin reaches its own files by relative imports only: write `from . import {top}`"
                yield Finding("error", path, statement.lineno, message)


def _relative_imports(source: PluginSource, files: PluginFiles, name: str, module: ast.Module) -> Iterator[Finding]:
    """Relative imports of files that are not there."""
    path = files.root / name
    here = name.split("/")[:-1]
    for statement in ast.walk(module):
        if not isinstance(statement, ast.ImportFrom) or not statement.level:
            continue
        if source.form == "file":
            message = "a single .py file stands alone; to import from others, make a plugin folder (buzz plugin new)"
            yield Finding("error", path, statement.lineno, message)
            continue
        if statement.level - 1 > len(here):
            yield Finding("error", path, statement.lineno, "this relative import leads out of the plugin's folder")
            continue
        package = here[: len(here) - statement.level + 1]
        if statement.module is not None:
            wanted = [[*package, *statement.module.split(".")]]
        elif "/".join([*package, "__init__.py"]) in files.files:
            continue  # it may define any name
        else:
            wanted = [[*package, alias.name] for alias in statement.names if alias.name != "*"]
        for parts in wanted:
            if not _is_module(files, "/".join(parts)):
                message = f"the plugin has no file {'/'.join(parts)}.py"
                yield Finding("error", path, statement.lineno, message)


def _is_module(files: PluginFiles, name: str) -> bool:
    return f"{name}.py" in files.files or any(each.startswith(f"{name}/") for each in files.files)


def _injected(module: ast.Module) -> list[str] | None:
    """The services that the module asks for; None where they cannot be read off."""
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="inject")], value=ast.List(elts=elements) | ast.Tuple(elts=elements)):
                return [str(each.value) for each in elements if isinstance(each, ast.Constant)]
            case ast.Assign(targets=[ast.Name(id="inject")]) | ast.AnnAssign(target=ast.Name(id="inject")):
                return None
    return []
