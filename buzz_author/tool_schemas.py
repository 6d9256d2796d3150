"""From what an author writes to the JSON schema of a tool's arguments (AGP-02).

An author says what a tool takes in the shortest form that does: names with their types, a `TypedDict`, the signature of
a typed function, or a JSON schema. What all of them become is one frozen JSON schema of an object.
"""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from buzz_author.json_values import JsonObject, JsonValue

SCHEMA_MAX_BYTES: Final = 64 * 1024
_PLAIN: Final[Mapping[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    tuple: "array",
}
_MARKERS: Final = ("NotRequired", "Required", "ReadOnly")


class SchemaFault(ValueError):
    """Why something is no schema of arguments; whoever knows the tool and the plugin names them."""


def schema_of(form: object) -> JsonObject:
    """The JSON schema for what an author gave: a schema, `{"name": type}`, or a `TypedDict`.

    A name is required, unless its type allows None or a `TypedDict` says that it may be left out. `Annotated[type,
    "words"]` describes one to the model. Raises `SchemaFault`.
    """
    if isinstance(form, type) and typing.is_typeddict(form):
        return _of_typed_dict(form)
    if not isinstance(form, Mapping):
        raise SchemaFault(
            f"its schema must be a JSON schema, names with their types, or a TypedDict, not {_named(form)}"
        )
    if not form or _is_schema(form):
        return {"type": "object", "properties": {}} if not form else dict(form)
    properties: dict[str, JsonValue] = {}
    required: list[JsonValue] = []
    for name, of in form.items():
        if not isinstance(name, str):
            raise SchemaFault(f"the name of an argument must be a str, not {_named(name)}")
        properties[name] = _of_type(of, f"argument '{name}'")
        if not _takes_none(of):
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def schema_of_function(function: Callable[..., object], left_out: typing.Collection[str] = ()) -> JsonObject:
    """The schema for the parameters of a typed function, save those `left_out`. Raises `SchemaFault`."""
    hints = _hints(function, "a parameter")
    properties: dict[str, JsonValue] = {}
    required: list[JsonValue] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in left_out:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise SchemaFault(f"parameter '{name}' cannot be passed by name")
        if name not in hints:
            raise SchemaFault(f"parameter '{name}' needs a type, such as {name}: str")
        properties[name] = _of_type(hints[name], f"parameter '{name}'")
        if parameter.default is parameter.empty:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def frozen_schema(schema: object) -> JsonObject:
    """A deep, read-only copy of the schema of an object. Raises `SchemaFault` for what is none, or is too large."""
    if not isinstance(schema, Mapping):
        raise SchemaFault(f"its schema must be a JSON schema of an object, not {_named(schema)}")
    try:
        text = json.dumps(_thawed(schema), ensure_ascii=False, allow_nan=False)
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise SchemaFault("its schema holds half of a surrogate pair, which is no text") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaFault(f"its schema is not JSON: {error}") from None
    if size > SCHEMA_MAX_BYTES:
        raise SchemaFault(f"its schema has {size} bytes of JSON, the limit is {SCHEMA_MAX_BYTES}")
    copy = json.loads(text)
    if copy.get("type") != "object":
        raise SchemaFault(f'its schema must have "type": "object", it has {json.dumps(copy.get("type"))}')
    if not isinstance(copy.get("properties", {}), dict):
        raise SchemaFault("the properties of its schema must be an object")
    frozen: JsonObject = _frozen(copy)
    return frozen


def plain(value: JsonValue) -> Any:
    """A deep copy of a frozen JSON value, made of the dicts and lists that `json.dumps` and other libraries take."""
    return _thawed(value)


def _is_schema(form: Mapping[Any, Any]) -> bool:
    """Whether a mapping is a JSON schema already, and not names with their types."""
    return isinstance(form.get("type"), str) or any(isinstance(key, str) and key.startswith("$") for key in form)


def _of_typed_dict(form: type) -> JsonObject:
    hints = _hints(form, "a key")
    required: set[str] = set(getattr(form, "__required_keys__", hints))
    for name, of in hints.items():  # under postponed annotations, the class itself cannot see these
        match getattr(typing.get_origin(of), "_name", None):
            case "NotRequired":
                required.discard(name)
            case "Required":
                required.add(name)
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {name: _of_type(of, f"argument '{name}'") for name, of in hints.items()},
        "required": [name for name in hints if name in required],
    }
    if form.__doc__ and (doc := inspect.cleandoc(form.__doc__)):
        schema["description"] = doc
    return schema


def _of_type(of: object, where: str) -> dict[str, JsonValue]:
    if isinstance(of, Mapping):  # a piece of JSON schema among names with types
        return dict(of)
    if of is Any or of is object:
        return {}
    if of is type(None):
        return {"type": "null"}
    try:
        plain = _PLAIN.get(of)
    except TypeError:
        plain = None
    if plain is not None:
        return {"type": plain}
    if isinstance(of, type) and typing.is_typeddict(of):
        return dict(_of_typed_dict(of))
    origin, arguments = typing.get_origin(of), typing.get_args(of)
    if getattr(origin, "_name", None) in _MARKERS:
        return _of_type(arguments[0], where)
    if origin is typing.Annotated:
        described = _of_type(arguments[0], where)
        words = next((each for each in arguments[1:] if isinstance(each, str)), None)
        return described if words is None else {**described, "description": words}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is typing.Union or origin is types.UnionType:
        return {"anyOf": [_of_type(each, where) for each in arguments]}
    if origin in (list, set, frozenset) or (origin is tuple and arguments[1:] == (...,)):
        return {"type": "array", "items": _of_type(arguments[0], where)}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _of_type(arguments[1], where)}
    raise SchemaFault(
        f"{where}: {_named(of)} cannot be said in JSON: use str, int, float, bool, list, dict, Optional or Literal, "
        "or give a JSON schema"
    )


def _takes_none(of: object) -> bool:
    if typing.get_origin(of) is typing.Annotated:
        return _takes_none(typing.get_args(of)[0])
    return typing.get_origin(of) in (typing.Union, types.UnionType) and type(None) in typing.get_args(of)


def _hints(of: Any, what: str) -> dict[str, object]:
    try:
        return typing.get_type_hints(of, include_extras=True)
    except Exception as error:
        raise SchemaFault(f"the type of {what} cannot be read: {error}") from None


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"a key must be a str, not {_named(key)}")
        return {key: _thawed(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_thawed(each) for each in value]
    return value


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType({key: _frozen(each) for key, each in value.items()})
    if isinstance(value, list):
        return tuple(_frozen(each) for each in value)
    return value


def _named(value: object) -> str:
    return getattr(value, "__name__", None) or str(type(value).__name__)
