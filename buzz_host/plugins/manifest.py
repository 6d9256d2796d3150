"""`plugin.toml`: what a plugin says of itself, read into one value without running anything of it.

A wrong value is one line with the file, the key's path, what was expected and what was found; an unknown key is a
warning with a suggestion, so that a plugin for a newer host, or for another one, still loads (HKP-01).
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_origin

import attrs

from buzz_author.errors import BuzzError, InvalidName
from buzz_author.json_values import JsonObject
from buzz_author.names import check_name
from buzz_host.plugins.sources import SettingRule, fits, named_type
from buzz_host.settings.toml_words import KeyPath, broken, dotted, found, unknown_keys

if TYPE_CHECKING:
    from cattrs import Converter

API: Final = 1
MANIFEST_MAX_BYTES: Final = 256 * 1024


class ManifestError(BuzzError):
    """A `plugin.toml` that cannot be used; the message is one line with its path. `line` counts from 1; None where
    the fault is nowhere in particular."""

    def __init__(self, file: Path, message: str, line: int | None = None) -> None:
        # A message that names line and column itself is not told the line again.
        place = f"{file}:{line}" if line is not None and not message.startswith("line ") else file
        super().__init__(f"{place}: {message}")
        self.file = file
        self.message = message
        self.line = line


def _as_tuple(values: Iterable[Any]) -> tuple[Any, ...]:
    # Not `tuple` itself: attrs asks for the signature of a converter, and that of a builtin is slow to come by.
    return tuple(values)


@attrs.frozen
class Requirement:
    """One `[[requires]]`: a program that the plugin needs, and how to get it."""

    binary: str
    install_hint: str = ""


@attrs.frozen
class Translation:
    """One `[i18n.<tag>]`: the plugin's name and description in another language."""

    name: str = ""
    description: str = ""


@attrs.frozen
class Setting:
    """One `[config.<key>]`: a setting of the plugin, with the default that reaches `ctx.settings`."""

    type: Literal["string", "number", "boolean"] | None = None
    default: object = None
    description: str = ""


@attrs.frozen
class Manifest:
    """All that a `plugin.toml` can say. Keys that are left out have these defaults; `name` is required.

    `hook_timeout_secs` is in seconds. `hooks` and `grants` are kept as they stand.
    """

    name: str
    api: int = API
    version: str = "0"
    description: str = ""
    author: str = ""
    isolation: Literal["host", "process"] = "host"
    enabled_by_default: bool = True
    plugin_depends: Sequence[str] = attrs.field(default=(), converter=_as_tuple)
    needs: Sequence[str] = attrs.field(default=(), converter=_as_tuple)
    hook_timeout_secs: float | None = None
    hooks: Mapping[str, object] = attrs.field(factory=dict)
    env: Mapping[str, str] = attrs.field(factory=dict)
    config: Mapping[str, Setting] = attrs.field(factory=dict)
    integrity: Mapping[str, str] = attrs.field(factory=dict)
    requires: Sequence[Requirement] = attrs.field(default=(), converter=_as_tuple)
    grants: Mapping[str, object] = attrs.field(factory=dict)
    i18n: Mapping[str, Translation] = attrs.field(factory=dict)

    @property
    def defaults(self) -> JsonObject:
        """What `ctx.settings` holds where the person has set nothing."""
        found = {key: each.default for key, each in self.config.items() if each.default is not None}
        return cast("JsonObject", MappingProxyType(found))

    @property
    def setting_rules(self) -> Mapping[str, SettingRule]:
        """What the plugin says of its settings."""
        return MappingProxyType({key: SettingRule(each.type, each.description) for key, each in self.config.items()})


def parse_manifest(content: bytes, path: Path, folder: str) -> tuple[Manifest, tuple[str, ...]]:
    """The manifest that stands in `content`, and the warnings about it.

    `path` is the file, for messages; `folder` the name of the folder it is in, which the plugin must be called.
    Raises `ManifestError`.
    """
    text = _decoded(content, path)
    table = _table(text, path)
    from cattrs import BaseValidationError

    try:
        try:
            manifest = _converter().structure(table, Manifest)
        except BaseValidationError as error:
            raise _first_fault(error) from None
        _check(manifest, folder)
    except _Wrong as wrong:
        key = dotted(wrong.key)
        raise ManifestError(path, f"{key}: {wrong.message}", key_line(text, key)) from None
    return manifest, tuple(_unknown(str(path), table))


def key_line(text: str, key: str) -> int | None:
    """The line in which the key, dotted and quoted as in a message, stands in a TOML text; None where none is found."""
    header = ""
    numbers: dict[str, int] = {}
    for line, content in enumerate(text.split("\n"), start=1):
        if match := re.match(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]", content):
            header = match[2]
            if match[1] == "[[":
                number = numbers[header] = numbers.get(header, -1) + 1
                header = f"{header}[{number}]"
            if header == key:
                return line
        elif match := re.match(r"\s*([^=#\s][^=#]*?)\s*=", content):
            here = f"{header}.{match[1]}" if header else match[1]
            if key == here or key.startswith((f"{here}.", f"{here}[")):
                return line
    return None


def _decoded(content: bytes, path: Path) -> str:
    if len(content) > MANIFEST_MAX_BYTES:
        raise ManifestError(path, f"has {len(content)} bytes, the limit is {MANIFEST_MAX_BYTES}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        message = f"line {line}: is not UTF-8 (byte {error.start}): save it as UTF-8"
        raise ManifestError(path, message, line) from None


def _table(text: str, path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = broken(str(path), error, text).removeprefix(f"{path}: ")
        raise ManifestError(path, message, int(message.split()[1].strip(","))) from None
    except RecursionError:
        raise ManifestError(path, "its values are nested too deeply") from None


def _check(manifest: Manifest, folder: str) -> None:
    if manifest.api != API:
        raise _Wrong(("api",), f"expected {API}, found {manifest.api}: this plugin is made for another version of Buzz")
    try:
        check_name(manifest.name, "plugin")
    except InvalidName as error:
        raise _Wrong(("name",), str(error)) from None
    if manifest.name != folder:
        raise _Wrong(
            ("name",),
            f"expected {folder!r}, the name of its folder, found {manifest.name!r}: rename one of them",
        )
    if manifest.isolation == "process":
        raise _Wrong(
            ("isolation",),
            'this version of Buzz runs plugins with isolation = "host" only, and will not run one with less '
            "protection than it asks for",
        )
    if manifest.hook_timeout_secs is not None and not 0 < manifest.hook_timeout_secs < math.inf:
        raise _Wrong(
            ("hook_timeout_secs",), f"expected a positive number of seconds, found {manifest.hook_timeout_secs:g}"
        )
    for key, setting in manifest.config.items():
        if setting.default is not None and not fits(setting.default, setting.type):
            raise _Wrong(
                ("config", key, "default"), f"expected {named_type(setting.type)}, found {found(setting.default)}"
            )


def _unknown(file: str, table: Mapping[str, Any]) -> Iterator[str]:
    yield from unknown_keys(file, table, _keys(Manifest))
    for key, each in table.get("config", {}).items():
        yield from unknown_keys(file, each, _keys(Setting), ("config", key))
    for key, each in table.get("i18n", {}).items():
        yield from unknown_keys(file, each, _keys(Translation), ("i18n", key))
    for number, each in enumerate(table.get("requires", [])):
        yield from unknown_keys(file, each, _keys(Requirement), (f"requires[{number}]",))


def _keys(kind: type) -> list[str]:
    return sorted(attribute.name for attribute in attrs.fields(kind))


class _Mismatch(Exception):
    """A value of a wrong type, on its way out of cattrs."""

    def __init__(self, expected: str, value: object) -> None:
        super().__init__(f"expected {expected}, found {found(value)}")


class _Wrong(Exception):
    """A value of the manifest that cannot be, by its key path."""

    def __init__(self, key: KeyPath, message: str) -> None:
        super().__init__()
        self.key = key
        self.message = message


def _first_fault(error: BaseException) -> _Wrong:
    """The first of the faults that cattrs gathered."""
    from cattrs.errors import AttributeValidationNote, BaseValidationError, IterableValidationNote

    key: KeyPath = ()
    while isinstance(error, BaseValidationError):
        error = error.exceptions[0]
        for note in getattr(error, "__notes__", ()):
            if isinstance(note, AttributeValidationNote):
                key = (*key, note.name)
            elif isinstance(note, IterableValidationNote):
                number = isinstance(note.index, int)
                key = (*key[:-1], f"{key[-1]}[{note.index}]") if number else (*key, str(note.index))
    # A KeyError: a key that is required is not there.
    return _Wrong(key, "expected a text, found nothing" if isinstance(error, KeyError) else str(error))


_EXPECTED: Final[Mapping[type, str]] = {str: "a text", bool: "true or false", int: "a whole number"}


@cache
def _converter() -> Converter:
    """cattrs, made on first use (importing it costs more than reading a plugin), and strict: by itself it would take
    the number 5 for the text "5"."""
    from cattrs import Converter
    from cattrs.cols import is_mapping, is_sequence, list_structure_factory, mapping_structure_factory
    from cattrs.gen import make_dict_structure_fn

    def exactly(value: object, kind: type) -> object:
        if type(value) is not kind:
            raise _Mismatch(_EXPECTED[kind], value)
        return value

    def number(value: object, _: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _Mismatch("a number", value)
        return float(value)

    def one_of(value: object, kind: Any) -> object:
        if value not in kind.__args__:
            raise _Mismatch(" or ".join(f'"{each}"' for each in kind.__args__), value)
        return value

    def is_literal(kind: Any) -> bool:
        return get_origin(kind) is Literal

    def json(value: object, _: object) -> object:
        if isinstance(value, Mapping):
            return MappingProxyType({key: json(each, None) for key, each in value.items()})
        if isinstance(value, list):
            return tuple(json(each, None) for each in value)
        if not isinstance(value, str | bool | int | float):
            raise _Mismatch("a text, number, true, false, list or table", value)
        return value

    def only(kind: type, expected: str, factory: Any) -> Callable[[Any, Converter], Callable[[object, object], Any]]:
        def hook_for(type_: Any, converter: Converter) -> Callable[[object, object], Any]:
            structure = factory(type_, converter)

            def hook(value: object, _: object) -> Any:
                if not isinstance(value, kind):
                    raise _Mismatch(expected, value)
                return structure(value, type_)

            return hook

        return hook_for

    converter = Converter()
    for kind in _EXPECTED:
        converter.register_structure_hook(kind, exactly)
    converter.register_structure_hook(float, number)
    converter.register_structure_hook_func(lambda kind: kind is object, json)
    converter.register_structure_hook_func(is_literal, one_of)
    converter.register_structure_hook_factory(attrs.has, only(Mapping, "a table", make_dict_structure_fn))
    converter.register_structure_hook_factory(is_mapping, only(Mapping, "a table", mapping_structure_factory))
    converter.register_structure_hook_factory(is_sequence, only(list, "a list", list_structure_factory))
    return converter
