"""Reading one agent file: Markdown with YAML frontmatter becomes an `AgentSpec`, or one clear error (SPC-01, SPC-02).

The rules of each key stand in one table, so that a new key is one line and its message cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from buzz_author.errors import InvalidName
from buzz_author.names import check_id, check_name, folded
from buzz_host.agents.frontmatter import Document, Items, Node, Scalar, Table, describe, read_document
from buzz_host.agents.spec import (
    AgentFileError,
    AgentSpec,
    FileNote,
    OnMessage,
    Scope,
    Severity,
    WhileBusy,
)
from buzz_host.settings.buzz_toml import Permissions

# A prompt of this size is already more than any model reads with care.
AGENT_FILE_MAX_BYTES: Final = 1024 * 1024
BLOCK: Final = "buzz"
# The block's name in the system that the format comes from; read, never written.
ELDER_BLOCK: Final = "lightfall"

_TRUE: Final = frozenset({"true", "yes", "on"})
_FALSE: Final = frozenset({"false", "no", "off"})
T = TypeVar("T")


class _Wrong(Exception):
    """A value of a key that will not do; the caller knows the key."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


def parse_agent_file(path: Path, scope: Scope) -> AgentSpec:
    """The agent that the file at `path` describes, as one of `scope`.

    Raises `AgentFileError` for a file that cannot be read or used: one line with path, line and what was expected.
    What nobody understands, such as an unknown key, is in the spec's `warnings`.
    """
    document = read_document(path, _text(path))
    warnings: list[FileNote] = []
    top, block = _split(path, document)
    values = _values(path, "", top, _TOP, warnings) | _values(path, f"{BLOCK}.", block, _BLOCK, warnings)
    for required in ("name", "description"):
        if values.get(required) is None:
            line = top[required][0] if required in top else 1
            raise AgentFileError(path, line, f"no '{required}', expected '{required}: …' in the frontmatter")
    prompt = document.body.strip()
    if not prompt:
        raise AgentFileError(path, document.body_line, "no prompt, expected text below the frontmatter")
    if folded(values["name"]) != folded(path.stem):
        line = top["name"][0]
        what = f"the agent is called '{values['name']}' after this key, not '{path.stem}' after its file: rename one"
        warnings.append(FileNote(path, line, what))
    set_values = {key: value for key, value in values.items() if value is not None}
    return AgentSpec(prompt=prompt, scope=scope, source_path=path, warnings=tuple(warnings), **set_values)


def _text(path: Path) -> str:
    """The file's text without a byte order mark, its line ends all `\\n`."""
    if not path.is_file():  # a pipe would be waited for, a device never ends
        raise AgentFileError(path, 1, "not there or no regular file, expected a Markdown file")
    try:
        with path.open("rb") as file:
            content = file.read(AGENT_FILE_MAX_BYTES + 1)
    except OSError as error:
        raise AgentFileError(path, 1, f"cannot be read ({error.strerror}), expected a file") from error
    if len(content) > AGENT_FILE_MAX_BYTES:
        raise AgentFileError(path, 1, f"too large, expected at most {AGENT_FILE_MAX_BYTES} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise AgentFileError(path, line, f"the byte 0x{content[error.start]:02x}, expected text in UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _split(path: Path, document: Document) -> tuple[dict[str, tuple[int, Node]], dict[str, tuple[int, Node]]]:
    """The entries at the top, and those of the block."""
    top = dict(document.frontmatter.entries)
    found = [(name, *top.pop(name)) for name in (BLOCK, ELDER_BLOCK) if name in top]
    if len(found) == 2:
        raise AgentFileError(
            path, found[1][1], f"both '{BLOCK}' (line {found[0][1]}) and '{ELDER_BLOCK}', expected one of them"
        )
    if not found:
        return top, {}
    name, _, node = found[0]
    if isinstance(node, Scalar) and node.is_blank:
        return top, {}
    if not isinstance(node, Table):
        raise AgentFileError(path, node.line, f"'{name}' is {describe(node)}, expected a mapping")
    return top, node.entries


Rule = Callable[[Node], Any]  # the one place where a value has no type yet: AgentSpec gives it one


def _values(
    path: Path,
    prefix: str,
    entries: Mapping[str, tuple[int, Node]],
    rules: Mapping[str, Rule],
    warnings: list[FileNote],
) -> dict[str, Any]:
    """What `entries` say by `rules`: key -> value, None for one left blank."""
    values: dict[str, Any] = {}
    for key, (line, node) in entries.items():
        rule = rules.get(key)
        if rule is None:
            warnings.append(FileNote(path, line, _unknown(key, prefix)))
        elif isinstance(node, Scalar) and node.is_blank:
            values[key] = None
        else:
            try:
                values[key] = rule(node)
            except _Wrong as wrong:
                raise AgentFileError(path, wrong.line, f"'{prefix}{key}' is {wrong}") from wrong
            except InvalidName as wrong:
                raise AgentFileError(path, node.line, f"{wrong}, expected an allowed name") from wrong
    return values


def _unknown(key: str, prefix: str) -> str:
    shown = f"'{prefix}{key}'"
    elsewhere, where = (_BLOCK, f"inside '{BLOCK}:'") if not prefix else (_TOP, "at the top of the frontmatter")
    if key in elsewhere:
        return f"unknown key {shown} is ignored; it belongs {where}"
    own = [*_TOP, BLOCK] if not prefix else [*_BLOCK]
    near = get_close_matches(key, own, n=1) or get_close_matches(key, elsewhere, n=1)
    return f"unknown key {shown} is ignored" + (f"; did you mean '{near[0]}'?" if near else "")


def _string(node: Node) -> str:
    if not isinstance(node, Scalar):
        raise _Wrong(node.line, f"{describe(node)}, expected text")
    text = node.text.strip()
    if not text:
        raise _Wrong(node.line, "empty, expected text")
    return text


def _word(node: Node) -> str:
    """Text that becomes an argument or an identifier elsewhere, so nothing that does not show may be in it."""
    text = _string(node)
    if not text.isprintable():
        raise _Wrong(node.line, f"{text!a}, expected one line of printable text")
    return text


def _truth(node: Node) -> bool:
    word = node.text.strip().lower() if isinstance(node, Scalar) else ""
    if word not in _TRUE | _FALSE:
        raise _Wrong(node.line, f"{describe(node)}, expected true or false")
    return word in _TRUE


def _one_of(allowed: tuple[str, ...]) -> Rule:
    def rule(node: Node) -> str:
        text = node.text.strip() if isinstance(node, Scalar) else None
        if text not in allowed:
            raise _Wrong(node.line, f"{describe(node)}, expected {' or '.join(allowed)}")
        return text

    return rule


def _strings(node: Node) -> tuple[str, ...]:
    if not isinstance(node, Items):
        raise _Wrong(node.line, f"{describe(node)}, expected a list of names, such as [one, two]")
    names: list[str] = []
    for item in node.items:
        if (name := _word(item)) not in names:
            names.append(name)
    return tuple(names)


def _plugin_names(node: Node) -> tuple[str, ...]:
    return tuple(check_name(name, "plugin") for name in _strings(node))


def _folder(node: Node) -> Path:
    text = _word(node)
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        path = Path(text)
    if not path.is_absolute():
        raise _Wrong(node.line, f"{text!r}, expected an absolute path or one that begins with ~/")
    return path


_TOP: Final[dict[str, Rule]] = {
    "name": lambda node: check_name(_string(node), "agent"),
    "description": _string,
    "model": _word,
    "effort": _word,
    "tools": _strings,
    "skills": _strings,
    "memory": _truth,
}
_BLOCK: Final[dict[str, Rule]] = {
    "subagent": _truth,
    "openable": _truth,
    "on_message": _one_of(get_args(OnMessage)),
    "forward_min_severity": _one_of(get_args(Severity)),
    "harness": lambda node: check_id(_string(node), "harness"),
    "cwd": _folder,
    "permissions": _one_of(get_args(Permissions)),
    "allowed_plugins": _plugin_names,
    "while_busy": _one_of(get_args(WhileBusy)),
    "attention": _truth,
}
