"""`ctx`: what a plugin can register through it, from where, and what it is told when it is wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from buzz_author import AgentInstructions
from buzz_author.errors import InvalidName, PluginClosed, RegistrationError
from buzz_author.harness import Capabilities
from buzz_author.plugins import Agents, PluginContext
from buzz_author.ported import pep8_name
from buzz_host.plugins.context import HostContext
from buzz_host.plugins.contributions import HARNESSES, INSTRUCTIONS, NOTES, NOTES_WAITING_MAX
from buzz_host.plugins.ctx_agents import HostAgents, Rendering
from buzz_host.plugins.lifecycle import PluginRuntime
from buzz_host.settings import HomeError
from tests.host.plugins import stage
from tests.host.plugins.making import eventually, running, source_of, spoken, status_of, write_plugin

pytestmark = pytest.mark.anyio

HOLDS = """
    from tests.host.plugins import stage

    async def apply(ctx):
        stage.contexts.append(ctx)
"""


async def held(runtime: PluginRuntime, tmp_path: Path, name: str = "a", **options: str) -> Any:
    """The context of a plugin that does nothing itself, once it is active."""
    runtime.reconcile([source_of(write_plugin(tmp_path, name, HOLDS, **options))])
    await runtime.settled()
    assert status_of(runtime, name).state == "active"
    return stage.contexts[-1]


@pytest.mark.req("INS-01")
async def test_instructions_are_taken_in_all_three_forms_and_under_both_names(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as runtime:
        ctx = await held(runtime, tmp_path)
        dispose = ctx.agents.addInstructions(id="a", text="one")
        ctx.agents.addInstructions({"id": "b", "text": " two \n"})
        ctx.agents.add_instructions(AgentInstructions("c", "three", when=lambda _: True))
        assert spoken(runtime.contributions) == [("a/a", "one"), ("a/b", "two"), ("a/c", "three")]
        dispose()
        assert spoken(runtime.contributions) == [("a/b", "two"), ("a/c", "three")]


@pytest.mark.req("INS-01")
@pytest.mark.parametrize("made", [HostAgents, Rendering])
def test_each_ported_name_has_its_twin_and_it_is_the_same_function(made: type) -> None:
    ported = [name for name in dir(made) if not name.startswith("_") and pep8_name(name) != name]
    assert ported
    for name in ported:
        assert getattr(made, pep8_name(name)) is getattr(made, name)


@pytest.mark.req("INS-01", "PLG-01")
def test_the_context_is_what_authors_are_promised() -> None:
    promised = {name for name in vars(PluginContext) if not name.startswith("_")}
    assert promised <= set(dir(HostContext)) | {"agents", "settings", "log"}
    assert {name for name in vars(Agents) if not name.startswith("_")} <= set(dir(HostAgents))


@pytest.mark.req("INS-02")
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("x" * 4096, "x" * 4096),
        ("\u2003\ufeff" + "é" * 2048 + "\n", "é" * 2048),
        ("\ud800", "\ufffd"),
        ("\ufeff text \u00a0", "text"),
        ("\x1ctext\x85", "\x1ctext\x85"),
    ],
    ids=["4096 bytes", "4096 after trimming", "lone surrogate", "only ECMAScript trims it", "only Python trims it"],
)
async def test_texts_at_the_limit_are_kept(tmp_path: Path, text: str, kept: str) -> None:
    async with running(tmp_path / "home") as runtime:
        ctx = await held(runtime, tmp_path)
        ctx.agents.addInstructions(id="a", text=text)
        assert spoken(runtime.contributions) == [("a/a", kept)]


@pytest.mark.req("INS-02", "INS-03")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"id": "a", "text": "x" * 4097}, "has 4097 bytes of UTF-8 after trimming, the limit is 4096"),
        ({"id": "a", "text": "\ufeff \u2003\n"}, "the text is empty"),
        ({"id": 'a" onload="x', "text": "x"}, "id 'a\" onload=\"x' is not allowed"),
        ({"id": "../a", "text": "x"}, "id '../a' is not allowed"),
        ({"id": "a\nb", "text": "x"}, "id 'a\\nb' is not allowed"),
        ({"id": "A", "text": "x"}, "is not allowed"),
        ({"id": "a" * 65, "text": "x"}, "is not allowed"),
        ({"id": None, "text": "x"}, "is not allowed"),
        ({"id": "a", "text": b"x"}, "text must be a str, not bytes"),
        ({"id": "a", "text": "x", "when": True}, "when must be a function of the agent, not bool"),
    ],
)
async def test_what_cannot_be_registered_is_refused_in_one_line(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    async with running(tmp_path / "home") as runtime:
        ctx = await held(runtime, tmp_path)
        with pytest.raises((RegistrationError, InvalidName)) as caught:
            ctx.agents.addInstructions(**arguments)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
        assert spoken(runtime.contributions) == []


@pytest.mark.req("INS-03")
async def test_the_callers_object_is_not_kept(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as runtime:
        ctx = await held(runtime, tmp_path)
        given = {"id": "a", "text": "before"}
        ctx.agents.addInstructions(given)
        given["text"] = "after"
        assert spoken(runtime.contributions) == [("a/a", "before")]


@pytest.mark.req("INS-12")
async def test_a_note_is_for_one_agent_and_labelled_with_its_plugin(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as runtime:
        ctx = await held(runtime, tmp_path)
        ctx.agents.addNote("main", "the build is green </plugin-note>")
        take_back = ctx.agents.add_note("main", "never mind")
        take_back()
        (note,) = runtime.contributions.take_notes("main")
        assert note.value.section.rendered == (
            '<plugin-note plugin="a">\nthe build is green &lt;/plugin-note>\n</plugin-note>'
        )
        take_back()


@pytest.mark.req("INS-12")
async def test_notes_that_nobody_could_carry_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as runtime:
        ctx = await held(runtime, tmp_path)
        for agent, text in (("main", " \n"), ("main", 5), ("no such/agent", "x"), (None, "x")):
            with pytest.raises((RegistrationError, InvalidName)):
                ctx.agents.addNote(agent, text)
        for number in range(NOTES_WAITING_MAX):
            ctx.agents.addNote("sleeps", f"{number}")
        with pytest.raises(RegistrationError, match="there are 100 of kind 'note' already"):
            ctx.agents.addNote("sleeps", "one too many")
        assert len(runtime.contributions.snapshot(NOTES)) == NOTES_WAITING_MAX


class Echo:
    id = "echo"
    title = "Echo"
    capabilities = Capabilities()

    async def probe(self) -> None: ...
    def encode(self, text: str, spec: object) -> str:
        return text

    async def open(self, spec: object, host: object) -> None: ...


@pytest.mark.req("HAR-02", "PLG-03")
async def test_a_harness_is_offered_under_the_id_that_it_had_then(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as runtime:
        ctx = await held(runtime, tmp_path)
        harness = Echo()
        dispose = ctx.agents.registerHarness(harness)
        harness.id = "other"
        (only,) = runtime.contributions.snapshot(HARNESSES)
        assert (only.key, only.value) == ("a/echo", harness)
        dispose()
        assert runtime.contributions.snapshot(HARNESSES) == ()
        for wrong in (None, object(), type("NoOpen", (), {"id": "x", "title": "X"})()):
            with pytest.raises((RegistrationError, InvalidName)):
                ctx.agents.registerHarness(wrong)


@pytest.mark.req("PLG-02")
async def test_every_call_may_come_from_any_thread(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as runtime:
        ctx = await held(runtime, tmp_path)

        def work(number: int) -> None:
            ctx.agents.addInstructions(id=f"i{number}", text="x")
            ctx.agents.addNote("main", f"{number}")
            ctx.effect(lambda: stage.say(f"{number}"))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(runtime.contributions.snapshot(INSTRUCTIONS)) == 20
        assert len(runtime.contributions.take_notes("main")) == 20
        runtime.reconcile([])
        await runtime.settled()
        assert sorted(stage.said, key=int) == [str(number) for number in range(20)]


@pytest.mark.req("PLG-02")
async def test_after_the_end_every_call_is_refused_and_reading_still_works(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as runtime:
        ctx = await held(runtime, tmp_path)
        runtime.reconcile([])
        await runtime.settled()
        for call in (
            lambda: ctx.agents.addInstructions(id="a", text="x"),
            lambda: ctx.agents.addNote("main", "x"),
            lambda: ctx.agents.registerHarness(Echo()),
            lambda: ctx.effect(lambda: None),
        ):
            with pytest.raises(PluginClosed, match="plugin 'a' was stopped"):
                call()
        with pytest.raises(PluginClosed):
            await ctx.spawn(["true"])
        assert ctx.plugin.id == "a"
        assert dict(ctx.settings) == {}


@pytest.mark.req("PLG-01")
async def test_only_a_function_can_clean_up(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as runtime:
        ctx = await held(runtime, tmp_path)
        with pytest.raises(RegistrationError, match="effect: expected a function that cleans up, found NoneType"):
            ctx.effect(None)


@pytest.mark.req("PLG-01", "SEC-03")
async def test_a_plugin_has_a_folder_of_its_own_made_when_it_asks(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running(home) as runtime:
        ctx = await held(runtime, tmp_path, manifest='version = "2.1"\n')
        assert not home.exists()
        identity = ctx.plugin
        assert (identity.id, identity.version) == ("a", "2.1")
        assert identity.revision == status_of(runtime, "a").revision
        assert identity.data_dir == home / "data" / "a"
        assert identity.data_dir.is_dir()
        assert ctx.plugin is identity


@pytest.mark.req("PLG-01")
async def test_a_home_that_cannot_be_used_is_a_line_and_no_crash(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file", encoding="utf-8")
    async with running(home) as runtime:
        ctx = await held(runtime, tmp_path)
        with pytest.raises(HomeError, match="a folder is needed here"):
            _ = ctx.plugin


@pytest.mark.req("PLG-01")
async def test_settings_are_read_only_and_the_log_is_named_after_the_plugin(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = '[config.limit]\ntype = "number"\ndefault = 3\n'
    async with running(tmp_path / "home") as runtime:
        ctx = await held(runtime, tmp_path, manifest=manifest)
        assert json.dumps(dict(ctx.settings)) == '{"limit": 3}'
        with pytest.raises(TypeError):
            ctx.settings["limit"] = 4
        with caplog.at_level(logging.INFO):
            ctx.log.info("hello")
        assert [(record.name, record.message) for record in caplog.records] == [("buzz.plugin.a", "hello")]


@pytest.mark.req("PLG-01")
async def test_a_service_that_was_not_asked_for_is_not_there(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as runtime:
        runtime.services.provide("clock", object())
        ctx = await held(runtime, tmp_path)
        with pytest.raises(AttributeError, match=r"ctx has no 'clock'.*inject = \['clock'\]"):
            _ = ctx.clock


class FakeProcess:
    def __init__(self) -> None:
        self.killed = 0
        self.returncode: int | None = None

    def kill(self) -> None:
        self.killed += 1
        self.returncode = -9

    async def wait(self) -> int:
        return -9


@pytest.mark.req("PLG-02")
@pytest.mark.parametrize("ended", [False, True])
async def test_what_a_plugin_starts_dies_with_it(tmp_path: Path, ended: bool) -> None:
    process, asked = FakeProcess(), []

    async def spawn(argv: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None) -> Any:
        asked.append((argv, env, cwd))
        return process

    async with running(tmp_path / "home", spawn=spawn) as runtime:
        ctx = await held(runtime, tmp_path)
        assert await ctx.spawn(["x"], env={"A": "b"}, cwd=tmp_path) is process
        assert asked == [(["x"], {"A": "b"}, tmp_path)]
        if ended:
            process.returncode = 0
        runtime.reconcile([])
        await runtime.settled()
        assert process.killed == (0 if ended else 1)


@pytest.mark.req("PLG-02")
async def test_what_starts_while_the_plugin_stops_is_ended_at_once(tmp_path: Path) -> None:
    process, asked, started = FakeProcess(), asyncio.Event(), asyncio.Event()

    async def spawn(argv: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None) -> Any:
        asked.set()
        await started.wait()
        return process

    async with running(tmp_path / "home", spawn=spawn) as runtime:
        ctx = await held(runtime, tmp_path)
        spawning = asyncio.create_task(ctx.spawn(["x"]))
        await asked.wait()
        runtime.reconcile([])
        started.set()
        with pytest.raises(PluginClosed):
            await spawning
        assert process.killed == 1


@pytest.mark.req("PLG-02")
async def test_without_a_way_to_start_programs_the_plugin_is_told(tmp_path: Path) -> None:
    async with running(tmp_path / "home") as runtime:
        ctx = await held(runtime, tmp_path)
        with pytest.raises(RegistrationError, match="no program can be started here"):
            await ctx.spawn(["x"])
        await eventually(lambda: True)
