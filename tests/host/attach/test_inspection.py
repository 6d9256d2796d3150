"""What `attach status` and doctor say of attachments: what stands, what is wrong, and what to do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from buzz_host.attach.attaching import Target, attach
from buzz_host.attach.inspection import Finding, findings, status
from buzz_host.attach.listener import endpoint_line, started_at
from buzz_host.attach.registry import Places
from buzz_host.attach.snapshots import write_snapshots
from buzz_host.services.plugins import switch
from buzz_host.settings import Home
from tests.host.attach.conftest import Ask, hook_input, hooks_of, write_plugin

pytestmark = [pytest.mark.anyio, pytest.mark.req("AUT-03", "OPS-01")]


def problems(home: Home) -> list[str]:
    return [each.message for each in findings(home) if each.level == "problem"]


def about(home: Home, words: str) -> list[Finding]:
    return [each for each in findings(home) if words in each.message]


async def test_nothing_attached_is_nothing_to_say(opened: Home) -> None:
    assert findings(opened) == ()
    found = status(opened)
    assert (found.attachments, found.host, found.waiting) == ((), None, 0)


async def test_what_stands_is_told(opened: Home, target: Target, ask: Ask) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    (row,) = status(opened).attachments
    assert (row.in_place, row.agent, row.entries_used, row.characters) == (True, "main", None, None)
    await write_snapshots(opened)
    ask(hooks_of(target.file)[0], hook_input())
    found = status(opened)
    (row,) = found.attachments
    assert (row.entries_used, row.left_out, found.waiting) == (1, 0, 1)
    assert row.characters is not None
    assert row.characters > len("Write short.")
    assert problems(opened) == []
    assert len(about(opened, "buzz serve")) == 1
    assert len(about(opened, "1 notes")) == 1


async def test_a_host_counts_only_while_its_process_lives(opened: Home, target: Target) -> None:
    attach(opened, target)
    endpoint = Places(opened).endpoint
    endpoint.write_text(endpoint_line(1, "t"), encoding="ascii")
    assert status(opened).host == os.getpid()
    started = started_at(os.getpid())
    assert started is not None
    endpoint.write_text(endpoint_line(1, "t").replace(started, "1"), encoding="ascii")
    assert status(opened).host is None
    endpoint.write_text("garbage", encoding="ascii")
    assert status(opened).host is None


async def test_each_thing_that_is_wrong_is_one_line(opened: Home, target: Target) -> None:
    attach(opened, target)
    good = target.file.read_text(encoding="utf-8")
    target.file.write_text("{}", encoding="utf-8")
    assert "no longer has our entries" in problems(opened)[0]
    target.file.write_text("{broken", encoding="utf-8")
    assert "no longer has our entries" in problems(opened)[0]
    target.file.write_text("// mine\n" + good, encoding="utf-8")
    assert "has comments" in problems(opened)[0]
    target.file.write_text(good.replace("{", '{"disableAllHooks": true,', 1), encoding="utf-8")
    assert "disableAllHooks" in problems(opened)[0]
    target.file.write_text(good, encoding="utf-8")
    Places(opened).client.unlink()
    assert "is missing or changed" in problems(opened)[0]
    Places(opened).registry.write_text("{", encoding="utf-8")
    assert "is damaged" in problems(opened)[0]
    assert all("\n" not in each.message for each in findings(opened))


async def test_a_machine_without_bash_is_told(opened: Home, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    attach(opened, target)
    monkeypatch.setenv("PATH", "/nowhere")
    assert any("needs bash" in line for line in problems(opened))


async def test_what_does_not_fit_is_told(opened: Home, target: Target) -> None:
    for number in range(4):
        write_plugin(opened, f"p{number}", "x" * 4000)
    attach(opened, target, entries=1)
    await write_snapshots(opened)
    (found,) = about(opened, "do not fit")
    assert "2 sections" in found.message
    assert "--entries 2" in found.message


@pytest.mark.parametrize("where", ["skill", "user skill", "plugin", "hook", "enabled"])
async def test_the_same_plugin_natively_is_named(opened: Home, target: Target, project: Path, where: str) -> None:
    write_plugin(opened, "style_guide", "Write short.")
    attach(opened, target)
    person = project.parent / "person" / ".claude"
    person.mkdir()
    shared = project / ".claude" / "settings.json"
    match where:
        case "skill":
            (project / ".claude" / "skills" / "style-guide").mkdir(parents=True)
        case "user skill":
            (person / "skills" / "style-guide").mkdir(parents=True)
        case "plugin":
            (person / "plugins" / "style-guide").mkdir(parents=True)
        case "hook":
            hook = {"type": "command", "command": "python3 '/opt/style-guide/hook.py' --x"}
            shared.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}), encoding="utf-8")
        case _:
            (person / "settings.json").write_text(
                json.dumps({"enabledPlugins": {"style-guide@market": True, "off@market": False}}), encoding="utf-8"
            )
    (found,) = about(opened, "is there twice")
    assert "'style_guide'" in found.message
    assert "buzz plugin disable style_guide" in found.message
    switch(opened, "style_guide", on=False)
    assert about(opened, "is there twice") == []


async def test_settings_of_any_shape_stop_no_look(opened: Home, target: Target, project: Path) -> None:
    attach(opened, target)
    shared = project / ".claude" / "settings.json"
    groups: list[Any] = [7, [7], [{"hooks": 7}], [{"hooks": [7, {"command": 7, "args": 7}]}]]
    values = [[], 7, {"hooks": 7}, {"enabledPlugins": 7}, *({"hooks": {"UserPromptSubmit": each}} for each in groups)]
    for value in values:
        shared.write_text(json.dumps(value), encoding="utf-8")
        assert problems(opened) == []
