"""The handle that guards get: complete, read-only in every way that Python leaves open, and mute inside a `when`."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from buzz_author.errors import BuzzError
from buzz_author.instructions import AgentHandle
from buzz_author.sections import Section, section
from buzz_host.agents.handle import TurnAgent

CURRENT = (section("plugin-instructions", "Be kind.", attributes=(("plugin", "style"),)),)


def current() -> tuple[Section, ...]:
    return CURRENT


@pytest.fixture
def agent() -> TurnAgent:
    return TurnAgent("main", "core", "claude", "opus", Path("/tmp/x"), current)


@pytest.mark.req("INS-09")
def test_a_handle_says_what_it_is_made_of(agent: TurnAgent) -> None:
    handle: AgentHandle = agent
    assert (handle.name, handle.scope, handle.harness, handle.model) == ("main", "core", "claude", "opus")
    assert handle.cwd == Path("/tmp/x")
    assert handle.instructions() is CURRENT
    assert repr(handle) == "<agent 'main' (core) on claude>"


@pytest.mark.req("INS-14")
def test_a_guard_may_not_ask_for_the_set_it_is_deciding(agent: TurnAgent) -> None:
    for_guard = agent.for_guard()
    assert (for_guard.name, for_guard.cwd, for_guard.model) == (agent.name, agent.cwd, agent.model)
    with pytest.raises(BuzzError, match="cannot be asked inside a `when`"):
        for_guard.instructions()
    assert agent.instructions() is CURRENT


@pytest.mark.req("INS-14")
@pytest.mark.parametrize("name", ["name", "scope", "harness", "model", "cwd", "instructions", "extra", "__dict__"])
def test_a_handle_cannot_be_written(agent: TurnAgent, name: str) -> None:
    for write in (setattr, object.__setattr__):
        with pytest.raises((AttributeError, TypeError)):
            write(agent, name, "evil")
    for erase in (delattr, object.__delattr__):
        with pytest.raises((AttributeError, TypeError)):
            erase(agent, name)
    with pytest.raises(TypeError):
        agent[0] = "evil"  # type: ignore[index]
    assert agent.name == "main"


@pytest.mark.req("INS-14")
def test_what_a_handle_gives_out_is_nobody_elses(agent: TurnAgent) -> None:
    path = agent.cwd
    for slot in ("_raw_paths", "_str", "_parts"):
        if hasattr(type(path), slot):
            object.__setattr__(path, slot, ["/evil"])
    assert agent.cwd == Path("/tmp/x")
    assert str(agent.cwd) == "/tmp/x"


@pytest.mark.req("INS-14")
def test_each_guard_has_a_handle_of_its_own(agent: TurnAgent) -> None:
    class Evil(tuple):  # type: ignore[type-arg]
        __slots__ = ()
        name = "evil"

    first, second = agent.for_guard(), agent.for_guard()
    object.__setattr__(first, "__class__", Evil)
    assert first.name == "evil"
    assert (second.name, agent.name) == ("main", "main")


@pytest.mark.req("INS-09")
def test_a_copy_is_the_same_agent(agent: TurnAgent) -> None:
    assert copy.copy(agent) == agent
    assert copy.deepcopy(agent).instructions() is CURRENT
