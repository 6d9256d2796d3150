"""The roster of sessions: what is remembered of each is found again as it was."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from buzz_host.sessions.roster import KnownSession, find, remember
from buzz_host.settings import Home
from buzz_host.store import Store

pytestmark = pytest.mark.anyio


@pytest.mark.req("OPS-01", "OPS-03")
@pytest.mark.parametrize("name", [b"plain", "gr\u00fc\u00df \U0001f600".encode(), b"nonutf\xff\xfe", b"new\nline"])
async def test_any_folder_is_found_again_to_the_byte(tmp_path: Path, name: bytes) -> None:
    folder = tmp_path / os.fsdecode(name)
    session = KnownSession("7a1", "main", "claude", folder, None, datetime(2026, 1, 1, tzinfo=UTC))
    store = Store.open(Home.resolve(tmp_path / "home"))
    try:
        await store.write(lambda tx: remember(tx, session))
        with store.read() as connection:
            assert find(connection, "7a") == session
    finally:
        store.close()
