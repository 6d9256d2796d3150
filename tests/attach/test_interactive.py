"""The person's own interactive Claude Code: prompts carry exactly what plugins say now, and never fail through us."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from buzz_host.attach.attaching import Target, attach, detach
from buzz_host.attach.listener import AttachListener
from buzz_host.attach.registry import Places
from buzz_host.attach.snapshots import write_snapshots
from buzz_host.attach.spool import bring_in
from buzz_host.rehearsal import RecordedRequest
from buzz_host.services.audit import Audit
from buzz_host.services.host import Host
from buzz_host.services.plugins import switch
from buzz_host.settings import Home
from tests.attach.conftest import Opened
from tests.attach.terminals import Terminal, arrived, before, carried, until
from tests.host.attach.conftest import write_plugin
from tests.host.attach.test_sessions import ended, started_host

pytestmark = [pytest.mark.anyio, pytest.mark.claude, pytest.mark.timeout(300), pytest.mark.req("AUT-03")]

SOAK = os.environ.get("BUZZ_SOAK") == "1"
TURNS = 20 if SOAK else 6
OLDER_MODEL = "claude-sonnet-4-5"
NOISE = ("hook", "failed", "error", "Error", "timed out")


@asynccontextmanager
async def serving(home: Home) -> AsyncIterator[None]:
    async with Host(home.root) as host:
        listener = AttachListener()
        await listener.start(host)
        try:
            yield
        finally:
            await listener.stop()


async def turn(terminal: Terminal, prompt: str) -> RecordedRequest:
    return await asyncio.to_thread(terminal.turn, prompt)


def bodies(request: RecordedRequest, prompt: str) -> list[str]:
    return [each.body for each in carried(request, prompt)]


def ledger_text(home: Home) -> str:
    """What the ledger says of the newest turn; and that it is whole."""
    audit = Audit(home)
    breaks: list[object] = []
    audit.verify(None, breaks.append)
    assert breaks == []
    text = audit.turn(audit.turns(limit=1)[0].turn).text
    assert text is not None
    return text


def no_noise(terminal: Terminal) -> None:
    """Nothing of ours is on the person's screen."""
    shown = [line for line in terminal.screen().split("\n") if "rehearsal:" not in line and "say what" not in line]
    assert [line for line in shown if any(word in line for word in NOISE)] == []


@pytest.mark.parametrize("model", [None, OLDER_MODEL])
async def test_each_turn_carries_exactly_the_set_of_its_moment(
    opened: Home, target: Target, claude: Opened, model: str | None
) -> None:
    """The newer models get it as a system message behind the prompt, the older ones as reminders before it."""
    names = ["alpha", "beta", "gamma", "delta"]
    for name in names:
        write_plugin(opened, name, f"I am {name}. " + "é😀<x> & " * 60)
    attach(opened, target)
    chosen = random.Random(20)
    earlier: bytes | None = None
    async with serving(opened):
        with claude(*(["--model", model] if model else [])) as terminal:
            on = set(names)
            for number in range(TURNS if model is None or SOAK else 2):
                for name in chosen.sample(names, chosen.randint(0, 3)):
                    on ^= {name}
                    switch(opened, name, on=name in on)
                prompt = f"turn {number}: say what you like"
                request = await turn(terminal, prompt)
                said = carried(request, prompt)
                assert [dict(each.attributes)["plugin"] for each in said] == sorted(on)
                if on:
                    assert ledger_text(opened) in arrived(request, prompt)
                # What stood in earlier turns stands there still, to the byte, so that caches hold.
                now = before(request, prompt)
                assert earlier is None or now.startswith(earlier[:-1])
                earlier = now
            no_noise(terminal)
    audit = Audit(opened)
    assert len(audit.turns()) == (TURNS if model is None or SOAK else 2)
    assert {row.status for row in audit.turns()} == {"handed over"}
    assert len({row.session for row in audit.turns()}) == 1


async def test_several_entries_arrive_whole(opened: Home, target: Target, claude: Opened) -> None:
    for number in range(5):
        write_plugin(opened, f"p{number}", f"{number} " + "x😀" * 800)
    attach(opened, target, entries=3)
    async with serving(opened):
        with claude() as terminal:
            request = await turn(terminal, "all of it")
    assert sorted(body[0] for body in bodies(request, "all of it")) == list("01234")
    assert b"persisted-output" not in request.raw
    turns = Audit(opened).turns()
    (handed,) = [Audit(opened).turn(row.turn).handed_over for row in turns]
    assert handed is not None
    assert len(handed.entries) == 2
    assert all(entry is not None and entry in arrived(request, "all of it") for entry in handed.entries)


async def test_a_session_that_runs_already_can_be_attached_and_detached(
    opened: Home, target: Target, claude: Opened
) -> None:
    write_plugin(opened, "style", "Write short.")
    async with serving(opened):
        with claude() as terminal:
            assert bodies(await turn(terminal, "prompt before it"), "prompt before it") == []
            attach(opened, target)
            # The program looks at its settings in its own time.
            number = 0
            while True:
                number += 1
                prompt = f"attached {number}"
                if bodies(await turn(terminal, prompt), prompt) == ["Write short."]:
                    break
                assert number < 10
            detach(opened, target)
            while True:
                number += 1
                prompt = f"detached {number}"
                if bodies(await turn(terminal, prompt), prompt) == []:
                    break
                assert number < 20
            no_noise(terminal)
    assert list((target.project or target.file).iterdir()) == []


async def test_a_host_that_is_killed_leaves_the_session_with_the_last_set(
    opened: Home, target: Target, claude: Opened
) -> None:
    write_plugin(opened, "style", "Write short.")
    made = attach(opened, target).attachment
    process = started_host(opened)
    try:
        await asyncio.to_thread(until, Places(opened).endpoint.exists, "the host")
        await asyncio.to_thread(until, (Places(opened).snapshots(made.id) / "current").exists, "the set on disk")
        with claude() as terminal:
            assert bodies(await turn(terminal, "with a host"), "with a host") == ["Write short."]
            ended(process)
            assert bodies(await turn(terminal, "without a host"), "without a host") == ["Write short."]
            switch(opened, "style", on=False)
            await write_snapshots(opened)
            assert bodies(await turn(terminal, "switched off"), "switched off") == []
            no_noise(terminal)
    finally:
        ended(process)
    assert await asyncio.to_thread(bring_in, opened) == 2
    audit = Audit(opened)
    handed = [audit.turn(row.turn).handed_over for row in reversed(audit.turns())]
    assert [each.by for each in handed if each is not None] == ["host", "client", "client"]


async def test_neither_a_broken_home_nor_a_slow_plugin_nor_a_hanging_host_stops_a_turn(
    opened: Home, target: Target, claude: Opened
) -> None:
    write_plugin(opened, "style", "Write short.")
    write_plugin(opened, "slow", "Slow.", when="lambda agent: time.sleep(9) or True")
    attach(opened, target)
    with claude() as terminal:
        async with serving(opened):
            assert bodies(await turn(terminal, "a slow plugin"), "a slow plugin") == ["Write short."]
        process = started_host(opened)
        try:
            await asyncio.to_thread(until, Places(opened).endpoint.exists, "the host")
            os.kill(process.pid, 19)
            assert bodies(await turn(terminal, "a hanging host"), "a hanging host") == ["Write short."]
        finally:
            ended(process)
        for path in sorted(Places(opened).folder.rglob("*"), reverse=True):
            if path.is_file() and path != Places(opened).client:
                path.write_bytes(b"\xff\x00broken")
        assert bodies(await turn(terminal, "a broken home"), "a broken home") == []
        Places(opened).client.write_bytes(b"#!/gone/bash\n")
        assert bodies(await turn(terminal, "a broken client"), "a broken client") == []
        shutil.rmtree(opened.root)
        assert bodies(await turn(terminal, "a home that is gone"), "a home that is gone") == []
        no_noise(terminal)


async def test_after_a_compaction_the_next_prompt_carries_the_set(opened: Home, target: Target, claude: Opened) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    async with serving(opened):
        with claude() as terminal:
            await turn(terminal, "prompt 1")
            await turn(terminal, "prompt 2")
            terminal.type("/compact")
            await asyncio.to_thread(
                terminal.until, lambda: "ompacted" in terminal.screen() and "Compacting" not in terminal.screen(), "it"
            )
            write_plugin(opened, "other", "Be kind.")
            request = await turn(terminal, "prompt 3")
    assert bodies(request, "prompt 3") == ["Be kind.", "Write short."]
    assert b"hook additional context" not in before(request, "prompt 3")
    # `/compact` is no prompt: nothing is handed over with it.
    assert len(Audit(opened).turns()) == 3


async def test_a_message_that_is_typed_while_a_turn_runs_carries_the_set_as_well(
    opened: Home, target: Target, claude: Opened
) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    async with serving(opened):
        with claude() as terminal:
            terminal.type("rehearse: wait 3")
            await asyncio.to_thread(terminal.until, lambda: terminal.request("rehearse: wait 3"), "the first request")
            request = await turn(terminal, "typed meanwhile")
    assert "Write short." in bodies(request, "typed meanwhile")
    assert len(Audit(opened).turns()) == 2


async def test_a_resumed_session_replays_the_old_sets_and_gets_the_new_one(
    opened: Home, target: Target, claude: Opened
) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    async with serving(opened):
        with claude() as terminal:
            first = await turn(terminal, "the first")
        switch(opened, "style", on=False)
        write_plugin(opened, "other", "Be kind.")
        with claude("--continue") as terminal:
            second = await turn(terminal, "the second")
    assert bodies(first, "the first") == ["Write short."]
    assert bodies(second, "the second") == ["Be kind."]
    assert b"Write short." in before(second, "the second")
    newest, oldest = Audit(opened).turns()
    assert newest.session == oldest.session


async def test_others_hooks_run_beside_ours(opened: Home, target: Target, claude: Opened) -> None:
    theirs = {
        "hooks": {
            "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "echo THEIRS"}]}],
            "Stop": [{"hooks": [{"type": "command", "command": "true"}]}],
        },
        "permissions": {"allow": ["Bash(ls:*)"]},
    }
    target.file.parent.mkdir()
    octets = json.dumps(theirs, indent=4).encode("utf-8")
    target.file.write_bytes(octets)
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    async with serving(opened):
        with claude() as terminal:
            request = await turn(terminal, "prompt with both")
    assert bodies(request, "prompt with both") == ["Write short."]
    assert "THEIRS" in arrived(request, "prompt with both")
    detach(opened, target)
    assert target.file.read_bytes() == octets


async def test_a_prompt_of_a_person_and_of_a_project_attached_at_once_carries_the_sections_once(
    opened: Home, target: Target, claude: Opened
) -> None:
    write_plugin(opened, "style", "Write short.")
    write_plugin(opened, "for-dev", "For dev.", when="lambda agent: agent.name == 'dev'")
    attach(opened, target, agent="dev")
    attach(opened, Target.of(None, user=True), agent="main")
    async with serving(opened):
        with claude() as terminal:
            online = await turn(terminal, "prompt with a host")
            switch(opened, "style", on=False)
            changed = await turn(terminal, "prompt after a switch")
    with claude("--continue") as terminal:
        offline = await turn(terminal, "prompt without one")
    assert bodies(online, "prompt with a host") == ["For dev.", "Write short."]
    assert bodies(changed, "prompt after a switch") == bodies(offline, "prompt without one") == ["For dev."]
    assert [row.agent for row in Audit(opened).turns()] == ["dev", "dev"]


async def test_a_prompt_in_the_middle_of_a_tool_carries_the_set_as_well(
    opened: Home, target: Target, claude: Opened
) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    call = 'rehearse: call Bash {"command": "sleep 4", "description": "waits"}'
    async with serving(opened):
        with claude("--allowedTools", "Bash(sleep:*)") as terminal:
            terminal.type(call)
            await asyncio.to_thread(terminal.until, lambda: terminal.request(call), "the first request")
            await asyncio.to_thread(terminal.until, lambda: "$ sleep 4" in terminal.screen(), "the tool")
            request = await turn(terminal, "typed while a tool runs")
    assert bodies(request, "typed while a tool runs") == ["Write short."]
    assert len(Audit(opened).turns()) == 2
