"""Values on the socket: attrs classes as JSON and back, strict about types and unknown keys.

What a client sends comes from outside, so each mismatch is one line, `path: expected, found`. Events and previews have
the JSON that `--json` prints; every other value is its class, field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args, get_origin

import attrs

from buzz_author.errors import BuzzError
from buzz_host.sessions.turn_text import Event, Preview

if TYPE_CHECKING:
    from cattrs import Converter

PROTOCOL_VERSION: Final = 1
TEXT_SHOWN_CHARACTERS: Final = 60
_EXPECTED: Final[Mapping[type, str]] = {str: "a text", bool: "true or false", int: "a whole number"}
# What annotations of values name, for classes whose module imports less than their annotations unfold to.
_EVENT_KINDS: Final[frozenset[object]] = frozenset({Event, Preview})
_NAMES: Final[Mapping[str, object]] = {
    "JsonObject": Mapping[str, object],
    "JsonValue": object,
    "Mapping": Mapping,
    "Sequence": Sequence,
}


class Mismatch(BuzzError):
    """A value that is not what was expected; the message is `path: expected …, found …`."""


def unstructured(value: object) -> Any:
    """`value` as JSON values, by what it is: no annotation is asked, so nothing is imported for it."""
    if isinstance(value, Event):
        return value.as_json()
    kind: Any = type(value)
    if attrs.has(kind):
        return {each.name: unstructured(getattr(value, each.name)) for each in attrs.fields(kind)}
    if isinstance(value, Mapping):
        return {key: unstructured(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(unstructured(each) for each in value)
    if isinstance(value, list | tuple):
        return [unstructured(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Path) else value


def structured(value: object, kind: object, path: str) -> Any:
    """The value of the class, or other type, `kind` that `value` stands for; `path` names it in errors.

    Raises `Mismatch`.
    """
    from cattrs import BaseValidationError

    try:
        return _converter().structure(value, cast("Any", kind))
    except BaseValidationError as error:
        raise _first_mismatch(error, path) from None
    except _Wrong as error:
        raise Mismatch(f"{path}: {error}") from None


def found(value: object) -> str:
    """What a JSON value is, for `expected …, found …`."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            shown = ascii(value)
            return f"the text {shown if len(shown) <= TEXT_SHOWN_CHARACTERS else shown[:TEXT_SHOWN_CHARACTERS] + '…'}"
        case int() | float():
            return f"the number {value}"
        case Mapping():
            return "an object"
        case _:
            return "a list"


def unknown_key(path: str, key: str, known: Sequence[str]) -> Mismatch:
    """The error for a key that nobody asked for."""
    near = get_close_matches(key, known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    expected = f"one of {', '.join(known)}" if known else "no key"
    return Mismatch(f"{path}: expected {expected}, found the key {found(key).removeprefix('the text ')}{hint}")


class _Wrong(Exception):
    """A value of a wrong type, on its way out of cattrs."""

    def __init__(self, expected: str, value: object) -> None:
        super().__init__(f"expected {expected}, found {found(value)}")


def _first_mismatch(error: BaseException, path: str) -> Mismatch:
    """The first of the faults that cattrs gathered, with the path to it."""
    from cattrs.errors import (
        AttributeValidationNote,
        BaseValidationError,
        ForbiddenExtraKeysError,
        IterableValidationNote,
    )

    while isinstance(error, BaseValidationError):
        error = error.exceptions[0]
        for note in getattr(error, "__notes__", ()):
            if isinstance(note, AttributeValidationNote):
                path = f"{path}.{note.name}"
            elif isinstance(note, IterableValidationNote):
                path = f"{path}[{note.index}]" if isinstance(note.index, int) else f"{path}.{note.index}"
    if isinstance(error, ForbiddenExtraKeysError):
        kind: Any = error.cl
        known = [each.name for each in attrs.fields(kind) if each.init]
        return unknown_key(path, min(error.extra_fields), known)
    if isinstance(error, KeyError):
        return Mismatch(f"{path}: expected a value, found nothing")
    return Mismatch(f"{path}: {error}")


@cache
def _converter() -> Converter:
    """cattrs, made on first use, and strict: by itself it would take the number 5 for the text "5"."""
    from cattrs import Converter
    from cattrs.cols import is_mapping, is_sequence, list_structure_factory, mapping_structure_factory
    from cattrs.gen import make_dict_structure_fn

    converter = Converter(forbid_extra_keys=True)

    def exactly(value: object, kind: type) -> object:
        if type(value) is not kind:
            raise _Wrong(_EXPECTED[kind], value)
        return value

    def is_literal(kind: Any) -> bool:
        return get_origin(kind) is Literal

    def one_of(value: object, kind: Any) -> object:
        # `1 == True`, and neither is a text.
        if not any(type(value) is type(each) and value == each for each in get_args(kind)):
            raise _Wrong(" or ".join(f'"{each}"' for each in get_args(kind)), value)
        return value

    def moment(value: object, _: object) -> datetime:
        try:
            return datetime.fromisoformat(cast("str", exactly(value, str)))
        except ValueError:
            raise _Wrong("a time in ISO 8601", value) from None

    def only(kind: type, expected: str, factory: Callable[..., Any]) -> Callable[..., Any]:
        """The hooks that `factory` makes, for values of `kind` alone."""

        def hook_for(type_: Any, converter: Converter) -> Callable[[object, object], Any]:
            structure = factory(type_, converter)

            def hook(value: object, _: object) -> Any:
                if not isinstance(value, kind):
                    raise _Wrong(expected, value)
                return structure(value, type_)

            return hook

        return hook_for

    def is_tuple(kind: Any) -> bool:
        return get_origin(kind) is tuple and get_args(kind)[1:] == (...,)

    def tuple_factory(type_: Any, converter: Converter) -> Callable[[object, object], Any]:
        a_list: Any = GenericAlias(list, get_args(type_)[0])
        as_list = list_structure_factory(a_list, converter)
        return lambda value, _: tuple(as_list(value, list))

    def fields_of(type_: type[attrs.AttrsInstance], converter: Converter) -> Any:
        return make_dict_structure_fn(attrs.resolve_types(type_, localns=dict(_NAMES)), converter)

    def event(value: object, kind: type[Event]) -> Event:
        return _event(value, kind, converter)

    for kind in _EXPECTED:
        converter.register_structure_hook(kind, exactly)
    converter.register_structure_hook_func(is_literal, one_of)
    converter.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)
    converter.register_structure_hook(datetime, moment)
    converter.register_structure_hook(Path, lambda value, _: Path(cast("str", exactly(value, str))))
    converter.register_structure_hook_factory(is_sequence, only(list, "a list", list_structure_factory))
    converter.register_structure_hook_factory(is_tuple, only(list, "a list", tuple_factory))
    converter.register_structure_hook_factory(is_mapping, only(dict, "an object", mapping_structure_factory))
    converter.register_structure_hook_factory(attrs.has, only(dict, "an object", fields_of))
    converter.register_structure_hook_func(lambda kind: kind in _EVENT_KINDS, event)
    return converter


def _event(value: object, kind: type[Event], converter: Converter) -> Event:
    """The event, or preview, that `value` is in the JSON of INTERFACES."""
    if not isinstance(value, dict):
        raise _Wrong("an object", value)
    fields = {key: each for key, each in value.items() if key not in ("v", "event")}
    named = Preview if kind is Preview else _events().get(value.get("event", ""))
    if named is None or value.get("event") != named.event:
        raise _Wrong(f"an event of kind {kind.__name__}", value.get("event"))
    structure: Any = _fields_of(named.event, named, converter)
    return cast("Event", structure(fields, named))


def _fields_of(name: str, kind: type[Event], converter: Converter) -> object:
    from cattrs.gen import make_dict_structure_fn

    if name not in _field_hooks:
        _field_hooks[name] = make_dict_structure_fn(attrs.resolve_types(kind, localns=dict(_NAMES)), converter)
    return _field_hooks[name]


_field_hooks: Final[dict[str, object]] = {}


@cache
def _events() -> Mapping[str, type[Event]]:
    from buzz_host.sessions import events

    return {
        each.event: each
        for each in vars(events).values()
        if isinstance(each, type) and issubclass(each, Event) and hasattr(each, "event")
    }
