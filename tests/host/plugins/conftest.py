"""Every test of this room starts with an empty stage, and leaves no package of a plugin behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.host.plugins import stage


@pytest.fixture(autouse=True)
def _empty_stage() -> Iterator[None]:
    stage.open_all()
    yield
    stage.open_all()
    left = [name for name in sys.modules if name.startswith("buzz_plugins.")]
    assert not left, f"packages of plugins are still loaded: {left}"
