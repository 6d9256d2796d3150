"""What each part of the conformance suite stands on: one recorded model a class, a stage for each test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import attrs
import pytest

from buzz_author.testing.programs import missing
from buzz_author.testing.stage import Stage, staged
from buzz_author.testing.stage_tools import StageTools
from buzz_author.testing.talk import Talk
from buzz_author.testing.under_test import HarnessUnderTest

if TYPE_CHECKING:
    from buzz_host.rehearsal import Rehearsal

SOAK: Final = os.environ.get("BUZZ_SOAK") == "1"
"""Whether full counts are asked for."""


@attrs.frozen
class Shared:
    """A session that several tests share, in which plugins offer the suite's tools."""

    stage: Stage
    talk: Talk
    tools: StageTools


class Frame:
    """The base of the suite's classes; `kind` is the harness under test."""

    kind: ClassVar[HarnessUnderTest]
    pytestmark: ClassVar = [pytest.mark.anyio]

    @pytest.fixture(scope="class")
    @classmethod
    def anyio_backend(cls) -> str:
        """The loop that the host runs on."""
        return "asyncio"

    @pytest.fixture(scope="class")
    @classmethod
    async def rehearsal(cls, anyio_backend: str) -> AsyncIterator[Rehearsal]:
        """The model of all tests of a class. Where the program is missing, they are skipped, or fail in CI."""
        from buzz_host.rehearsal import Rehearsal

        probe = await cls.kind.make().probe()
        if probe.fault is not None:
            missing(f"{cls.kind.id} cannot run here: {probe.fault}")
        async with Rehearsal.start() as running:
            yield running

    @pytest.fixture(scope="class")
    @classmethod
    async def shared(cls, rehearsal: Rehearsal, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shared]:
        """One session for all tests of a class that leave it as they found it: starting a program takes its time."""
        tools = StageTools()
        async with staged(cls.kind, rehearsal, tmp_path_factory.mktemp("shared")) as stage:
            yield Shared(stage, await stage.open(tools=tools.all), tools)

    @pytest.fixture
    async def stage(self, rehearsal: Rehearsal, tmp_path: Path) -> AsyncIterator[Stage]:
        """A stage of the test's own."""
        async with staged(self.kind, rehearsal, tmp_path) as made:
            yield made
