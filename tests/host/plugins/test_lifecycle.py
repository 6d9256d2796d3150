"""The life of plugins: started, replaced, retried and stopped, each for itself."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import attrs
import pytest

from buzz_author.errors import BuzzError
from buzz_host.plugins.contributions import INSTRUCTIONS
from buzz_host.plugins.services import ServiceRegistry
from tests.host.plugins import stage
from tests.host.plugins.making import (
    SHORT,
    eventually,
    running,
    source_of,
    speaking,
    spoken,
    status_of,
    write_plugin,
)

pytestmark = pytest.mark.anyio

WATCHED = """
    from tests.host.plugins import stage
    inject = ("agents",)
    stage.say("imported {name}")

    async def apply(ctx):
        stage.say("applied {name}")
        ctx.effect(lambda: stage.say("stopped {name}"))
        ctx.agents.add_instructions(id="main", text="{name}")
"""

NEEDS_CLOCK = """
    from tests.host.plugins import stage
    inject = ("agents", "clock")

    def apply(ctx):
        stage.say(f"applied with {ctx.clock}")
        if stage.behaviour.get("clock") == "raise":
            raise ValueError("not again")
        ctx.effect(lambda: stage.say("stopped"))
        ctx.agents.addInstructions(id="main", text="tick")
"""


@pytest.mark.req("PLG-01", "PLG-02")
async def test_a_plugin_is_started_and_stopped(tmp_path: Path) -> None:
    source = source_of(write_plugin(tmp_path, "a", WATCHED.format(name="a")))
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([source])
        assert status_of(runtime, "a").state == "starting"
        assert await runtime.settled() == ()
        status = status_of(runtime, "a")
        assert (status.state, status.revision, status.error) == ("active", source.content_hash, None)
        assert spoken(runtime.contributions) == [("a/main", "a")]
        runtime.reconcile([])
        assert status_of(runtime, "a").state == "disabled"
        assert await runtime.settled() == ()
        assert stage.said == ["imported a", "applied a", "stopped a"]
        assert runtime.faults() == ()


@pytest.mark.req("PLG-02", "INS-06")
async def test_what_is_switched_off_is_gone_before_reconcile_returns(tmp_path: Path) -> None:
    source = speaking(tmp_path, "a")
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([source])
        await runtime.settled()
        runtime.reconcile([])
        assert spoken(runtime.contributions) == []


@pytest.mark.req("PLG-02")
async def test_reconcile_is_idempotent_and_a_look_at_the_catalogue_restarts_nothing(tmp_path: Path) -> None:
    source = source_of(write_plugin(tmp_path, "a", WATCHED.format(name="a")))
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([source])
        runtime.reconcile([source])
        await runtime.settled()
        snapshot = runtime.contributions.snapshot(INSTRUCTIONS)
        for _ in range(5):
            runtime.reconcile([attrs.evolve(source, description="told otherwise")])
            await runtime.settled()
        assert stage.said == ["imported a", "applied a"]
        assert runtime.contributions.snapshot(INSTRUCTIONS) is snapshot
        assert status_of(runtime, "a").source.description == "told otherwise"
        runtime.reconcile([])
        runtime.reconcile([])
        await runtime.settled()
        assert stage.said.count("stopped a") == 1


@pytest.mark.req("PLG-02", "PLG-03", "INS-06")
async def test_what_is_registered_in_a_slow_apply_is_hidden_until_it_has_finished(tmp_path: Path) -> None:
    code = """
        import asyncio
        from tests.host.plugins import stage

        async def apply(ctx):
            ctx.agents.addInstructions(id="main", text="early")
            stage.say("registered")
            while not stage.gates["go"].is_set():
                await asyncio.sleep(0.001)
    """
    source = source_of(write_plugin(tmp_path, "a", code))
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([source])
        await eventually(lambda: stage.said)
        assert spoken(runtime.contributions) == []
        assert status_of(runtime, "a").state == "starting"
        (late,) = await runtime.settled(0.01)
        assert (late.plugin, late.phase) == ("a", "starting")
        assert re.fullmatch(r"not active yet after \d+ ms", late.message)
        stage.gates["go"].set()
        assert await runtime.settled() == ()
        assert spoken(runtime.contributions) == [("a/main", "early")]


@pytest.mark.req("PLG-02")
async def test_a_failure_costs_its_plugin_only_and_stays_until_it_is_retried(tmp_path: Path) -> None:
    code = """
        from tests.host.plugins import stage

        def apply(ctx):
            stage.say("applied")
            ctx.effect(lambda: stage.say("cleaned up"))
            ctx.agents.addInstructions(id="main", text="never seen")
            if stage.behaviour.get("bad") != "mended":
                raise ValueError("no luck")
    """
    bad, good = source_of(write_plugin(tmp_path, "bad", code)), speaking(tmp_path, "good")
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([bad, good])
        await runtime.settled()
        status = status_of(runtime, "bad")
        assert status.state == "failed"
        assert status.error is not None
        assert (status.error.phase, status.error.message) == ("apply", "ValueError: no luck (plugin.py:9)")
        assert f'File "{tmp_path}/bad/plugin.py"' in status.error.traceback
        assert runtime.faults() == (status.error,)
        assert spoken(runtime.contributions) == [("good/main", "hello")]
        assert stage.said == ["applied", "cleaned up"]

        runtime.reconcile([bad, good])
        await runtime.settled()
        assert stage.said == ["applied", "cleaned up"], "the same wish is not another attempt"

        stage.behaviour["bad"] = "mended"
        assert runtime.retry("bad")
        assert not runtime.retry("good")
        assert not runtime.retry("nobody")
        await runtime.settled()
        assert status_of(runtime, "bad").state == "active"
        assert runtime.faults() == ()


@pytest.mark.req("PLG-02")
async def test_off_and_on_again_retries_and_so_does_a_new_revision(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path, "a", "raise ValueError('broken')")
    source = source_of(folder)
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([source])
        await runtime.settled()
        assert status_of(runtime, "a").state == "failed"
        runtime.reconcile([])
        runtime.reconcile([source])
        assert status_of(runtime, "a").state == "starting"
        await runtime.settled()
        error = status_of(runtime, "a").error
        assert error is not None
        assert (error.phase, error.message) == ("load", "ValueError: broken (plugin.py:1)")
        assert len(runtime.faults()) == 1
        mended = speaking(tmp_path, "a", "mended")
        runtime.reconcile([mended])
        await runtime.settled()
        assert spoken(runtime.contributions) == [("a/main", "mended")]
        assert runtime.faults() == ()


@pytest.mark.req("PLG-02")
@pytest.mark.parametrize("error", ["SystemExit(3)", "KeyboardInterrupt()", "BaseException('x')", "StopIteration()"])
@pytest.mark.parametrize("place", ["module", "apply", "async apply", "disposer"])
async def test_whatever_a_plugin_raises_is_a_fault_of_its_own(tmp_path: Path, error: str, place: str) -> None:
    code = {
        "module": f"raise {error}",
        "apply": f"def apply(ctx):\n    raise {error}",
        "async apply": f"async def apply(ctx):\n    raise {error}",
        "disposer": f"def apply(ctx):\n    def stop():\n        raise {error}\n    ctx.effect(stop)",
    }[place]
    bad, good = source_of(write_plugin(tmp_path, "bad", code)), speaking(tmp_path, "good")
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([bad, good])
        await runtime.settled()
        assert spoken(runtime.contributions) == [("good/main", "hello")]
        runtime.reconcile([good])
        await runtime.settled()
        phase = {"module": "load", "disposer": "dispose"}.get(place, "apply")
        if phase == "dispose":
            (fault,) = runtime.faults()
            assert (fault.plugin, fault.phase) == ("bad", phase)
            assert status_of(runtime, "bad").error == fault
        else:
            assert [(each.plugin, each.phase) for each in runtime.faults()] == [("bad", phase)]
        assert spoken(runtime.contributions) == [("good/main", "hello")]


@pytest.mark.req("PLG-02", "PLG-03")
async def test_a_repeated_id_fails_its_plugin_and_no_other(tmp_path: Path) -> None:
    code = """
        def apply(ctx):
            ctx.agents.addInstructions(id="main", text="one")
            ctx.agents.addInstructions(id="main", text="two")
    """
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([source_of(write_plugin(tmp_path, "twice", code)), speaking(tmp_path, "good")])
        await runtime.settled()
        assert spoken(runtime.contributions) == [("good/main", "hello")]
        (fault,) = runtime.faults()
        assert fault.message == (
            "plugin 'twice': instructions 'main' is registered already: choose another id, or dispose of the first one"
            " (plugin.py:4)"
        )


@pytest.mark.req("PLG-02", "INS-05")
async def test_the_order_in_which_plugins_start_never_shows(tmp_path: Path) -> None:
    code = """
        from tests.host.plugins import stage

        def apply(ctx):
            stage.wait("go {name}")
            ctx.agents.addInstructions(id="main", text="{name}")
    """
    names = ["b", "a-1", "a", "a_0"]
    sources = [source_of(write_plugin(tmp_path, name, code.format(name=name))) for name in names]
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile(sources)
        for name in names:
            stage.gates[f"go {name}"].set()
            await eventually(lambda name=name: status_of(runtime, name).state == "active")
        assert [key for key, _ in spoken(runtime.contributions)] == ["a/main", "a-1/main", "a_0/main", "b/main"]


@pytest.mark.req("PLG-02")
async def test_a_plugin_waits_for_its_services_and_says_for_which(tmp_path: Path) -> None:
    services = ServiceRegistry()
    source = source_of(write_plugin(tmp_path, "a", NEEDS_CLOCK))
    async with running(tmp_path / "home", services=services, limits=SHORT) as runtime:
        runtime.reconcile([source])
        (late,) = await runtime.settled()
        assert late.message == "it waits for 'clock', which this host does not provide now"
        assert status_of(runtime, "a").waiting_for == ("clock",)
        await asyncio.sleep(SHORT.activate_s * 1.5)  # nothing happens: the wait has no limit
        assert status_of(runtime, "a").state == "starting"
        services.provide("clock", "noon")
        await eventually(lambda: status_of(runtime, "a").state == "active")
        assert status_of(runtime, "a").waiting_for == ()
        assert stage.said == ["applied with noon"]


@pytest.mark.req("PLG-02")
async def test_a_lost_service_hides_its_plugin_at_once_and_applies_it_again_when_it_returns(tmp_path: Path) -> None:
    clock = object()
    services = ServiceRegistry({"clock": clock})
    source = source_of(write_plugin(tmp_path, "a", NEEDS_CLOCK))
    async with running(tmp_path / "home", services=services) as runtime:
        runtime.reconcile([source, speaking(tmp_path, "b")])
        await runtime.settled()
        assert len(spoken(runtime.contributions)) == 2
        await asyncio.to_thread(services.withdraw, "clock")
        assert spoken(runtime.contributions) == [("b/main", "hello")]
        await runtime.settled()
        status = status_of(runtime, "a")
        assert (status.state, status.waiting_for) == ("starting", ("clock",))
        assert stage.said == [f"applied with {clock}", "stopped"]
        await asyncio.to_thread(services.provide, "clock", clock)
        await eventually(lambda: status_of(runtime, "a").state == "active")
        assert stage.said == [f"applied with {clock}", "stopped", f"applied with {clock}"]
        assert len(spoken(runtime.contributions)) == 2


@pytest.mark.req("PLG-02")
async def test_a_restart_that_fails_is_told_and_not_repeated(tmp_path: Path) -> None:
    services = ServiceRegistry({"clock": 1})
    source = source_of(write_plugin(tmp_path, "a", NEEDS_CLOCK))
    async with running(tmp_path / "home", services=services) as runtime:
        runtime.reconcile([source])
        await runtime.settled()
        stage.behaviour["clock"] = "raise"
        services.withdraw("clock")
        services.provide("clock", 2)
        await runtime.settled()
        assert status_of(runtime, "a").state == "failed"
        services.withdraw("clock")
        services.provide("clock", 3)
        runtime.reconcile([source])
        await runtime.settled()
        assert stage.said == ["applied with 1", "stopped", "applied with 2"]
        assert status_of(runtime, "a").state == "failed"


@pytest.mark.req("PLG-02")
async def test_a_service_that_comes_and_goes_quickly_leaves_one_activation(tmp_path: Path) -> None:
    services = ServiceRegistry({"clock": 0})
    source = source_of(write_plugin(tmp_path, "a", NEEDS_CLOCK))
    async with running(tmp_path / "home", services=services) as runtime:
        runtime.reconcile([source])
        await runtime.settled()
        for number in range(1, 20):
            services.withdraw("clock")
            services.provide("clock", number)
        await runtime.settled()
        assert stage.said == ["applied with 0", "stopped", "applied with 19"]
        assert spoken(runtime.contributions) == [("a/main", "tick")]


@pytest.mark.req("PLG-02")
async def test_new_settings_start_a_plugin_anew(tmp_path: Path) -> None:
    code = """
        def apply(ctx):
            ctx.agents.addInstructions(id="main", text=f"tone: {ctx.settings['tone']}")
    """
    manifest = '[config.tone]\ntype = "string"\ndefault = "kind"\n'
    source = source_of(write_plugin(tmp_path, "a", code, manifest=manifest))
    settings = dict(source.defaults)
    async with running(tmp_path / "home", settings_of=lambda _: dict(settings)) as runtime:
        runtime.reconcile([source])
        await runtime.settled()
        assert spoken(runtime.contributions) == [("a/main", "tone: kind")]
        settings["tone"] = "stern"
        runtime.reconcile([source])
        await runtime.settled()
        assert spoken(runtime.contributions) == [("a/main", "tone: stern")]


@pytest.mark.req("PLG-02")
async def test_closing_stops_all_at_once_and_refuses_what_comes_later(tmp_path: Path) -> None:
    code = """
        import asyncio
        from tests.host.plugins import stage

        def apply(ctx):
            async def stop():
                stage.say("stopping")
                while len(stage.said) < 8:
                    await asyncio.sleep(0.001)
            ctx.effect(stop)
    """
    sources = [source_of(write_plugin(tmp_path, f"p{number}", code)) for number in range(8)]
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile(sources)
        await runtime.settled()
        assert await runtime.close(10) == ()
        assert await runtime.close(10) == ()
        assert {status.state for status in runtime.states()} == {"disabled"}
        with pytest.raises(BuzzError, match="closing"):
            runtime.reconcile(sources)


@pytest.mark.req("PLG-02")
async def test_a_hundred_plugins_start_together(tmp_path: Path) -> None:
    sources = [speaking(tmp_path, f"p{number}") for number in range(100)]
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile(sources)
        await runtime.settled(30)
        assert len(spoken(runtime.contributions)) == 100
        runtime.reconcile([])
        await runtime.settled(30)
        assert not [name for name in sys.modules if name.startswith("buzz_plugins.")]


@pytest.mark.req("PLG-02")
async def test_the_plugins_own_tasks_run_while_it_is_active_and_end_with_it(tmp_path: Path) -> None:
    code = """
        import asyncio
        from tests.host.plugins import stage

        async def tick():
            try:
                while True:
                    stage.say("tick")
                    await asyncio.sleep(0.001)
            finally:
                stage.say("ended")

        async def apply(ctx):
            apply.task = asyncio.create_task(tick())
    """
    source = source_of(write_plugin(tmp_path, "a", code))
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([source])
        await eventually(lambda: stage.said.count("tick") > 3)
        runtime.reconcile([])
        await eventually(lambda: "ended" in stage.said)
        assert stage.said[-1] == "ended"


@pytest.mark.req("PLG-02")
async def test_a_task_of_a_plugin_that_exits_costs_that_task_only(
    tmp_path: Path,
) -> None:
    code = """
        import asyncio
        from tests.host.plugins import stage

        async def leave():
            raise SystemExit(7)

        async def apply(ctx):
            apply.task = asyncio.create_task(leave())
            ctx.effect(lambda: stage.say("stopped"))
            ctx.agents.addInstructions(id="main", text="still here")
    """
    source = source_of(write_plugin(tmp_path, "a", code))
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([source])
        await runtime.settled()
        await eventually(runtime.faults)
        (fault,) = runtime.faults()
        assert (fault.phase, fault.message) == ("task", "SystemExit: 7 (plugin.py:6)")
        assert spoken(runtime.contributions) == [("a/main", "still here")]
        runtime.reconcile([])
        await runtime.settled()
        assert stage.said == ["stopped"]
