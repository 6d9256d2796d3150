"""What tests of the doctor stand on: a home, and what the doctor says of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from buzz_host.services.doctor import Check, examine
from buzz_host.settings import Home

Examined = Callable[..., tuple[Check, ...]]


@pytest.fixture
def opened(home: Path) -> Home:
    """The home of this test, made."""
    made = Home.resolve(home)
    made.folder()
    return made


@pytest.fixture
def examined(home: Path) -> Examined:
    """All checks; of one level, or one area, where that is named."""

    def run(level: str | None = None, area: str | None = None, *, full: bool = False) -> tuple[Check, ...]:
        found = tuple(examine(home, full=full))
        return tuple(each for each in found if level in (None, each.level) and area in (None, each.area))

    return run


def lines(checks: tuple[Check, ...]) -> str:
    """What the checks say."""
    return "\n".join(f"{each.level} {each.area} {each.line}" for each in checks)
