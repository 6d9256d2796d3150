"""Every ported camelCase name has its PEP 8 twin, which is the same function and not a wrapper (INS-01)."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

import buzz_author
import buzz_host
from buzz_author.plugins import Agents
from buzz_author.ported import pep8_name, ported
from buzz_author.turns import TurnRendering

CAMEL_CASE = re.compile(r"[a-z]+(?:[A-Z][A-Za-z]*)+")


def classes_of(package: ModuleType) -> Iterator[type]:
    """Each class that a module of the package defines."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            for _, cls in inspect.getmembers(module, inspect.isclass):
                if cls.__module__ == module.__name__:
                    yield cls


@pytest.mark.req("INS-01")
def test_every_ported_name_has_a_twin_that_is_the_same_function() -> None:
    ported_names = {(cls, name) for cls in classes_of(buzz_author) for name in vars(cls) if CAMEL_CASE.fullmatch(name)}
    assert {(Agents, "addInstructions"), (Agents, "registerHarness"), (TurnRendering, "turnNote")} <= ported_names
    for cls, name in ported_names:
        assert vars(cls).get(pep8_name(name)) is vars(cls)[name], f"{cls.__name__}.{name}"


@pytest.mark.req("INS-01")
def test_the_hosts_implementations_have_the_twins_as_well() -> None:
    for cls in classes_of(buzz_host):
        if {Agents, TurnRendering} & set(cls.__mro__):
            for name in filter(CAMEL_CASE.fullmatch, dir(cls)):
                assert getattr(cls, pep8_name(name)) is getattr(cls, name), f"{cls.__name__}.{name}"


@pytest.mark.req("INS-01")
@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("addInstructions", "add_instructions"),
        ("registerToolGate", "register_tool_gate"),
        ("turnNote", "turn_note"),
        ("effect", "effect"),
        ("add_note", "add_note"),
        ("toJSON", "to_json"),
        ("useURLOnce", "use_url_once"),
        ("add2Things", "add2_things"),
    ],
)
def test_pep8_names(name: str, twin: str) -> None:
    assert pep8_name(name) == twin


@pytest.mark.req("INS-01")
def test_the_decorator_adds_twins_and_nothing_else() -> None:
    @ported
    class Example:
        def addThing(self, thing: str) -> str:
            return thing

        @staticmethod
        def makeOne() -> int:
            return 1

        def plain(self) -> None: ...
        def _notPublic(self) -> None: ...

        Inner = int

    assert vars(Example)["add_thing"] is vars(Example)["addThing"]
    assert Example().add_thing("x") == "x"  # type: ignore[attr-defined]
    assert Example.make_one() == 1  # type: ignore[attr-defined]
    assert {name for name in vars(Example) if not name.startswith("__")} == {
        "addThing", "add_thing", "makeOne", "make_one", "plain", "_notPublic", "Inner",
    }  # fmt: skip


@pytest.mark.req("INS-01")
def test_a_twin_of_the_classs_own_is_a_mistake() -> None:
    with pytest.raises(TypeError, match=r"Example\.add_thing is not the same as its twin addThing"):

        @ported
        class Example:
            def addThing(self) -> None: ...
            def add_thing(self) -> None: ...
