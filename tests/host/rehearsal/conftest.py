"""One running server for the tests of this folder that only ask it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from buzz_host.rehearsal import Rehearsal


@pytest.fixture
async def rehearsal(anyio_backend: str) -> AsyncIterator[Rehearsal]:
    async with Rehearsal.start() as running:
        yield running
