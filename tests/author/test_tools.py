"""Tools as authors write them: names on the wire, schemas, results, and what a registration refuses."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
from datetime import date
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author import (
    Annotations,
    Image,
    RegistrationError,
    Resource,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    mcp_error,
    mcp_result,
    tool,
)
from buzz_author.tooling import check_tool, plain, tool_result
from buzz_author.tools import WIRE_NAME_MAX_CHARS, split_wire_name, wire_name

CALL = ToolCall("main", "s-1", lambda part, message: None, lambda: False)
PLUGINS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,128}", fullmatch=True)
# Many of few letters: what is cut, and what would be ambiguous, meets far more often so.
NARROW = st.tuples(st.text("a_-.", min_size=1, max_size=90), st.text("a_-.", min_size=1, max_size=90))


def called(made: Tool, **arguments: Any) -> ToolResult:
    async def call() -> ToolResult:
        return tool_result(await made.handler(arguments, CALL))

    return asyncio.run(call())


async def handler(arguments: Any, call: ToolCall) -> ToolResult:
    return ToolResult((Text("done"),))


def refused(given: object) -> str:
    with pytest.raises(RegistrationError) as raised:
        check_tool("notes", given)
    line = str(raised.value)
    assert "\n" not in line
    assert line.startswith("plugin 'notes': ")
    return line.removeprefix("plugin 'notes': ")


# Names.


@pytest.mark.req("ASM-05")
@given(st.lists(st.tuples(PLUGINS, NAMES) | NARROW, min_size=2, max_size=40, unique=True))
def test_wire_names_are_short_stable_and_never_meet(pairs: list[tuple[str, str]]) -> None:
    names = [wire_name(*pair) for pair in pairs]
    assert names == [wire_name(*pair) for pair in pairs]
    assert len(set(names)) == len(pairs)
    servers = {plugin: split_wire_name(name)[0] for (plugin, _), name in zip(pairs, names, strict=True)}
    for (plugin, _), name in zip(pairs, names, strict=True):
        assert len(name) <= WIRE_NAME_MAX_CHARS
        assert re.fullmatch(r"[A-Za-z0-9_-]+", name)
        server, rest = split_wire_name(name)
        assert f"mcp__{server}__{rest}" == name
        assert servers[plugin].partition("-")[0] == server.partition("-")[0], "one plugin, one server, cut or not"


@pytest.mark.req("ASM-05")
@pytest.mark.parametrize(
    ("plugin", "own", "expected"),
    [
        ("notes", "remember", "mcp__notes__remember"),
        ("ring-status", "get_status", "mcp__ring-status__get_status"),
        ("a", "b__c", "mcp__a__b__c"),
        ("n" * 28, "t" * 29, f"mcp__{'n' * 28}__{'t' * 29}"),
    ],
)
def test_a_name_that_fits_is_told_as_it_is(plugin: str, own: str, expected: str) -> None:
    assert wire_name(plugin, own) == expected
    assert split_wire_name(expected) == (plugin, own)


@pytest.mark.req("ASM-05")
@pytest.mark.parametrize("name", ["", "remember", "mcp__notes", "mcp____x", "mcp__notes__", "notes__remember"])
def test_what_is_no_wire_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected mcp__<plugin>__<tool>"):
        split_wire_name(name)


# Schemas.


class Place(TypedDict):
    """Where it is."""

    city: Annotated[str, "as people call it"]
    floor: NotRequired[int]


@pytest.mark.req("AGP-02")
@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (None, {"type": "object", "properties": {}}),
        ({}, {"type": "object", "properties": {}}),
        ({"fact": str}, {"type": "object", "properties": {"fact": {"type": "string"}}, "required": ["fact"]}),
        (
            {"n": int, "x": float, "b": bool, "l": list, "d": dict},
            {
                "type": "object",
                "properties": {
                    "n": {"type": "integer"},
                    "x": {"type": "number"},
                    "b": {"type": "boolean"},
                    "l": {"type": "array"},
                    "d": {"type": "object"},
                },
                "required": ["n", "x", "b", "l", "d"],
            },
        ),
        (
            {"of": Literal["a", "b"], "maybe": Optional[str], "either": int | None, "all": list[dict[str, int]]},  # noqa: UP045
            {
                "type": "object",
                "properties": {
                    "of": {"enum": ["a", "b"]},
                    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "all": {
                        "type": "array",
                        "items": {"type": "object", "additionalProperties": {"type": "integer"}},
                    },
                },
                "required": ["of", "all"],
            },
        ),
        (
            Place,
            {
                "type": "object",
                "description": "Where it is.",
                "properties": {
                    "city": {"type": "string", "description": "as people call it"},
                    "floor": {"type": "integer"},
                },
                "required": ["city"],
            },
        ),
        ({"type": "object", "required": ["a"]}, {"type": "object", "required": ["a"]}),
        # A tool may have an argument that is called `type`.
        ({"type": str}, {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}),
    ],
)
def test_each_form_of_a_schema_becomes_json_schema(form: object, expected: object) -> None:
    made = check_tool("notes", tool("t", "d", form)(handler))
    assert plain(made.input_schema) == expected
    json.dumps(plain(made.input_schema))


@pytest.mark.req("AGP-02")
@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        ({"x": object()}, "argument 'x': object cannot be said in JSON"),
        ({"x": set}, "argument 'x': set cannot be said in JSON"),
        ({1: str}, "the name of an argument must be a str, not int"),
        ([str], "its schema must be a JSON schema, names with their types, or a TypedDict, not list"),
        (str, "its schema must be a JSON schema, names with their types, or a TypedDict, not str"),
    ],
)
def test_a_form_that_cannot_be_said_in_json_names_the_tool_and_the_argument(form: object, wrong: str) -> None:
    with pytest.raises(RegistrationError) as raised:
        tool("find", "d", form)(handler)
    assert str(raised.value).startswith(f"tool 'find': {wrong}")


@pytest.mark.req("AGP-02", "INS-03")
def test_the_schema_that_is_kept_is_a_copy_that_nobody_can_change() -> None:
    given: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    made = check_tool("notes", tool("t", "d", given)(handler))
    given["properties"]["a"]["type"] = "integer"
    given["required"].append("b")
    assert plain(made.input_schema) == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
    }
    inner: Any = made.input_schema
    with pytest.raises(TypeError):
        inner["properties"]["a"]["type"] = "integer"
    with pytest.raises(AttributeError):
        inner["required"].append("b")


@pytest.mark.req("AGP-02")
def test_a_typed_function_is_a_tool_as_it_stands() -> None:
    seen: list[ToolCall] = []

    @tool
    async def look_up(word: Annotated[str, "one word"], limit: int = 3, *, call: ToolCall) -> str:
        """Look a word up.

        In the book.
        """
        seen.append(call)
        return word * limit

    made = check_tool("notes", look_up)
    assert (made.name, made.description) == ("look_up", "Look a word up.\n\nIn the book.")
    assert plain(made.input_schema) == {
        "type": "object",
        "properties": {"word": {"type": "string", "description": "one word"}, "limit": {"type": "integer"}},
        "required": ["word"],
        "additionalProperties": False,
    }
    assert called(made, word="ab", limit=2) == ToolResult((Text("abab"),))
    assert called(made, word="a") == ToolResult((Text("aaa"),))
    assert seen == [CALL, CALL]


@pytest.mark.req("AGP-02")
def test_a_function_without_types_says_what_it_needs() -> None:
    async def look_up(word): ...  # type: ignore[no-untyped-def]

    async def many(*words: str) -> str:
        return ""

    with pytest.raises(RegistrationError, match=r"tool 'look_up': parameter 'word' needs a type, such as word: str"):
        tool(look_up)
    with pytest.raises(RegistrationError, match="tool 'many': parameter 'words' cannot be passed by name"):
        tool(many)
    with pytest.raises(RegistrationError, match="expected a name or an async function, not int"):
        tool(5)  # type: ignore[call-overload]


# Handlers and results.


@pytest.mark.req("AGP-02")
def test_a_handler_takes_the_arguments_and_the_call_where_it_asks_for_it() -> None:
    async def one(arguments: Any) -> str:
        return f"{arguments['x']}"

    async def two(arguments: Any, call: ToolCall) -> str:
        return f"{arguments['x']} {call.agent}"

    async def bound(first: int, arguments: Any) -> str:
        return f"{first} {arguments['x']}"

    class Bound:
        async def __call__(self, arguments: Any, call: Any = None) -> str:
            return f"{arguments['x']} {call.session}"

    expected = {"1": one, "1 main": two, "7 1": partial(bound, 7), "1 s-1": Bound()}
    for text, made in expected.items():
        checked = check_tool("notes", tool("t", "d", {"x": int})(made))  # type: ignore[arg-type]
        assert called(checked, x=1) == ToolResult((Text(text),))


PNG = b"\x89PNG\r\n"


@pytest.mark.req("AGP-02", "AGP-03")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("as it is", ToolResult((Text("as it is"),))),
        (mcp_result("as it is"), ToolResult((Text("as it is"),))),
        (mcp_result({"a": [1, "é"]}), ToolResult((Text('{\n  "a": [\n    1,\n    "é"\n  ]\n}'),))),
        (mcp_result(date(2026, 12, 1)), ToolResult((Text('"2026-12-01"'),))),
        (mcp_result("no", is_error=True), ToolResult((Text("no"),), is_error=True)),
        (mcp_error("no"), ToolResult((Text("no"),), is_error=True)),
        (ToolResult((Text("a"), Image(PNG, "image/png"))), ToolResult((Text("a"), Image(PNG, "image/png")))),
        (
            {
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"},
                    {"type": "resource", "resource": {"uri": "notes://1", "text": "tea"}},
                    {"type": "resource_link", "uri": "notes://2", "name": "two", "description": "the second"},
                ],
                "is_error": True,
            },
            ToolResult(
                (
                    Text("see"),
                    Image(PNG, "image/png"),
                    Resource("notes://1", "tea"),
                    Resource("notes://2", "two\nthe second"),
                ),
                is_error=True,
            ),
        ),
        ({"content": []}, ToolResult(())),
        ("half \ud800", ToolResult((Text("half \ufffd"),))),
        (mcp_result("half \udfff"), ToolResult((Text("half \ufffd"),))),
    ],
)
def test_each_form_of_a_result_is_taken(given: object, expected: ToolResult) -> None:
    assert tool_result(given) == expected


@pytest.mark.req("AGP-03")
def test_a_result_is_the_dict_that_ported_plugins_index_into() -> None:
    assert mcp_result("x") == {"content": [{"type": "text", "text": "x"}]}
    assert mcp_error("x") == {"content": [{"type": "text", "text": "x"}], "is_error": True}


@pytest.mark.req("AGP-02")
@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (None, "a tool gives back mcp_result(…), a str, or a ToolResult, not NoneType"),
        (b"bytes", "not bytes"),
        ({"a": 1}, "not dict"),
        ({"content": "text"}, "the content of a result must be a list, not str"),
        ({"content": [1]}, "a piece of content must be Text, Image, Resource or a dict, not int"),
        ({"content": [{"type": "text", "text": 1}]}, "a piece of type text needs text, a str, not int"),
        ({"content": [{"type": "image", "data": "!", "mimeType": "image/png"}]}, "must be base64"),
        ({"content": [{"type": "image", "data": "aGk="}]}, "an image needs its mimeType"),
        ({"content": [{"type": "audio"}]}, "has the type 'audio'; it must be text, image or resource"),
        ({"content": [{"type": "resource"}]}, "a resource needs a resource with uri and text"),
        (ToolResult("text"), "the content of a result must be a tuple, not str"),  # type: ignore[arg-type]
        (ToolResult((Text(1),)), "the text of a Text must be a str"),  # type: ignore[arg-type]
        (ToolResult((Image("x", "image/png"),)), "an Image is made of bytes and a media type"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_result_is_refused_in_words(given: object, wrong: str) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        tool_result(given)
    assert wrong in str(raised.value)


# Registration.


def of(**fields: Any) -> Tool:
    return Tool(**{"name": "t", "description": "d", "input_schema": {"type": "object"}, "handler": handler, **fields})


def sync(arguments: object, call: object) -> str:
    return ""


@pytest.mark.req("AGP-02", "AGP-05", "AGP-06")
@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (5, "addTool takes a tool made with buzz_author.tool or claude_agent_sdk.tool, not int"),
        (handler, "not function; decorate it with @tool"),
        (of(name=""), "tool name '' is not allowed: use 1 to 128 of A-Z, a-z, 0-9, '_', '.' and '-'"),
        (of(name="a b"), "tool name 'a b' is not allowed"),
        (of(name="é"), r"tool name '\xe9' is not allowed"),
        (of(name="a\n"), r"tool name 'a\n' is not allowed"),
        (of(name="a" * 129), "tool name 'aaa"),
        (of(name=None), "tool name None is not allowed"),
        (of(description=" "), "tool 't': it needs a description"),
        (of(description=None), "tool 't': it needs a description"),
        (of(description="é" * 9000), "tool 't': its description has 18000 bytes, the limit is 16384"),
        (of(input_schema=[]), "tool 't': its schema must be a JSON schema of an object, not list"),
        (of(input_schema={"type": "array"}), 'tool \'t\': its schema must have "type": "object", it has "array"'),
        (of(input_schema={"properties": {}}), 'tool \'t\': its schema must have "type": "object", it has null'),
        (of(input_schema={"type": "object", "properties": []}), "tool 't': the properties of its schema must be"),
        (of(input_schema={"type": "object", "x": {1}}), "tool 't': its schema is not JSON"),
        (of(input_schema={"type": "object", "x": float("nan")}), "tool 't': its schema is not JSON"),
        (of(input_schema={"type": "object", 1: 2}), "tool 't': its schema is not JSON: a key must be a str, not int"),
        (of(input_schema={"type": "object", "x": "\ud800"}), "tool 't': its schema holds half of a surrogate pair"),
        (of(input_schema={"type": "object", "x": "a" * 65536}), "tool 't': its schema has 65"),
        (of(handler=sync), "tool 't': its function must be async: async def t(arguments)"),
        (of(handler=None), "tool 't': its function must be async"),
        (of(annotations={"read_only": True}), "tool 't': its annotations must be Annotations(read_only=…), not dict"),
        (of(annotations=Annotations(read_only="yes")), "tool 't': its annotation read_only must be True, False or"),  # type: ignore[arg-type]
        (of(timeout_s=0), "tool 't': timeout_s must be a number of seconds between 0 and 86400"),
        (of(timeout_s=float("inf")), "tool 't': timeout_s must be"),
        (of(timeout_s="60"), "tool 't': timeout_s must be"),
        (of(timeout_s=True), "tool 't': timeout_s must be"),
    ],
)
def test_a_tool_that_cannot_be_used_is_refused_in_one_line(given: object, wrong: str) -> None:
    assert wrong in refused(given)


@pytest.mark.req("AGP-02")
def test_a_schema_that_holds_itself_is_refused_in_one_line() -> None:
    endless: dict[str, Any] = {"type": "object"}
    endless["properties"] = endless
    assert refused(of(input_schema=endless)).startswith("tool 't': its schema is not JSON")


@pytest.mark.req("AGP-02", "AGP-05")
def test_a_tool_of_the_sdk_is_known_by_its_shape() -> None:
    from claude_agent_sdk import ToolAnnotations
    from claude_agent_sdk import tool as sdk_tool

    @sdk_tool(
        "remember",
        "Remember a fact",
        {"fact": str},
        annotations=ToolAnnotations(readOnlyHint=False, openWorldHint=True),
    )
    async def remember(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"kept {arguments['fact']}"}]}

    made = check_tool("notes", remember)
    assert made == Tool(
        "remember", "Remember a fact", made.input_schema, made.handler, Annotations(read_only=False, open_world=True)
    )
    assert plain(made.input_schema) == {
        "type": "object",
        "properties": {"fact": {"type": "string"}},
        "required": ["fact"],
    }
    assert called(made, fact="tea") == ToolResult((Text("kept tea"),))
    assert Tool.from_sdk(remember).description == "Remember a fact"

    @sdk_tool("bad", "Bad", {"x": object})
    async def bad(arguments: Any) -> dict[str, Any]:
        return {}

    assert check_tool("notes", bad).input_schema["properties"] == {"x": {}}
    remember.handler = sync  # type: ignore[assignment]
    assert refused(remember).startswith("tool 'remember': its function must be async")
    remember.input_schema = {"x": set}
    assert refused(remember).startswith("tool 'remember': argument 'x': set cannot be said in JSON")


@pytest.mark.req("AGP-05")
@pytest.mark.parametrize(
    "hints", [{"readOnlyHint": True}, SimpleNamespace(readOnlyHint=True), SimpleNamespace(read_only_hint=True)]
)
def test_annotations_are_read_in_either_spelling(hints: object) -> None:
    made = SimpleNamespace(name="t", description="d", input_schema={}, handler=handler, annotations=hints)
    assert check_tool("notes", made).annotations == Annotations(read_only=True)


@pytest.mark.req("AGP-02")
def test_making_tools_imports_no_sdk() -> None:
    script = (
        "import sys; from buzz_author import tool; "
        "tool('t', 'd', {'x': str}); "
        "sys.exit(any(name in sys.modules for name in ('claude_agent_sdk', 'mcp', 'jsonschema', 'pydantic')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
