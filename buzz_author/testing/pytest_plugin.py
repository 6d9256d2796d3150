"""The pytest plugin of the conformance suite: its markers, and what they do.

Named in the `conftest.py` at the root of somebody's tests (`pytest_plugins = ["buzz_author.testing.pytest_plugin"]`),
and by nothing else: who only uses Buzz gets no plugin for pytest.
"""

from __future__ import annotations

import pytest

ROOMS = ("endings", "faults", "frame", "prefix", "stage", "stage_tools", "steering", "talk", "tools", "turns", "wires")
pytest.register_assert_rewrite(*(f"buzz_author.testing.{room}" for room in ROOMS))

from buzz_author.testing.programs import need_program  # noqa: E402  # what it imports is rewritten first

MARKERS = (
    "req(*ids): the requirements of docs/requirements.md that this test shows",
    "program(harness): needs the real program of a harness; a skip on a laptop and a failure when CI=true",
    "claude: needs the real Claude Code program, as program('claude')",
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known, also under --strict-markers."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Keep the rule of the markers that name a program."""
    needed = [str(each) for marker in item.iter_markers("program") for each in marker.args]
    if item.get_closest_marker("claude"):
        needed.append("claude")
    for harness in needed:
        need_program(harness)
