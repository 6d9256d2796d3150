"""How long a person's prompt waits for the hook of an attached session, as the program runs it.

Beside a hook that does nothing, and beside one that starts Python: with a host that answers, in a process of its own,
its ledger entry on disk included; and without a host, from the last set.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from buzz_host.attach.attaching import Target, attach
from buzz_host.attach.listener import listening
from buzz_host.attach.snapshots import write_snapshots
from buzz_host.settings import Home
from tests.benchmarks.measuring import Work, compare
from tests.benchmarks.row import Row
from tests.host.attach.conftest import hook_input, hooks_of, write_plugin
from tests.host.attach.test_sessions import ended, started_host

OWED_S = 0.05
PLUGINS = 10
PLUGIN_BYTES = 700
START_DEADLINE_S = 20.0
BUDGET_S = 3.0
NOTHING = ["/bin/sh", "-c", "exit 0"]
PYTHON = [sys.executable, "-c", "import json, sys; json.load(sys.stdin)"]


def rows() -> Iterator[Row]:
    """The hook of ten plugins of 700 bytes, in every way in which it is answered."""
    with tempfile.TemporaryDirectory(prefix="buzz-bench-", ignore_cleanup_errors=True) as folder:
        root = Path(folder).resolve()
        home = Home.resolve(root / "home")
        for number in range(PLUGINS):
            write_plugin(home, f"p{number}", "x" * PLUGIN_BYTES, when="lambda agent: True")
        (root / "project").mkdir()
        target = Target.of(root / "project", user=False)
        attach(home, target)
        asyncio.run(write_snapshots(home))
        hook = hooks_of(target.file)[0]
        environment = {"PATH": os.environ["PATH"], "CLAUDE_PROJECT_DIR": str(target.project)}

        def run(command: list[str]) -> bytes:
            done = subprocess.run(command, input=hook_input(cwd=root), capture_output=True, env=environment, check=True)
            return done.stdout

        process = started_host(home)
        try:
            end = time.monotonic() + START_DEADLINE_S
            while listening(home) is None:
                if time.monotonic() > end:
                    raise RuntimeError("the host did not start")
                time.sleep(0.05)
            assert b"additionalContext" in run(hook)
            yield from _rows("attached prompt, the host answers", lambda: run(hook), run)
        finally:
            ended(process)
        assert b"additionalContext" in run(hook)
        yield from _rows("attached prompt, no host", lambda: run(hook), run)


def _rows(name: str, ours: Work, run: Callable[[list[str]], object]) -> Iterator[Row]:
    yield compare(
        name,
        ours,
        lambda: run(NOTHING),
        peer_name="a hook that does nothing",
        at_most=1,
        extra_s=OWED_S,
        budget_s=BUDGET_S,
    )
    yield compare(name, ours, lambda: run(PYTHON), peer_name="a hook that starts Python", at_least=1, budget_s=BUDGET_S)
