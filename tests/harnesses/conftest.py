"""One recorded model for all tests of a module that brings none of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from buzz_host.rehearsal import Rehearsal


@pytest.fixture(scope="module")
async def rehearsal(anyio_backend: str) -> AsyncIterator[Rehearsal]:
    async with Rehearsal.start() as running:
        yield running
