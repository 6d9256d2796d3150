"""`buzz plugin validate`: what is wrong with a plugin, as far as it can be seen without running it.

Reads the manifest, the syntax of every module, and what stands in the code as plain literals: ids and texts of
instructions, `inject`, imports. What a plugin computes is only known once it runs, so a clean result is no promise.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import attrs

from buzz_author.errors import BuzzError
from buzz_author.instructions import check_instructions
from buzz_host.plugins.candidates import CODE_NAME
from buzz_host.plugins.discovery import named_source
from buzz_host.plugins.files import PluginFiles, read_file, read_folder
from buzz_host.plugins.manifest import ManifestError, key_line
from buzz_host.plugins.services import ALWAYS_THERE
from buzz_host.plugins.sources import MANIFEST_NAME, PluginSource

# Stands for what the code computes: an id, or a text, that passes every check.
_COMPUTED: Final = "computed"
_INSTRUCTION_CALLS: Final = frozenset({"addInstructions", "add_instructions", "AgentInstructions"})


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
    yield from _instructions(source, path, module)


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


def _instructions(source: PluginSource, path: Path, module: ast.Module) -> Iterator[Finding]:
    texts = {
        statement.targets[0].id: statement.value
        for statement in module.body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }
    lines: dict[str, int] = {}
    for call in ast.walk(module):
        if not isinstance(call, ast.Call) or _called(call) not in _INSTRUCTION_CALLS:
            continue
        given = _arguments(call, texts)
        if given is None:
            continue
        try:
            checked = check_instructions(source.id, given)
        except BuzzError as error:
            yield Finding("error", path, call.lineno, str(error))
            continue
        if checked.id in lines and checked.id != _COMPUTED:
            message = (
                f"instructions '{checked.id}' are registered in line {lines[checked.id]} too: an id may stand once"
            )
            yield Finding("warning", path, call.lineno, message)
        lines.setdefault(checked.id, call.lineno)


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _arguments(call: ast.Call, constants: dict[str, ast.expr]) -> dict[str, object] | None:
    """What the call says in literals; a placeholder that passes every check where it does not. None for a call whose
    form is not known, such as one that is handed a value."""
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    match call.args:
        case []:
            pass
        case [ast.Dict(keys=keys, values=values)] if all(isinstance(key, ast.Constant) for key in keys):
            pairs = zip(keys, values, strict=True)
            given = {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
        case _ if _called(call) == "AgentInstructions":
            given |= dict(zip(("id", "text", "when"), call.args, strict=False))
        case _:
            return None
    return {
        "id": _literal(given.get("id"), constants, _COMPUTED),
        "text": _literal(given.get("text"), constants, _COMPUTED),
        "when": _literal(given.get("when"), constants, _ask_nobody),
    }


def _literal(value: ast.expr | None, constants: dict[str, ast.expr], computed: object) -> object:
    if isinstance(value, ast.Name):
        value = constants.get(value.id, value)
    if value is None:
        return None
    if isinstance(value, ast.Constant):
        return value.value
    if isinstance(value, ast.List | ast.Dict | ast.Tuple | ast.Set):
        return ()
    return computed


def _ask_nobody(_: object) -> bool:
    return False
