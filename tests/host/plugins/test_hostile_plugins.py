"""Plugins that hang, spin, come late or refuse to stop: each costs itself, never the host or another plugin."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent

import pytest

from buzz_author.errors import PluginClosed
from buzz_host.plugins.activation import Limits
from buzz_host.plugins.services import ServiceRegistry
from tests.host.plugins import stage
from tests.host.plugins.making import (
    SHORT,
    WAIT_S,
    eventually,
    running,
    source_of,
    speaking,
    spoken,
    status_of,
    write_plugin,
)

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[3]


def threads_of(plugin: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"buzz plugin {plugin}"]


@pytest.mark.req("PLG-02")
@pytest.mark.parametrize(
    ("code", "phase", "message"),
    [
        ("while True: pass", "load", "its module was still being imported after 0.8 s"),
        ("def apply(ctx):\n    while True: pass", "apply", "apply(ctx) had not returned after 0.8 s"),
        (
            "import asyncio\nasync def apply(ctx):\n    await asyncio.Event().wait()",
            "apply",
            "apply(ctx) had not returned after 0.8 s",
        ),
        ("async def apply(ctx):\n    while True: pass", "apply", "apply(ctx) had not returned after 0.8 s"),
    ],
    ids=["module spins", "apply spins", "apply waits for ever", "async apply spins"],
)
async def test_what_never_ends_is_given_up_and_its_thread_is_ended(
    tmp_path: Path, code: str, phase: str, message: str
) -> None:
    source, good = source_of(write_plugin(tmp_path, "endless", code)), speaking(tmp_path, "good")
    async with running(tmp_path / "home", limits=SHORT) as runtime:
        runtime.reconcile([source, good])
        await eventually(lambda: spoken(runtime.contributions) == [("good/main", "hello")], "the other one starts")
        await eventually(lambda: status_of(runtime, "endless").state == "failed")
        (fault,) = runtime.faults()
        assert (fault.plugin, fault.phase, fault.message) == ("endless", phase, message)
        await runtime.settled()
        runtime.reconcile([good])
        await eventually(lambda: not threads_of("endless"), "its thread ends")


@pytest.mark.req("PLG-02")
async def test_code_that_swallows_every_exception_is_left_behind_and_stops_nobody(tmp_path: Path) -> None:
    code = """
        from tests.host.plugins import stage

        def apply(ctx):
            ctx.effect(lambda: stage.say("cleaned up"))
            while not stage.gates["mercy"].is_set():
                try:
                    while not stage.gates["mercy"].is_set():
                        pass
                except BaseException:
                    stage.said.append("swallowed")
    """
    source = source_of(write_plugin(tmp_path, "deaf", code))
    gate = stage.gates["mercy"]
    async with running(tmp_path / "home", limits=SHORT) as runtime:
        runtime.reconcile([source])
        await eventually(lambda: status_of(runtime, "deaf").state == "failed")
        await runtime.settled(10)
        assert "cleaned up" in stage.said, "its clean-up ran on a fresh thread"
        began = time.monotonic()
        await runtime.close(1)
        assert time.monotonic() - began < 3
    gate.set()
    await eventually(lambda: not threads_of("deaf"))


@pytest.mark.req("PLG-02")
async def test_a_blocked_thread_cannot_be_ended_and_still_fails_alone(tmp_path: Path) -> None:
    code = """
        from tests.host.plugins import stage

        def apply(ctx):
            ctx.effect(lambda: stage.say("cleaned up"))
            stage.gates["locked"].wait()
    """
    source = source_of(write_plugin(tmp_path, "blocked", code))
    gate = stage.gates["locked"]
    async with running(tmp_path / "home", limits=SHORT) as runtime:
        runtime.reconcile([source])
        await eventually(lambda: status_of(runtime, "blocked").state == "failed")
        await eventually(lambda: stage.said == ["cleaned up"])
        runtime.retry("blocked")
        await eventually(lambda: len(threads_of("blocked")) >= 2)
    gate.set()
    await eventually(lambda: not threads_of("blocked"))


LATE = """
    import asyncio
    from tests.host.plugins import stage

    async def apply(ctx):
        stage.contexts.append(ctx)
        keep = ctx.agents.addInstructions(id="early", text="early")
        try:
            while not stage.gates["late"].is_set():
                {wait}
        except asyncio.CancelledError:
            stage.say("cancelled")
        for call in (
            lambda: ctx.agents.addInstructions(id="late", text="late"),
            lambda: ctx.agents.addInstructions("nonsense"),
            lambda: ctx.agents.addNote("main", "late"),
            lambda: ctx.agents.registerHarness(None),
            lambda: ctx.effect(lambda: stage.say("late effect ran")),
        ):
            try:
                call()
            except Exception as error:
                stage.say(type(error).__name__)
        keep()
"""


@pytest.mark.req("PLG-02", "INS-06")
@pytest.mark.parametrize("wait", ["await asyncio.sleep(0.001)", "__import__('time').sleep(0.001)"])
@pytest.mark.parametrize("why", ["too slow", "switched off", "a service lost"])
async def test_late_calls_register_nothing_and_are_told_so(tmp_path: Path, wait: str, why: str) -> None:
    source = source_of(write_plugin(tmp_path, "late", LATE.replace("{wait}", wait) + '\n    inject = ("clock",)\n'))
    services = ServiceRegistry({"clock": 1})
    gate = stage.gates["late"]
    limits = Limits(activate_s=0.8 if why == "too slow" else 10.0, grace_s=0.05)
    async with running(tmp_path / "home", limits=limits, services=services) as runtime:
        runtime.reconcile([source])
        await eventually(lambda: stage.contexts)
        if why == "too slow":
            await eventually(lambda: status_of(runtime, "late").state == "failed")
        elif why == "switched off":
            runtime.reconcile([])
        else:
            services.withdraw("clock")
        await runtime.settled(5)
        assert spoken(runtime.contributions) == []
        ctx = stage.contexts[0]
        with pytest.raises(PluginClosed):
            ctx.agents.addInstructions(id="later", text="later")  # type: ignore[attr-defined]
        gate.set()
        await eventually(lambda: not threads_of("late") or why == "a service lost")
        assert spoken(runtime.contributions) == []
        assert [word for word in stage.said if word not in ("cancelled", "PluginClosed")] == []
        assert runtime.contributions.known_ids("late", _instructions()) == ()


def _instructions():  # type: ignore[no-untyped-def]
    from buzz_host.plugins.contributions import INSTRUCTIONS

    return INSTRUCTIONS


@pytest.mark.req("PLG-02")
async def test_a_module_that_arrives_after_it_was_switched_off_is_never_applied(tmp_path: Path) -> None:
    code = """
        from tests.host.plugins import stage
        stage.say("importing")
        stage.wait("arrive")

        def apply(ctx):
            stage.say("applied")
    """
    source = source_of(write_plugin(tmp_path, "a", code))
    gate = stage.gates["arrive"]
    async with running(tmp_path / "home", limits=Limits(grace_s=0.05)) as runtime:
        runtime.reconcile([source])
        await eventually(lambda: stage.said)
        runtime.reconcile([])
        await runtime.settled(5)
        gate.set()
        await eventually(lambda: not threads_of("a"))
        assert stage.said == ["importing"]
        assert status_of(runtime, "a").state == "disabled"


@pytest.mark.req("PLG-02")
async def test_a_replacement_waits_for_the_real_end_of_a_clean_up_that_is_overdue(tmp_path: Path) -> None:
    code = """
        import asyncio
        from tests.host.plugins import stage

        def apply(ctx):
            stage.say("{name} applied")
            async def slow_stop():
                stage.say("{name} stopping")
                while not stage.gates["let go"].is_set():
                    await asyncio.sleep(0.001)
                stage.say("{name} stopped")
            ctx.effect(slow_stop)
            ctx.agents.addInstructions(id="main", text="{name}")
    """
    folder = write_plugin(tmp_path, "a", code.format(name="first"))
    first = source_of(folder)
    second = source_of(write_plugin(tmp_path, "a", code.format(name="second")))
    write_plugin(tmp_path, "a", code.format(name="first"))
    gate = stage.gates["let go"]
    async with running(tmp_path / "home", limits=SHORT) as runtime:
        runtime.reconcile([first])
        await runtime.settled()
        write_plugin(tmp_path, "a", code.format(name="second"))
        runtime.reconcile([second])
        assert spoken(runtime.contributions) == []
        await eventually(lambda: runtime.faults())
        (late,) = await runtime.settled(5)
        assert late.phase == "dispose"
        assert late.message.startswith("its clean-up had not ended after 0.8 s (in apply.<locals>.slow_stop at ")
        assert status_of(runtime, "a").state == "starting"
        third = source_of(folder)
        for _ in range(3):  # hurried changes of mind do not get past the barrier either
            runtime.reconcile([])
            runtime.reconcile([third])
        await asyncio.sleep(0.1)
        assert stage.said == ["first applied", "first stopping"]
        gate.set()
        await eventually(lambda: status_of(runtime, "a").state == "active")
        assert stage.said == ["first applied", "first stopping", "first stopped", "second applied"]
        assert spoken(runtime.contributions) == [("a/main", "second")]
        assert [fault.phase for fault in runtime.faults()] == ["dispose"], "told until the next attempt"


@pytest.mark.req("PLG-02")
async def test_a_disposer_that_hangs_holds_up_neither_the_others_nor_the_close(tmp_path: Path) -> None:
    code = """
        from tests.host.plugins import stage

        def apply(ctx):
            ctx.effect(lambda: stage.say("never reached"))
            ctx.effect(stage.gates["held"].wait)
    """
    source, good = source_of(write_plugin(tmp_path, "hangs", code)), speaking(tmp_path, "good")
    gate = stage.gates["held"]
    async with running(tmp_path / "home", limits=SHORT) as runtime:
        runtime.reconcile([source, good])
        await runtime.settled()
        runtime.reconcile([good])
        await eventually(lambda: runtime.faults())
        assert spoken(runtime.contributions) == [("good/main", "hello")]
        began = time.monotonic()
        faults = await runtime.close(0.3)
        assert time.monotonic() - began < 2
        assert [fault.message for fault in faults if fault.phase == "dispose"][-1] == (
            "had not stopped after 0.3 s, and was given up"
        )
    gate.set()
    await eventually(lambda: not threads_of("hangs"))


@pytest.mark.req("PLG-02")
async def test_a_disposer_that_raises_keeps_no_other_from_running_last_in_first_out(tmp_path: Path) -> None:
    code = """
        from tests.host.plugins import stage

        async def third():
            stage.say("third")
            raise RuntimeError("third broke")

        def second():
            stage.say("second")
            raise SystemExit(2)

        def apply(ctx):
            early = ctx.effect(lambda: stage.say("early"))
            ctx.effect(lambda: stage.say("first"))
            ctx.effect(second)
            ctx.effect(third)
            early()
            early()
    """
    source = source_of(write_plugin(tmp_path, "a", code))
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([source])
        await runtime.settled()
        assert stage.said == ["early"]
        runtime.reconcile([])
        await runtime.settled()
        assert stage.said == ["early", "third", "second", "first"]
        assert [fault.message for fault in runtime.faults()] == [
            "RuntimeError: third broke (plugin.py:6)",
            "SystemExit: 2 (plugin.py:10)",
        ]
        assert status_of(runtime, "a").state == "disabled"


@pytest.mark.req("PLG-02")
async def test_an_async_clean_up_that_is_called_early_is_waited_for_at_the_end(tmp_path: Path) -> None:
    code = """
        import asyncio
        from tests.host.plugins import stage

        def apply(ctx):
            async def stop():
                stage.say("begun")
                while not stage.gates["end"].is_set():
                    await asyncio.sleep(0.001)
                stage.say("ended")
            stage.contexts.append(ctx.effect(stop))
    """
    source = source_of(write_plugin(tmp_path, "a", code))
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([source])
        await runtime.settled()
        dispose = stage.contexts[0]
        dispose()  # type: ignore[operator]
        dispose()  # type: ignore[operator]
        await eventually(lambda: stage.said == ["begun"])
        runtime.reconcile([])
        await runtime.settled(0.05)
        assert stage.said == ["begun"]
        stage.gates["end"].set()
        await eventually(lambda: stage.said == ["begun", "ended"])


@pytest.mark.req("PLG-02")
async def test_a_library_is_never_left_half_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin is given up while it imports a slow library: the import is let finish, for everybody else's sake."""
    library = tmp_path / "path"
    library.mkdir()
    (library / "slow_library_of_a_test.py").write_text(
        dedent("""
            import time
            from tests.host.plugins import stage
            stage.say("begun")
            while not stage.gates["imported"].is_set():
                time.sleep(0.001)
            WHOLE = True
            """),
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(library))
    source = source_of(write_plugin(tmp_path, "slow", "import slow_library_of_a_test\ndef apply(ctx): pass"))
    gate = stage.gates["imported"]
    async with running(tmp_path / "home", limits=SHORT) as runtime:
        runtime.reconcile([source])
        await eventually(lambda: status_of(runtime, "slow").state == "failed")
        await asyncio.sleep(0.3)
        gate.set()
        await eventually(lambda: not threads_of("slow"))
        assert sys.modules["slow_library_of_a_test"].WHOLE
    del sys.modules["slow_library_of_a_test"]


def _run(code: str, *arguments: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(dedent(code), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-W", "error", str(script), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


HOST = """
    import asyncio, sys
    from pathlib import Path
    from tests.host.plugins.making import SHORT, running, source_of, spoken

    async def main(paths, close):
        async with running(Path(sys.argv[1]), limits=SHORT) as runtime:
            runtime.reconcile([source_of(Path(path)) for path in paths])
            late = await runtime.settled(2.0)
            print(*[f"{each.plugin}: {each.message}" for each in (*late, *runtime.faults())], sep="\\n")
            print(spoken(runtime.contributions))
            sys.stdout.flush()
            if not close:
                await runtime.close(0)

    asyncio.run(main(sys.argv[3:], sys.argv[2] == "close"))
    print("closed")
"""
LEAVES = """
    import asyncio, sys
    from pathlib import Path
    from buzz_host.plugins.contributions import Contributions
    from buzz_host.plugins.lifecycle import PluginRuntime
    from buzz_host.settings import Home
    from tests.host.plugins.making import SHORT, source_of, spoken

    async def main(paths):
        runtime = PluginRuntime(Home(Path(sys.argv[1])), Contributions(), limits=SHORT)
        runtime.reconcile([source_of(Path(path)) for path in paths])
        print(*[f"{each.plugin}: {each.message}" for each in await runtime.settled(2.0)])
        print(*[f"{each.plugin}: {each.message}" for each in runtime.faults()])
        print(spoken(runtime.contributions))

    asyncio.run(main(sys.argv[3:]))
"""


@pytest.mark.req("PLG-02", "INS-14")
@pytest.mark.parametrize("close", ["close", "close at once", "never close"])
@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "import threading\nthreading.Event().wait()",
        "def apply(ctx):\n    ctx.effect(lambda: exec('while True: pass'))\n    while True: pass",
    ],
    ids=["spins", "spins and swallows", "blocks", "spins in apply and in its clean-up"],
)
def test_the_process_exits_whatever_a_plugin_does(tmp_path: Path, code: str, close: str) -> None:
    endless: Sequence[Path] = [write_plugin(tmp_path, "endless", code)]
    good = write_plugin(tmp_path, "good", "def apply(ctx): ctx.agents.addInstructions(id='a', text='b')")
    began = time.monotonic()
    done = _run(
        LEAVES if close == "never close" else HOST,
        str(tmp_path / "home"),
        close,
        *map(str, endless),
        str(good),
        tmp_path=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "[('good/a', 'b')]" in done.stdout
    assert "endless: " in done.stdout
    assert time.monotonic() - began < WAIT_S
