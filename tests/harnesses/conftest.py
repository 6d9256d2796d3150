"""One recorded model for all tests of a module, and a stage for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from buzz_host.rehearsal import Rehearsal
from tests.harnesses.conformance import CLAUDE, Kind, Stage, staged


@pytest.fixture(params=[pytest.param(CLAUDE, id="claude", marks=pytest.mark.program("claude"))])
def kind(request: pytest.FixtureRequest) -> Kind:
    made: Kind = request.param
    return made


@pytest.fixture(scope="module")
async def rehearsal(anyio_backend: str) -> AsyncIterator[Rehearsal]:
    async with Rehearsal.start() as running:
        yield running


@pytest.fixture
async def stage(kind: Kind, rehearsal: Rehearsal, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(kind, rehearsal, tmp_path) as made:
        yield made
