"""The harness that the guide builds passes the whole suite, by the test class that the guide shows."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

import attrs
import pytest

from buzz_author.harness import Installable, LogsIn
from buzz_author.testing import HarnessConformance, HarnessUnderTest
from tests.docs.pages import blocks, code, tables
from tests.quality.tree import ROOT

GUIDE = ROOT / "docs" / "harness-guide.md"
PACKAGE = "my_harness"


def module_of_the_guide(name: str) -> ModuleType:
    """A module that the guide shows, in the package that it shows."""
    (block,) = [each for each in blocks(GUIDE) if each.info.get("file") == f"{PACKAGE}/{name}.py"]
    module = ModuleType(f"{PACKAGE}.{name}")
    module.__package__ = PACKAGE
    sys.modules.setdefault(PACKAGE, ModuleType(PACKAGE)).__path__ = []
    sys.modules[module.__name__] = module
    exec(compile(block.text, str(block), "exec"), module.__dict__)
    return module


module_of_the_guide("small")
if TYPE_CHECKING:
    Shown = HarnessConformance
else:
    Shown = module_of_the_guide("test_small").TestSmall


class TestTheHarnessOfTheGuide(Shown):
    """The class of the guide, collected here."""


@pytest.mark.req("HAR-02", "AUT-02")
def test_the_guide_has_every_fact_of_a_harness_under_test_and_every_optional_member() -> None:
    facts = tables(GUIDE)["fact | default | meaning"]
    assert {name for row in facts for name in code(row[0])} == {each.name for each in attrs.fields(HarnessUnderTest)}
    optional = {name for kind in (Installable, LogsIn) for name in vars(kind) if not name.startswith("_")}
    named = tables(GUIDE)["optional member | for"]
    assert {name.partition("(")[0] for row in named for name in code(row[0])} == optional
