"""The tools of a session over real plugins: whatever a tool does, its caller gets a result that says whose fault it is.

No program takes part: calls are made as a harness makes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from buzz_author.harness import Policy
from buzz_author.json_values import JsonObject
from buzz_author.tools import GateDecision, Image, Text, ToolRequest, ToolResult
from buzz_host import Host
from buzz_host.processes import ProgramHost
from buzz_host.sessions.access import SessionAccess
from buzz_host.tools import session_tools
from buzz_host.tools.session_tools import SessionTools

pytestmark = pytest.mark.anyio
DEADLINE_S = 20.0

NOTES = """
import asyncio
import time

from buzz_author import Annotations, Image, Text, ToolCall, ToolResult, mcp_result, tool

inject = ("agents",)
state = {"cancelled": False, "started": False}
READS = Annotations(read_only=True)


@tool("remember", "Remember a fact", {"fact": str, "tags": list[str]})
async def remember(arguments, call: ToolCall):
    print("words of a plugin")
    call.progress(0.5, "half")
    arguments["tags"].append("mine")
    return mcp_result([call.agent, call.session, arguments["fact"], arguments["tags"], call.cancelled()])


@tool("reads", "Read", {}, annotations=READS)
async def reads(arguments):
    return "read"


@tool("fails", "Fail", {})
async def fails(arguments):
    return {}["tea"]


@tool("leaves", "Leave", {})
async def leaves(arguments):
    raise SystemExit(3)


@tool("octets", "Give bytes", {})
async def octets(arguments):
    return b"bytes"


@tool("large", "Give much", {"size": int})
async def large(arguments):
    half = arguments["size"] // 2
    return ToolResult((Text("a" * half), Image(b"b" * (arguments["size"] - half), "image/png")))


@tool("hangs", "Hang", {}, timeout_s=0.2)
async def hangs(arguments, call):
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        state["cancelled"] = call.cancelled()
        raise


@tool("holds", "Hold", {})
async def holds(arguments, call):
    state["started"] = True
    await hangs.handler(arguments, call)


@tool("spins", "Spin", {}, timeout_s=0.2)
async def spins(arguments):
    while True:
        pass


@tool("how", "How it went", {}, annotations=READS)
async def how(arguments):
    return mcp_result(state)


@tool("goes", "Take this back", {})
async def goes(arguments):
    gone()
    return "gone"


def apply(ctx):
    global gone
    for each in (remember, reads, fails, leaves, octets, large, hangs, holds, spins, how):
        ctx.agents.addTool(each)
    gone = ctx.agents.add_tool(goes)
"""


@pytest.fixture
async def host(home: Path) -> AsyncIterator[Host]:
    folder = home / "plugins"
    folder.mkdir(parents=True)
    (folder / "notes.py").write_text(NOTES, encoding="utf-8")
    async with Host(home) as running:
        yield running


def taken(host: Host, agent: str = "main") -> SessionTools:
    def why_not(plugin: str) -> str | None:
        (standing,) = [each for each in host.plugins.standings(agent) if each.plugin == plugin]
        return None if standing.standing == "active" else standing.detail

    return SessionTools.take(
        host.plugins.contributions, why_not, refresh=host.plugins.refresh, agent=agent, session="s-1"
    )


async def called(tools: SessionTools, name: str, **arguments: object) -> ToolResult:
    async with asyncio.timeout(DEADLINE_S):
        return await tools.call(f"mcp__notes__{name}", cast(JsonObject, arguments))


def words(result: ToolResult) -> str:
    return "".join(each.text for each in result.content if isinstance(each, Text))


async def failed(tools: SessionTools, name: str, **arguments: object) -> str:
    result = await called(tools, name, **arguments)
    assert result.is_error
    assert "notes" in words(result)
    return words(result)


@pytest.mark.req("AGP-02", "TRN-06")
async def test_a_call_runs_in_the_plugin_and_tells_it_for_whom(
    host: Host, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "buzz.plugin.notes")
    tools = taken(host)
    given = {"fact": "tea", "tags": ["four"]}
    result = await called(tools, "remember", **given)
    assert not result.is_error
    assert words(result).split() == ["[", '"main",', '"s-1",', '"tea",', "[", '"four",', '"mine"', "],", "false", "]"]
    assert given == {"fact": "tea", "tags": ["four"]}
    assert "words of a plugin" in capfd.readouterr().out
    assert "0.5 half" in caplog.text


@pytest.mark.req("ASM-05", "TRN-06", "TRN-07")
async def test_the_set_is_sorted_named_for_the_wire_and_stays(host: Host) -> None:
    tools = taken(host)
    names = [each.name for each in tools.tools]
    own = ["fails", "goes", "hangs", "holds", "how", "large", "leaves", "octets", "reads", "remember", "spins"]
    assert names == [f"mcp__notes__{each}" for each in own]
    assert repr(tools.tools) == repr(taken(host).tools)
    assert (tools.plugin_of("mcp__notes__how"), tools.plugin_of("Bash")) == ("notes", None)
    assert words(await called(tools, "goes")) == "gone"
    assert [each.name for each in tools.tools] == names
    assert "does not offer it now" in await failed(tools, "goes")
    assert "mcp__notes__goes" not in [each.name for each in taken(host).tools]


@pytest.mark.req("PLG-02", "AGP-02", "ASM-04")
async def test_what_a_tool_does_wrong_is_an_error_that_names_its_plugin_and_a_fault(host: Host) -> None:
    tools = taken(host)
    assert "KeyError: 'tea' (notes.py:" in await failed(tools, "fails")
    assert "SystemExit" in await failed(tools, "leaves")
    assert "not bytes" in await failed(tools, "octets")
    faults = tools.take_faults()
    assert [(each.plugin, each.phase) for each in faults] == [("notes", "tool")] * 3
    assert ["fails" in faults[0].message, "leaves" in faults[1].message, "octets" in faults[2].message] == [True] * 3
    assert "notes.py" in faults[0].traceback
    assert tools.take_faults() == ()
    assert words(await called(tools, "reads")) == "read"


@pytest.mark.req("AGP-02")
async def test_a_result_of_10_mb_is_taken_and_a_larger_one_is_not(host: Host) -> None:
    tools = taken(host)
    limit = session_tools.RESULT_MAX_BYTES
    result = await called(tools, "large", size=limit)
    assert not result.is_error
    assert sum(len(each.content) for each in result.content if isinstance(each, Image)) == limit - limit // 2
    assert f"gave {limit + 1:,} bytes; at most {limit:,} are taken" in await failed(tools, "large", size=limit + 1)


@pytest.mark.req("AGP-02")
@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({}, "'fact' is a required property"),
        ({"fact": 5, "tags": []}, "$.fact: 5 is not of type 'string'"),
        ({"fact": "a", "tags": ["b", None]}, "$.tags[1]: None is not of type 'string'"),
    ],
)
async def test_arguments_that_do_not_fit_reach_no_plugin(host: Host, arguments: dict[str, object], wrong: str) -> None:
    tools = taken(host)
    assert wrong in await failed(tools, "remember", **arguments)
    assert tools.take_faults() == ()


@pytest.mark.req("PLG-02", "AGP-02")
async def test_a_call_that_takes_too_long_is_ended_even_when_it_spins(host: Host) -> None:
    tools = taken(host)
    assert "had not answered after 0.2 s" in await failed(tools, "hangs")
    assert '"cancelled": true' in words(await called(tools, "how"))
    assert "had not answered after 0.2 s" in await failed(tools, "spins")
    assert words(await called(tools, "reads")) == "read", "the plugin's thread is free again"
    assert [each.plugin for each in tools.take_faults()] == ["notes", "notes"]
    assert host.plugins.statuses()["notes"].state == "active"


@pytest.mark.req("HAR-03")
async def test_cancelling_a_call_cancels_the_handler(host: Host) -> None:
    tools = taken(host)
    calling = asyncio.create_task(called(tools, "holds"))
    async with asyncio.timeout(DEADLINE_S):
        while '"started": true' not in words(await called(tools, "how")):
            pass
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        while '"cancelled": true' not in words(await called(tools, "how")):
            pass
    assert tools.take_faults() == ()


@pytest.mark.req("REG-02")
async def test_a_tool_whose_plugin_was_switched_off_says_so(host: Host) -> None:
    main, dev = taken(host), taken(host, "dev")
    (source,) = [each for each in host.plugins.found.sources if each.id == "notes"]
    host.plugins.enablement.disable(source, "dev")
    assert "plugin 'notes' does not serve this agent now (it is switched off for this agent)" in await failed(
        dev, "reads"
    )
    assert words(await called(main, "reads")) == "read"
    host.plugins.enablement.disable(source)
    assert "(it is switched off)" in await failed(main, "reads")
    await host.plugins.refresh()
    assert taken(host).tools == ()
    host.plugins.enablement.enable(source)
    assert words(await called(main, "reads")) == "read"


@pytest.mark.req("ASM-02", "ASM-04")
async def test_of_two_names_that_meet_the_first_is_taken(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_tools, "wire_name", lambda plugin, tool: f"mcp__{plugin}__{tool[0]}")
    tools = taken(host)
    assert [each.name for each in tools.tools] == [f"mcp__notes__{letter}" for letter in "fghlors"]
    assert [each.message.split("'")[1] for each in tools.take_faults()] == ["holds", "how", "leaves", "remember"]
    assert "mcp__notes__nothing" in words(await called(tools, "nothing"))


# Policy.


@pytest.mark.req("PRM-01", "AGP-05")
@pytest.mark.parametrize(
    ("policy", "reads", "writes", "asked"),
    [
        ("plugin-tools-only", True, True, []),
        ("read-only", True, False, []),
        ("all", True, True, []),
        ("ask", True, False, ["mcp__notes__remember"]),
    ],
)
async def test_the_policy_decides_before_a_plugin_is_called(
    host: Host, policy: Policy, reads: bool, writes: bool, asked: list[str]
) -> None:
    requests: list[tuple[ToolRequest, str | None]] = []

    async def ask(request: ToolRequest, plugin: str | None) -> GateDecision:
        requests.append((request, plugin))
        return GateDecision("deny" if len(requests) == 1 else "allow", "the person said so", "person")

    access = SessionAccess(cast(ProgramHost, None), policy, taken(host), ask)
    arguments: JsonObject = {"fact": "tea", "tags": []}
    read = await access.call_tool("c-1", "mcp__notes__reads", {})
    written = await access.call_tool("c-2", "mcp__notes__remember", arguments)
    assert (not read.is_error, not written.is_error) == (reads, writes)
    assert [each.name for each, _ in requests] == asked
    if policy == "ask":
        ((request, plugin),) = requests
        assert (request.call, request.arguments, plugin) == ("c-2", arguments, "notes")
        assert "the person said so" in words(written)
        assert not (await access.call_tool("c-3", "mcp__notes__remember", arguments)).is_error
    if policy == "read-only":
        assert "the policy 'read-only' does not allow" in words(written)


@pytest.mark.req("PRM-01")
async def test_where_nobody_can_be_asked_the_answer_is_no(host: Host) -> None:
    access = SessionAccess(cast(ProgramHost, None), "ask", taken(host))
    denied = await access.call_tool("c-1", "mcp__notes__remember", {"fact": "tea", "tags": []})
    assert denied.is_error
    assert "nobody is there to answer" in words(denied)
    unknown = await access.call_tool("c-2", "mcp__notes__nothing", {})
    assert unknown.is_error
    assert "there is no tool 'mcp__notes__nothing'" in words(unknown)
    bare = await SessionAccess(cast(ProgramHost, None), "all").call_tool("c-3", "Bash", {})
    assert bare.is_error


@pytest.mark.req("REG-02", "TRN-06")
async def test_tools_that_came_after_the_session_began_are_told_once(host: Host) -> None:
    tools = SessionTools.take(
        host.plugins.contributions, lambda plugin: None, refresh=host.plugins.refresh, agent="main", session="s"
    )
    assert tools.take_faults() == ()
    (host.home.plugins / "late.py").write_text(
        "from buzz_author import tool\n\n\n@tool('x', 'X.', {})\nasync def x(arguments):\n    return 'x'\n\n\n"
        "def apply(ctx):\n    ctx.agents.addTool(x)\n",
        encoding="utf-8",
    )
    await host.plugins.refresh()
    await host.plugins.settle(10.0)
    (fault,) = tools.take_faults()
    assert (fault.plugin, "come with the next session" in fault.message) == ("late", True)
    assert tools.take_faults() == ()
