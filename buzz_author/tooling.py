"""Making tools: the decorator, results in every form that authors write, and the checks of a registration.

Harness-neutral (AGP-02): a tool made here, and one made with `claude_agent_sdk.tool`, which is known by its shape and
never imported, become the same value, and every harness can call it.
"""

from __future__ import annotations

import base64
import binascii
import functools
import inspect
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, overload

from buzz_author.errors import RegistrationError
from buzz_author.json_values import JsonObject
from buzz_author.text import exact, well_formed
from buzz_author.tool_schemas import SchemaFault, frozen_schema, plain, schema_of, schema_of_function
from buzz_author.tools import TOOL_TIMEOUT_S, Annotations, Image, Resource, Text, Tool, ToolCall, ToolResult

__all__ = ["check_tool", "from_sdk", "is_async", "mcp_error", "mcp_result", "plain", "tool", "tool_result"]

# A model is sent each description with every request; what is longer than this is no description.
DESCRIPTION_MAX_BYTES: Final = 16 * 1024
TOOL_TIMEOUT_MAX_S: Final = 24 * 3600.0
_NAME: Final = r"[A-Za-z0-9_.-]{1,128}"
_HINTS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}

Handler: TypeAlias = Callable[..., Awaitable[Any]]


def mcp_result(data: object, is_error: bool = False) -> dict[str, Any]:
    """What a tool gives back, as the dict that `claude_agent_sdk` knows: a string as it is, the rest as JSON (AGP-03).

    What JSON has no word for, such as a date, is written as `str` has it. `is_error` is there only where it is true.
    """
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=2, default=str)
    made: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    return {**made, "is_error": True} if is_error else made


def mcp_error(message: str) -> dict[str, Any]:
    """A failure that the model should read and correct (AGP-03)."""
    return mcp_result(message, is_error=True)


@overload
def tool(name: Handler, /) -> Tool: ...
@overload
def tool(
    name: str,
    /,
    description: str,
    input_schema: object = ...,
    *,
    annotations: Annotations | None = ...,
    timeout_s: float = ...,
) -> Callable[[Handler], Tool]: ...
def tool(
    name: str | Handler,
    /,
    description: str = "",
    input_schema: object = None,
    *,
    annotations: Annotations | None = None,
    timeout_s: float = TOOL_TIMEOUT_S,
) -> Tool | Callable[[Handler], Tool]:
    """Make a tool of an async function, for `ctx.agents.addTool`.

        @tool("remember", "Remember a fact", {"fact": str}, annotations=Annotations(read_only=False))
        async def remember(arguments, call):
            return mcp_result({"kept": arguments["fact"]})

    The function takes the arguments, and the `ToolCall` where it has a second parameter. It gives back a `mcp_result`
    or `mcp_error`, a string, or a `ToolResult`. `input_schema` is a JSON schema, names with their types
    (`{"fact": str}`), or a `TypedDict`; `timeout_s` bounds one call.

    `@tool` alone, over a typed function, takes name, description and schema from the function, and passes the arguments
    by name; a parameter of type `ToolCall` gets the call. Raises `RegistrationError` for what is no schema.
    """
    if not isinstance(name, str):
        return _of_function(name)

    def decorate(handler: Handler) -> Tool:
        try:
            schema = schema_of({} if input_schema is None else input_schema)
        except SchemaFault as fault:
            raise RegistrationError(f"tool '{name}': {fault}") from None
        return Tool(name, description, schema, _serving(handler), annotations or Annotations(), timeout_s)

    return decorate


def tool_result(value: object) -> ToolResult:
    """The `ToolResult` for whatever form a tool gave back; raises `TypeError` or `ValueError`, in words, for others.

    Its texts are well-formed: no wire takes half of a surrogate pair.
    """
    if isinstance(value, ToolResult):
        return _checked_result(value)
    if isinstance(value, str):
        return ToolResult((_piece(Text(value)),))
    if isinstance(value, Mapping) and "content" in value:
        content = value["content"]
        if not isinstance(content, list | tuple):
            raise TypeError(f"the content of a result must be a list, not {type(content).__name__}")
        is_error = value.get("is_error", value.get("isError", False))
        return ToolResult(tuple(_block(each) for each in content), bool(is_error))
    raise TypeError(f"a tool gives back mcp_result(…), a str, or a ToolResult, not {type(value).__name__}")


def from_sdk(made: object) -> Tool:
    """The tool for one that was made with `claude_agent_sdk.tool`, known by its shape. Raises `RegistrationError`."""
    name = getattr(made, "name", None)
    try:
        schema = schema_of(getattr(made, "input_schema", None) or {})
    except SchemaFault as fault:
        raise RegistrationError(f"tool '{name}': {fault}") from None
    handler = getattr(made, "handler", None)
    hints = getattr(made, "annotations", None)
    # The SDK's releases spell these either as MCP does on the wire, or in PEP 8.
    said = {ours: _hint(hints, ours, theirs) for ours, theirs in _HINTS.items()}
    return Tool(
        name,  # type: ignore[arg-type]  # checked, with all the rest, when it is registered
        getattr(made, "description", None),  # type: ignore[arg-type]
        schema,
        _serving(handler) if callable(handler) else handler,  # type: ignore[arg-type]
        Annotations(**said),
    )


def check_tool(plugin: str, given: Any) -> Tool:
    """The checked tool that a registration keeps: a copy whose schema nobody can change.

    Raises `RegistrationError` with one line that names the plugin, the tool, and what is wrong.
    """
    if not isinstance(given, Tool):
        if not all(hasattr(given, each) for each in ("name", "description", "input_schema", "handler")):
            hint = "; decorate it with @tool" if callable(given) else ""
            raise RegistrationError(
                f"plugin '{plugin}': addTool takes a tool made with buzz_author.tool or claude_agent_sdk.tool, "
                f"not {type(given).__name__}{hint}"
            )
        try:
            given = from_sdk(given)
        except RegistrationError as error:
            raise RegistrationError(f"plugin '{plugin}': {error}") from None
    name = given.name
    if not isinstance(name, str) or not re.fullmatch(_NAME, name, re.ASCII):
        raise RegistrationError(
            f"plugin '{plugin}': tool name {ascii(name)[:80]} is not allowed: use 1 to 128 of A-Z, a-z, 0-9, '_', '.' "
            "and '-'"
        )
    where = f"plugin '{plugin}': tool '{name}'"
    description = given.description
    if not isinstance(description, str) or not description.strip():
        raise RegistrationError(f"{where}: it needs a description: the model decides by it when to call the tool")
    description = well_formed(exact(description))
    if (size := len(description.encode("utf-8"))) > DESCRIPTION_MAX_BYTES:
        raise RegistrationError(f"{where}: its description has {size} bytes, the limit is {DESCRIPTION_MAX_BYTES}")
    try:
        schema = frozen_schema(given.input_schema)
    except SchemaFault as fault:
        raise RegistrationError(f"{where}: {fault}") from None
    if not is_async(given.handler):
        raise RegistrationError(f"{where}: its function must be async: async def {name.replace('-', '_')}(arguments)")
    if not isinstance(given.annotations, Annotations):
        raise RegistrationError(
            f"{where}: its annotations must be Annotations(read_only=…), not {type(given.annotations).__name__}"
        )
    for hint in _HINTS:
        if getattr(given.annotations, hint) not in (True, False, None):
            raise RegistrationError(f"{where}: its annotation {hint} must be True, False or None")
    seconds = given.timeout_s
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not _bounded(seconds):
        raise RegistrationError(f"{where}: timeout_s must be a number of seconds between 0 and {TOOL_TIMEOUT_MAX_S:g}")
    return Tool(exact(name), description, schema, given.handler, given.annotations, float(seconds))


def is_async(function: object) -> bool:
    """Whether calling `function` gives something to await: an `async def`, also behind `partial` or as `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _serving(handler: Handler) -> Callable[[JsonObject, ToolCall], Awaitable[ToolResult]]:
    """A handler that takes the arguments alone, or the arguments and the call, as one that takes both."""
    if not is_async(handler):
        return handler  # refused with the plugin's name when it is registered
    takes_call = _takes_call(handler)

    @functools.wraps(handler, updated=())
    async def serve(arguments: JsonObject, call: ToolCall) -> ToolResult:
        given = handler(arguments, call) if takes_call else handler(arguments)
        return tool_result(await given)

    return serve


def _takes_call(handler: Handler) -> bool:
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = [each for each in positional if each.default is each.empty]
    return len(needed) > 1 or any(each.name == "call" for each in positional[1:])


def _of_function(function: Handler) -> Tool:
    if not callable(function):
        raise RegistrationError(f"tool: expected a name or an async function, not {type(function).__name__}")
    name = getattr(function, "__name__", type(function).__name__)
    try:
        hints = inspect.get_annotations(function, eval_str=True)
    except Exception:
        hints = {}  # what cannot be read is told by `schema_of_function`
    of_call = [each for each, of in hints.items() if of is ToolCall]
    try:
        schema = schema_of_function(function, {*of_call, "return"})
    except (SchemaFault, TypeError, ValueError) as fault:
        raise RegistrationError(f"tool '{name}': {fault}") from None
    if not is_async(function):
        return Tool(name, inspect.getdoc(function) or "", schema, function)

    @functools.wraps(function, updated=())
    async def serve(arguments: JsonObject, call: ToolCall) -> ToolResult:
        return tool_result(await function(**arguments, **dict.fromkeys(of_call, call)))

    return Tool(name, inspect.getdoc(function) or "", schema, serve)


def _hint(hints: object, ours: str, theirs: str) -> bool | None:
    given: Any = hints.get(theirs) if isinstance(hints, Mapping) else getattr(hints, theirs, None)
    said: bool | None = given if given is not None else getattr(hints, f"{ours}_hint", None)
    return said


def _bounded(seconds: float) -> bool:
    return math.isfinite(seconds) and 0 < seconds <= TOOL_TIMEOUT_MAX_S


def _checked_result(result: ToolResult) -> ToolResult:
    if not isinstance(result.content, list | tuple):
        raise TypeError(f"the content of a result must be a tuple, not {type(result.content).__name__}")
    return ToolResult(tuple(_piece(each) for each in result.content), bool(result.is_error))


def _piece(piece: object) -> Text | Image | Resource:
    match piece:
        case Text(text=str()):
            return Text(well_formed(piece.text))
        case Resource(uri=str(), text=str()):
            return Resource(well_formed(piece.uri), well_formed(piece.text))
        case Image(media_type=str(), content=bytes()):
            return piece
        case Text() | Resource():
            raise TypeError(f"the text of a {type(piece).__name__} must be a str")
        case Image():
            raise TypeError("an Image is made of bytes and a media type")
        case _:
            return _block(piece)


def _block(block: object) -> Text | Image | Resource:
    """One block of MCP content, in the dict form that `claude_agent_sdk` uses."""
    if isinstance(block, Text | Image | Resource):
        return _piece(block)
    if not isinstance(block, Mapping):
        raise TypeError(f"a piece of content must be Text, Image, Resource or a dict, not {type(block).__name__}")
    kind = block.get("type")
    match kind:
        case "text":
            return _piece(Text(_string(block, "text", kind)))
        case "image":
            media_type = block.get("mimeType", block.get("mime_type"))
            if not isinstance(media_type, str):
                raise TypeError("an image needs its mimeType")
            try:
                return Image(base64.b64decode(_string(block, "data", kind), validate=True), media_type)
            except (binascii.Error, ValueError):
                raise ValueError("the data of an image must be base64") from None
        case "resource":
            inner = block.get("resource")
            if not isinstance(inner, Mapping):
                raise TypeError("a resource needs a resource with uri and text")
            return _piece(Resource(str(inner.get("uri", "")), _string(inner, "text", kind)))
        case "resource_link":
            uri = str(block.get("uri", ""))
            named = "\n".join(str(block[key]) for key in ("name", "description") if block.get(key))
            return _piece(Resource(uri, named))
        case _:
            raise ValueError(f"a piece of content has the type {kind!r}; it must be text, image or resource")


def _string(block: Mapping[str, Any], key: str, kind: object) -> str:
    found = block.get(key)
    if not isinstance(found, str):
        raise TypeError(f"a piece of type {kind} needs {key}, a str, not {type(found).__name__}")
    return found
