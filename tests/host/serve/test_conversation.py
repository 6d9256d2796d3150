"""What a client may say and what it is told; garbage, greed and silence hurt nobody else (SEC-01, CLI-01)."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from buzz_author.framing import LINE_MAX_BYTES
from buzz_host import VERSION
from buzz_host.serve.clients import REQUESTS_AT_ONCE
from buzz_host.serve.listening import CLIENTS_MAX
from buzz_host.services.host import Host
from tests.host.serve.conftest import Served
from tests.host.serve.talking import Talk
from tests.host.services.test_host import ECHO, speaks, write_plugin

pytestmark = pytest.mark.anyio
PREVIEW = {"message": "Hello", "harness": "echo", "here": "/"}


@pytest.fixture(autouse=True)
def plugins(home: Path) -> None:
    folder = home / "plugins"
    write_plugin(folder, "brief", speaks("Be brief."))
    (folder / "echo_harness.py").write_bytes(ECHO.read_bytes())


@pytest.mark.req("CLI-01")
async def test_a_host_greets_and_answers(served: Served) -> None:
    async with Talk(served.path) as talk:
        assert talk.greeting == {"v": 1, "buzz": VERSION, "pid": os.getpid()}
        value = await talk.ask("preview", **PREVIEW)
        assert (value["event"], value["agent"]) == ("preview", "main")
        assert "Be brief." in value["text"]


@pytest.mark.req("SEC-01", "OPS-01")
@pytest.mark.parametrize(
    ("line", "id", "message"),
    [
        (b"{", None, "expected a JSON value, found none: "),
        (b"", None, "expected a JSON value, found none: "),
        (b"\xff\xfe", None, "expected a JSON value, found none: "),
        (b"[1]", None, "request: expected an object, found a list"),
        (b"null", None, "request: expected an object, found null"),
        (b"{}", None, "id: expected a text or a whole number, found null"),
        (b'{"id":true}', None, "id: expected a text or a whole number, found true"),
        (b'{"id":1}', 1, "v: expected 1, found null"),
        (b'{"id":1,"v":2}', 1, "v: expected 1, found the number 2"),
        (b'{"id":"a","v":1}', "a", "call: expected one of audit.plugin, "),
        (b'{"id":1,"v":1,"call":"preveiw"}', 1, "call: expected one of audit.plugin, "),
        (b'{"id":1,"v":1,"call":["preview"]}', 1, "call: expected one of audit.plugin, "),
        (b'{"id":1,"v":1,"call":"preview","args":{}}', 1,
         "request: expected one of v, id, call, arguments, found the key 'args' (did you mean arguments?)"),
        (b'{"id":1,"v":1,"call":"preview","arguments":[]}', 1, "arguments: expected an object, found a list"),
        (b'{"id":1,"v":1,"call":"preview"}', 1, "arguments.message: expected a value, found nothing"),
        (b'{"id":1,"v":1,"call":"plugins.list","arguments":{"agent":1}}', 1,
         "arguments.agent: expected a text, found the number 1"),
    ],
)  # fmt: skip
async def test_a_line_that_is_no_request_gets_one_line_and_the_next_is_answered(
    served: Served, line: bytes, id: object, message: str
) -> None:
    async with Talk(served.path) as talk:
        await talk.send(line + b"\n")
        said = await talk.line()
        assert said is not None
        assert (said["id"], said["error"]["kind"]) == (id, "request")
        assert said["error"]["message"].startswith(message)
        assert said["error"]["message"].isprintable()
        assert "Be brief." in (await talk.ask("preview", **PREVIEW))["text"]


@pytest.mark.req("SEC-01")
async def test_lines_are_cut_at_0x0a_alone_and_hold_whole_text(served: Served) -> None:
    async with Talk(served.path) as talk:
        message = "one\u2028two\x85three\ud800"
        await talk.send(
            b'{"v":1,"id":1,"call":"preview","arguments":{"here":"/","harness":"echo","message":"one\xe2\x80\xa8two'
            b'\xc2\x85three\\ud800"}}\r\n'
        )
        answer = await talk.answer()
        assert message.replace("\ud800", "\ufffd") in answer["value"]["text"]


@pytest.mark.req("SEC-01")
async def test_a_line_without_an_end_is_refused_at_16_mib(served: Served) -> None:
    async with Talk(served.path) as talk, Talk(served.path) as other:
        filler = b"x" * (1024 * 1024)
        try:
            for _ in range(LINE_MAX_BYTES // len(filler) + 2):
                await talk.send(filler)
        except ConnectionError:
            pass  # it hung up while we still wrote
        said = await talk.line()
        assert said is None or said["error"]["message"].startswith("a line has more than 16,777,216 bytes")
        assert said is None or await talk.line() is None
        assert "Be brief." in (await other.ask("preview", **PREVIEW))["text"]


@pytest.mark.req("SEC-01")
async def test_a_request_of_15_mib_is_answered(served: Served) -> None:
    async with Talk(served.path) as talk:
        value = await talk.ask("preview", **{**PREVIEW, "message": "x" * (15 * 1024 * 1024)})
        assert len(value["text"]) > 15 * 1024 * 1024


@pytest.mark.req("CLI-01")
async def test_answers_come_as_they_are_ready_each_with_its_id(served: Served) -> None:
    write_plugin(served.host.home.plugins, "slow", "import time; time.sleep(1)")
    async with Talk(served.path) as talk:
        await talk.request("plugins.list", "slow one")
        await talk.request("audit.turns", "quick one", limit=1)
        await talk.request("audit.turns", "slow one", limit=1)
        lines = [await talk.line() or {} for _ in range(3)]
    (refused,) = [line for line in lines if "error" in line]
    assert refused["id"] == "slow one"
    assert refused["error"]["message"] == "id: expected one that is not being answered, found it again"
    assert [line["id"] for line in lines if "value" in line] == ["quick one", "slow one"]


@pytest.mark.req("CLI-01", "SEC-01")
async def test_a_client_that_does_not_read_holds_up_nobody(served: Served) -> None:
    message = "x" * (4 * 1024 * 1024)
    async with Talk(served.path) as silent, Talk(served.path) as other:
        for number in range(REQUESTS_AT_ONCE // 4):
            await silent.request("preview", number, **{**PREVIEW, "message": message})
        begun = time.monotonic()
        for _ in range(5):
            assert "Be brief." in (await other.ask("preview", **PREVIEW))["text"]
        assert time.monotonic() - begun < 5
        # It is only slow: all that it asked for is there when it reads.
        for number in range(REQUESTS_AT_ONCE // 4):
            assert len((await silent.answer(number))["value"]["text"]) > len(message)


@pytest.mark.req("CLI-01")
async def test_a_host_stops_although_a_client_does_not_read(home: Path) -> None:
    from buzz_host.serve.listening import Listening

    async with Host(home) as host:
        listening = Listening(host.home.folder(host.home.root / "run") / "s", host)
        await listening.start()
        async with Talk(listening.path) as silent:
            await silent.request("preview", 1, **{**PREVIEW, "message": "x" * (8 * 1024 * 1024)})
            await asyncio.sleep(0.2)
            begun = time.monotonic()
            await listening.stop(1)
            assert time.monotonic() - begun < 4
        assert not listening.path.exists()


@pytest.mark.req("SEC-01")
async def test_so_many_clients_and_no_more(served: Served) -> None:
    talks = [Talk(served.path) for _ in range(CLIENTS_MAX)]
    for talk in talks:
        await talk.__aenter__()
    one_more = Talk(served.path)
    await one_more.__aenter__()
    assert one_more.greeting["error"]["message"].startswith(f"the host has {CLIENTS_MAX} clients already")
    talks.pop().vanish()
    one_more.vanish()
    until = time.monotonic() + 10
    while True:
        async with Talk(served.path) as next_one:
            if "error" not in next_one.greeting:
                break
        assert time.monotonic() < until
    for talk in talks:
        talk.vanish()


@pytest.mark.req("PLG-06", "REG-03")
async def test_a_switch_by_any_client_holds_at_the_next_turn_of_all(served: Served) -> None:
    async with Talk(served.path) as one, Talk(served.path) as other:
        opened = await one.ask("session.open", here="/", harness="echo")
        for on in (False, True):
            switched = await other.ask("plugins.switch", plugin="brief", on=on)
            assert switched == {
                "plugin": "brief",
                "agent": None,
                "enabled": on,
                "reason": "default" if on else "disabled",
            }
            # What is shown before the turn is what the turn does.
            (listed,) = [each for each in await other.ask("plugins.list") if each["id"] == "brief"]
            assert listed["standing"] == ("active" if on else "off")
            await one.request("session.turn", session=opened["session"], message="Hello")
            started = await one.event("turn_started")
            assert ("Be brief." in started["text"]) == on
            await one.answer()


@pytest.mark.req("INS-12", "INS-14")
async def test_notes_and_suspended_guards_are_those_of_the_running_host(served: Served) -> None:
    folder = served.host.home.plugins
    write_plugin(folder, "noting", "ctx.agents.addNote('main', 'The build is green.')")
    write_plugin(folder, "sleepy", "import time; " + speaks("Zzz.", "lambda agent: time.sleep(0.6) or True"))
    async with Talk(served.path) as talk, Talk(served.path) as other:
        for reason in ("when-timeout", "suspended"):
            value = await talk.ask("preview", **PREVIEW)
            assert "The build is green." in value["text"]
            assert {row["plugin"]: row["reason"] for row in value["left_out"]} == {"sleepy": reason}
        opened = await other.ask("session.open", here="/", harness="echo")
        await other.request("session.turn", session=opened["session"], message="Hello")
        assert "The build is green." in (await other.event("turn_started"))["text"]
        await other.answer()
        assert "The build is green." not in (await talk.ask("preview", **PREVIEW))["text"]


@pytest.mark.req("OPS-01")
async def test_a_fault_of_ours_is_told_with_its_traceback_and_the_host_goes_on(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a fault\nof ours")

    async with Talk(served.path) as talk:
        with monkeypatch.context() as patched:
            patched.setattr(served.host, "preview", fails, raising=False)
            error = await talk.ask("preview", **PREVIEW)
        assert (error["kind"], error["message"]) == ("bug", "ZeroDivisionError: a fault of ours")
        assert "raise ZeroDivisionError" in error["traceback"]
        assert "Be brief." in (await talk.ask("preview", **PREVIEW))["text"]
    assert "the call preview failed" in caplog.text


@pytest.mark.req("CLI-01")
async def test_fifty_previews_at_once_are_all_the_same(served: Served) -> None:
    write_plugin(served.host.home.plugins, "late", speaks("I am here."))

    async def previewed() -> str:
        async with Talk(served.path) as talk:
            return json.dumps((await talk.ask("preview", **PREVIEW))["sections"])

    (text,) = set(await asyncio.gather(*(previewed() for _ in range(50))))
    assert "I am here." in text
