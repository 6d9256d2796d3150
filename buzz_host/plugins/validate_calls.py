"""What can be read off the calls in a plugin's code without running it: names, arguments, ids, texts, guards.

Only what stands there as a plain literal or name is judged; a placeholder that passes every check stands for what the
code computes. The names and signatures are those of `buzz_author.Agents`, so the two cannot drift apart.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Final, Literal

import attrs

from buzz_author.errors import BuzzError
from buzz_author.instructions import AgentInstructions, check_instructions
from buzz_author.names import check_name
from buzz_author.plugins import Agents
from buzz_author.ported import pep8_name
from buzz_host.plugins.ctx_agents import CONTRIBUTIONS, missing_attribute
from buzz_host.plugins.services import ALWAYS_THERE

_COMPUTED: Final = "computed"
_ADD_INSTRUCTIONS: Final = frozenset({"addInstructions", "add_instructions"})
_VALUE: Final = "AgentInstructions"
_KEYS: Final = ("id", "text", "when")
_OF_AGENTS: Final = {twin: name for name in CONTRIBUTIONS for twin in (name, pep8_name(name))}
# Of these, one branch runs or another one; what stands in two of them never meets.
_BRANCHING: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, ast.IfExp, ast.BoolOp)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@attrs.frozen
class Remark:
    """One thing about a line of the code, which counts from 1."""

    level: Literal["error", "warning"]
    line: int
    message: str


def judge_calls(plugin: str, module: ast.Module, *, injected: Sequence[str] | None) -> Iterator[Remark]:
    """What is wrong with the calls in `module`. `injected` are the services that the plugin asks for; None where they
    cannot be read off, or where the module has no `apply` of its own."""
    scene = _Scene.of(module)
    if injected is not None:
        yield from _of_context(module, injected)
    registered: dict[str, ast.Call] = {}
    calls = [each for each in ast.walk(module) if isinstance(each, ast.Call)]
    for call in sorted(calls, key=lambda each: (each.lineno, each.col_offset)):
        name = _called(call)
        if scene.is_agents(call.func):
            if name not in _OF_AGENTS:
                yield Remark("error", call.lineno, missing_attribute("ctx.agents", name, CONTRIBUTIONS))
                continue
            wrong = _misfit(name, call)
            if wrong is not None:
                yield Remark("error", call.lineno, wrong)
                continue
        if name in ("addNote", "add_note") and scene.is_agents(call.func):
            yield from _of_note(plugin, call, scene)
        elif name in _ADD_INSTRUCTIONS or name == _VALUE:
            yield from _of_instructions(plugin, call, scene, registered)


def _of_context(module: ast.Module, injected: Sequence[str]) -> Iterator[Remark]:
    apply = next(
        (each for each in module.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and _is_apply(each)),
        None,
    )
    if apply is None:
        return
    context = [*apply.args.posonlyargs, *apply.args.args][0].arg
    there = sorted({*ALWAYS_THERE, *injected})
    for each in ast.walk(apply):
        match each:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == context and attribute not in there:
                message = missing_attribute("ctx", attribute, there)
                if not message.endswith("?"):
                    message = f"{message}; a service of the host is asked for by name: inject = ['{attribute}']"
                yield Remark("error", each.lineno, message)


def _is_apply(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return function.name == "apply" and bool([*function.args.posonlyargs, *function.args.args])


def _of_note(plugin: str, call: ast.Call, scene: _Scene) -> Iterator[Remark]:
    if not _is_plain(call):
        return
    given = dict(zip(("agent", "text"), call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    agent, text = (scene.literal(given.get(name), _COMPUTED) for name in ("agent", "text"))
    try:
        check_name(agent, f"plugin '{plugin}': addNote: agent")
    except BuzzError as error:
        yield Remark("error", call.lineno, str(error))
    if not isinstance(text, str):
        yield Remark("error", call.lineno, f"addNote: text must be a str, not {type(text).__name__}")
    elif not text.strip():
        yield Remark("error", call.lineno, "addNote: the text is empty; say something, or add no note")


def _of_instructions(plugin: str, call: ast.Call, scene: _Scene, registered: dict[str, ast.Call]) -> Iterator[Remark]:
    given = _arguments(call)
    if given is None:
        return
    what = _VALUE if _called(call) == _VALUE else "addInstructions"
    unknown = [key for key in given if key not in _KEYS]
    if unknown:
        yield Remark("error", call.lineno, _unknown(what, unknown[0], _KEYS))
        return
    when = given.get("when")
    if isinstance(when, ast.Name) and when.id in scene.asynchronous:
        message = f"`when` is the async function {when.id}: it is never awaited, and nothing is admitted: write def"
        yield Remark("error", call.lineno, message)
    try:
        checked = check_instructions(
            plugin,
            {
                "id": scene.literal(given.get("id"), _COMPUTED),
                "text": scene.literal(given.get("text"), _COMPUTED),
                "when": scene.literal(when, _ask_nobody),
            },
        )
    except BuzzError as error:
        yield Remark("error", call.lineno, str(error))
        return
    if checked.id == _COMPUTED:
        return
    first = registered.setdefault(checked.id, call)
    if first is not call:
        message = f"instructions '{checked.id}' are registered in line {first.lineno} too: an id may stand once"
        yield Remark("error" if scene.both_run(first, call) else "warning", call.lineno, message)


@attrs.frozen
class _Scene:
    """What is known of the names in a module."""

    constants: dict[str, ast.expr]
    asynchronous: frozenset[str]
    parents: dict[ast.AST, ast.AST]
    agents: frozenset[str]
    contexts: frozenset[str]

    @classmethod
    def of(cls, module: ast.Module) -> _Scene:
        parents = {child: parent for parent in ast.walk(module) for child in ast.iter_child_nodes(parent)}
        constants: dict[str, ast.expr] = {}
        agents: set[str] = set()
        for each in ast.walk(module):
            match each:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    if each in module.body:
                        constants[name] = value
                    if isinstance(value, ast.Attribute) and value.attr == "agents":
                        agents.add(name)
        plain = {each.name for each in ast.walk(module) if isinstance(each, ast.FunctionDef)}
        awaited = {each.name for each in ast.walk(module) if isinstance(each, ast.AsyncFunctionDef)}
        contexts = {
            each.args.args[0].arg
            for each in ast.walk(module)
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == "apply" and each.args.args
        }
        named = frozenset({*contexts, "ctx", "_ctx", "context"})
        return cls(constants, frozenset(awaited - plain), parents, frozenset(agents), named)

    def is_agents(self, function: ast.expr) -> bool:
        """Whether `function` is an attribute of `ctx.agents`, or of a name for it."""
        match function:
            case ast.Attribute(value=ast.Attribute(attr="agents", value=ast.Name(id=name) | ast.Attribute(attr=name))):
                return name in self.contexts
            case ast.Attribute(value=ast.Name(id=name)):
                return name in self.agents
            case _:
                return False

    def literal(self, value: ast.expr | None, computed: object) -> object:
        """What `value` is, if it says so; `computed` if it does not; None where there is none."""
        if isinstance(value, ast.Name):
            value = self.constants.get(value.id, value)
        if value is None:
            return None
        if isinstance(value, ast.Constant):
            return value.value
        if isinstance(value, ast.List | ast.Dict | ast.Tuple | ast.Set):
            return ()
        return computed

    def both_run(self, first: ast.Call, second: ast.Call) -> bool:
        """Whether whoever runs `second` has run `first`, and kept no way to take it back."""
        branches_of_first, functions_of_first = self._around(first)
        branches_of_second, functions_of_second = self._around(second)
        return (
            functions_of_first == functions_of_second
            and branches_of_first <= branches_of_second
            and self._is_statement(first)
        )

    def _around(self, node: ast.AST) -> tuple[set[tuple[ast.AST, str]], list[ast.AST]]:
        branches: set[tuple[ast.AST, str]] = set()
        functions: list[ast.AST] = []
        while node in self.parents:
            child, node = node, self.parents[node]
            if isinstance(node, _FUNCTIONS):
                functions.append(node)
            elif isinstance(node, (*_BRANCHING, ast.match_case, ast.ExceptHandler)):
                branches.add((node, _field_of(node, child)))
        return branches, functions

    def _is_statement(self, call: ast.AST) -> bool:
        parent = self.parents.get(call)
        if isinstance(parent, ast.Call) and _called(parent) in _ADD_INSTRUCTIONS:
            parent = self.parents.get(parent)
        return isinstance(parent, ast.Expr)


def _field_of(node: ast.AST, child: ast.AST) -> str:
    """Which part of `node` its child is: the body, the other branch."""
    for name, value in ast.iter_fields(node):
        if value is child or (isinstance(value, list) and child in value):
            return name
    return ""


def _misfit(name: str, call: ast.Call) -> str | None:
    """Why the arguments of a call of `ctx.agents` do not fit, if they do not."""
    if not _is_plain(call):
        return None
    ported = _OF_AGENTS[name]
    signature = inspect.signature(getattr(Agents, ported)) if ported != "harness" else None
    if signature is None:
        return "ctx.agents.harness is no function: it has turnPrompt, turnNote, wakePrompt and steerPrompt"
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    by_name = [each.name for each in parameters if each.kind is not inspect.Parameter.POSITIONAL_ONLY]
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg not in by_name:
            return _unknown(ported, keyword.arg, by_name)
    try:
        signature.bind(None, *call.args, **{str(each.arg): each for each in call.keywords})
    except TypeError as error:
        if ported == "addInstructions":
            return "addInstructions takes its arguments by name: addInstructions(id=…, text=…, when=…)"
        return f"{ported}: {error}; it is called as {ported}({', '.join(each.name for each in parameters)})"
    return None


def _unknown(what: str, key: str, known: Sequence[str]) -> str:
    # `ident` is no slip of the pen for `id`, but one begins with the other.
    near = get_close_matches(key, known, n=1) or [
        each for each in known if key.startswith(each) or each.startswith(key)
    ]
    near = near or get_close_matches(key, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}"
    return f"{what} does not know the argument {key!r}; {hint}"


def _is_plain(call: ast.Call) -> bool:
    """Whether each argument stands there: no `*` and no `**`."""
    return all(each.arg is not None for each in call.keywords) and not any(
        isinstance(each, ast.Starred) for each in call.args
    )


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _arguments(call: ast.Call) -> dict[str, ast.expr] | None:
    """The arguments by their names, in any of the three forms; None for a call whose form is not known, such as one
    that is handed a value."""
    if not _is_plain(call):
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    match call.args:
        case []:
            return given
        case [ast.Dict(keys=keys, values=values)] if all(isinstance(key, ast.Constant) for key in keys):
            pairs = zip(keys, values, strict=True)
            return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
        case _ if _called(call) == _VALUE:
            return {
                **dict(zip((each.name for each in attrs.fields(AgentInstructions)), call.args, strict=False)),
                **given,
            }
        case _:
            return None


def _ask_nobody(_: object) -> bool:
    return False
