"""The life of plugins against a simple model: any order of wishes, failures, lost services and retries."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from buzz_host.plugins.contributions import Contributions
from buzz_host.plugins.lifecycle import PluginRuntime
from buzz_host.plugins.services import ServiceRegistry
from buzz_host.plugins.sources import PluginSource
from buzz_host.settings import Home
from tests.conftest import SOAK
from tests.host.plugins import stage
from tests.host.plugins.making import source_of, spoken, write_plugin

NAMES = ("a", "b", "needs")
VERSIONS = ("1", "2")
SETTLE_S = 20.0

# What a plugin does when it is applied is asked of the stage, so that the model can change its mind.
CODE = """
    from tests.host.plugins import stage
    inject = {inject}
    NAME, VERSION = "{name}", "{version}"

    {how} apply(ctx):
        stage.say(f"+{{NAME}}{{VERSION}}")
        ctx.effect(lambda: stage.say(f"-{{NAME}}{{VERSION}}"))
        ctx.agents.addInstructions(id="main", text=VERSION)
        if stage.behaviour.get(NAME) == "fails":
            raise ValueError(NAME)
        ctx.agents.addInstructions(id="second", text=VERSION)
"""


def write_sources(folder: Path) -> dict[tuple[str, str], PluginSource]:
    sources = {}
    for name in NAMES:
        for version in VERSIONS:
            inject = ("agents", "clock") if name == "needs" else ("agents",)
            how = "async def" if version == "2" else "def"
            code = CODE.format(name=name, version=version, inject=inject, how=how)
            sources[name, version] = source_of(write_plugin(folder / version, name, code))
    return sources


@attrs.define
class Model:
    """What one plugin should be, by the words of PLG-02."""

    wanted: str | None = None
    state: str = "disabled"
    running: str | None = None


class Plugins(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        stage.open_all()
        self.folder = tempfile.TemporaryDirectory()
        self.sources = write_sources(Path(self.folder.name))
        self.loop = asyncio.new_event_loop()
        self.services = ServiceRegistry()
        self.contributions = Contributions()
        self.runtime = self.run(self._make())
        self.model = {name: Model() for name in NAMES}
        self.clock = False
        self.fails: set[str] = set()

    async def _make(self) -> PluginRuntime:
        home = Home(Path(self.folder.name) / "home")
        return PluginRuntime(home, self.contributions, services=self.services)

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.runtime.close(SETTLE_S))
        starts, stops = ([word[1:] for word in stage.said if word[0] == sign] for sign in "+-")
        assert sorted(starts) == sorted(stops), "each clean-up ran exactly once"
        assert spoken(self.contributions) == []
        self.run(self.loop.shutdown_asyncgens())
        self.loop.close()
        self.folder.cleanup()

    def wish(self, wishes: dict[str, str | None]) -> None:
        async def reconcile() -> None:
            self.runtime.reconcile(self.sources[name, version] for name, version in wishes.items() if version)

        self.run(reconcile())
        for name, version in wishes.items():
            model = self.model[name]
            if version != model.wanted:
                model.wanted = version
                self.attempt(name)

    def attempt(self, name: str) -> None:
        model = self.model[name]
        model.running = None
        if model.wanted is None:
            model.state = "disabled"
        elif name == "needs" and not self.clock:
            model.state = "starting"
        elif name in self.fails:
            model.state = "failed"
        else:
            model.state, model.running = "active", model.wanted

    @rule(wishes=st.fixed_dictionaries({name: st.sampled_from([None, *VERSIONS]) for name in NAMES}))
    def reconcile(self, wishes: dict[str, str | None]) -> None:
        self.wish(wishes)

    @rule(
        first=st.fixed_dictionaries({name: st.sampled_from([None, *VERSIONS]) for name in NAMES}),
        second=st.fixed_dictionaries({name: st.sampled_from([None, *VERSIONS]) for name in NAMES}),
    )
    def change_of_mind(self, first: dict[str, str | None], second: dict[str, str | None]) -> None:
        """Two wishes in a row, with nothing awaited in between."""
        self.wish(first)
        for name, version in first.items():
            gone = {key for key, _ in spoken(self.contributions) if key.startswith(f"{name}/")}
            assert version is not None or not gone, "what is not wanted has stopped showing"
        self.wish(second)

    @rule()
    def the_same_again(self) -> None:
        before = list(stage.said)
        self.wish({name: model.wanted for name, model in self.model.items()})
        self.settle()
        assert stage.said == before

    @rule(name=st.sampled_from(NAMES))
    def will_fail(self, name: str) -> None:
        self.fails.add(name)
        stage.behaviour[name] = "fails"

    @rule(name=st.sampled_from(NAMES))
    def is_mended(self, name: str) -> None:
        self.fails.discard(name)
        stage.behaviour.pop(name, None)

    @rule(name=st.sampled_from(NAMES))
    def retry(self, name: str) -> None:
        failed = self.model[name].state == "failed"

        async def retry() -> bool:
            return self.runtime.retry(name)

        assert self.run(retry()) is failed
        if failed:
            self.attempt(name)

    @precondition(lambda self: not self.clock)
    @rule()
    def provide(self) -> None:
        self.clock = True
        self.services.provide("clock", object())
        if self.model["needs"].state == "starting":
            self.attempt("needs")

    @precondition(lambda self: self.clock)
    @rule()
    def withdraw(self) -> None:
        self.clock = False
        self.services.withdraw("clock")
        assert not [key for key, _ in spoken(self.contributions) if key.startswith("needs/")]
        if self.model["needs"].state == "active":
            self.attempt("needs")

    @precondition(lambda self: self.clock)
    @rule()
    def replace(self) -> None:
        self.services.withdraw("clock")
        self.services.provide("clock", object())
        if self.model["needs"].state == "active":
            self.attempt("needs")

    def settle(self) -> None:
        self.run(self.runtime.settled(SETTLE_S))

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        self.settle()
        states = {status.id: status for status in self.runtime.states()}
        said = []
        for name, model in self.model.items():
            status = states.get(name)
            assert (status.state if status else "disabled") == model.state
            if status is not None and model.wanted is not None:
                assert status.revision == self.sources[name, model.wanted].content_hash
                assert (status.error is not None) == (model.state == "failed")
                assert status.waiting_for == (("clock",) if model.state == "starting" else ())
            if model.running is not None:
                said += [(f"{name}/main", model.running), (f"{name}/second", model.running)]
        assert spoken(self.contributions) == said


Plugins.TestCase.settings = settings(
    max_examples=300 if SOAK else 15, stateful_step_count=40 if SOAK else 15, deadline=None
)
test_the_life_of_plugins = pytest.mark.req("PLG-02", "PLG-03", "PLG-06")(Plugins.TestCase)
