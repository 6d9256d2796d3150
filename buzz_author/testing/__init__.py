"""For the tests of authors: what a harness has to show, and a stage to show it on (AUT-02, HAR-03).

Needs pytest, anyio and the host: `pip install 'buzz-agents[testing]'`. The one room of this package that reaches into
`buzz_host`, and only inside functions; nothing else of `buzz_author` imports it. Names are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from buzz_author.testing.harness_conformance import HarnessConformance
    from buzz_author.testing.stage import Stage, spec_for, staged
    from buzz_author.testing.talk import Talk, check_laws
    from buzz_author.testing.under_test import HarnessUnderTest

__all__ = ["HarnessConformance", "HarnessUnderTest", "Stage", "Talk", "check_laws", "spec_for", "staged"]

_HOMES = {
    "HarnessConformance": "harness_conformance",
    "HarnessUnderTest": "under_test",
    "Stage": "stage",
    "Talk": "talk",
    "check_laws": "talk",
    "spec_for": "stage",
    "staged": "stage",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
