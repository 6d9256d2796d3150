"""What plugins log reaches a person's stderr safe to look at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LOUD = """
def apply(ctx):
    ctx.log.warning("hello \\x1b[31mred\\x1b]0;title\\x07 %s", "there")
    try:
        raise ValueError("\\x1b[2J")
    except ValueError:
        ctx.log.exception("it failed")
"""


@pytest.mark.req("SEC-04")
def test_what_a_plugin_logs_does_nothing_to_a_terminal(home: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "loud.py"
    plugin.write_text(LOUD, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "buzz_host.cli", "preview", "--plugin", str(plugin), "Hello"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stderr
    assert "\x07" not in done.stderr
    assert "warning: loud: hello \\x1b[31mred\\x1b]0;title\\x07 there\n" in done.stderr
    assert "error: loud: it failed\nTraceback" in done.stderr
