"""What services say about plugins and harnesses, beside a host that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from buzz_host import Host
from buzz_host.agents.catalogue import UnknownAgent
from buzz_host.services import harnesses
from buzz_host.services.audit import Audit
from buzz_host.services.harnesses import harness_views
from buzz_host.services.plugins import UnknownPlugin, find_source, plugin_view, plugin_views, switch, troubles
from buzz_host.settings import Home
from tests.host.services.test_host import ECHO, speaks, write_plugin

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "plugins"


@pytest.mark.req("PLG-06", "REG-03")
async def test_a_switch_holds_from_the_next_turn_of_a_running_host(home: Path, folder: Path) -> None:
    write_plugin(folder, "one", speaks("Hello."))
    async with Host(home, plugins=[ECHO]) as host:

        async def told() -> list[str | None]:
            preview = await host.preview("x", harness="echo")
            return [row.plugin for row in preview.sections if row.plugin]

        assert await told() == ["one"]
        for agent, on, expected in ((None, False, []), (None, True, ["one"]), ("main", False, []), ("dev", False, [])):
            switched = switch(host.home, "one", on=on, agent=agent)
            assert (switched.plugin, switched.agent, switched.enabled) == ("one", agent, on)
            assert await told() == expected
            view = plugin_view(host, "one")
            assert (view.enabled, view.standing) == (bool(expected), "active" if expected else "off")
        assert plugin_view(host, "one").otherwise == ()
        switch(host.home, "one", on=True, agent="main")
        await told()
        assert plugin_view(host, "one").otherwise == ("dev",)


@pytest.mark.req("PLG-06", "PLG-02")
async def test_a_view_says_how_a_plugin_fares(home: Path, folder: Path) -> None:
    write_plugin(folder, "fine", speaks("Hello.", "lambda agent: True"))
    write_plugin(folder, "broken", "raise RuntimeError('no luck')")
    (folder / "waits.py").write_text('inject = ("nothing",)\n\n\ndef apply(ctx):\n    pass\n', encoding="utf-8")
    (folder / "empty").mkdir()
    async with Host(home, plugins=[ECHO]) as host:
        views = {view.id: view for view in plugin_views(host)}
        expected = {
            "fine": "active",
            "broken": "failed",
            "waits": "starting",
            "empty": "failed",
            "echo_harness": "active",
        }
        assert {name: views[name].standing for name in expected} == expected
        assert [(each.id, each.bytes, each.guarded) for each in views["fine"].instructions] == [("one", 6, True)]
        assert views["echo_harness"].harnesses == ("echo",)
        assert "nothing" in views["waits"].detail
        assert (views["empty"].source, views["empty"].enabled) == (None, False)
        assert {fault.plugin for fault in troubles(host).faults} >= {"broken", "waits", "empty"}


@pytest.mark.req("OPS-01", "PLG-06")
async def test_what_is_not_there_is_named_with_a_suggestion(home: Path, folder: Path) -> None:
    write_plugin(folder, "style_guide", speaks("Hello."))
    (folder / "empty").mkdir()
    async with Host(home, plugins=[ECHO]) as host:
        assert plugin_view(host, "style-guide").id == "style_guide"
        with pytest.raises(UnknownPlugin, match="did you mean 'style_guide'"):
            plugin_view(host, "stile_guide")
        with pytest.raises(UnknownAgent):
            plugin_views(host, "nobody")
        with pytest.raises(UnknownPlugin, match="plugin 'empty' cannot be used"):
            find_source(host.plugins.found, "empty")
    with pytest.raises(UnknownAgent):
        switch(Home(home), "style_guide", on=False, agent="nobody")
    assert not Home(home).config.exists()


@pytest.mark.req("TRN-03", "HAR-02")
async def test_a_harness_that_fails_or_sleeps_when_asked_is_shown_with_that(
    home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harnesses, "PROBE_DEADLINE_S", 0.05)
    source = ECHO.read_text(encoding="utf-8")
    for name, answer in (("raises", "raise RuntimeError('no luck')"), ("sleeps", "await asyncio.Event().wait()")):
        body = source.replace('id = "echo"', f'id = "{name}"').replace(
            "async def probe(self) -> Probe:\n", f"async def probe(self) -> Probe:\n        {answer}\n"
        )
        assert answer in body
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(body, encoding="utf-8")
    async with Host(home, plugins=[ECHO]) as host:
        views = {view.id: view for view in await harness_views(host)}
    assert (views["raises"].probe.fault or "").startswith("RuntimeError: no luck (raises.py:")
    assert views["sleeps"].probe.fault == "it did not say within 0.05 s what it finds"
    assert views["echo"].probe.fault is None
    assert views["echo"].plugin == "echo_harness"


@pytest.mark.req("AUD-02", "OPS-03")
async def test_the_audit_is_read_while_the_host_runs(home: Path) -> None:
    async with Host(home, plugins=[ECHO]) as host, host.session(harness="echo") as session:
        async with session.turn("Hello") as events:
            (*_, last) = [event async for event in events]
        audit = Audit(host.home)
        (row,) = audit.turns(session=session.id[:8])
        assert (row.turn, row.status) == (last.turn, "completed")
        assert audit.turn(row.turn[:8]).reply is not None
        breaks: list[object] = []
        assert audit.verify(None, breaks.append).breaks == 0
        assert breaks == []
