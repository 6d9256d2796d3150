"""A command that is told to end does so in order: what runs is recorded, and nothing is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from buzz_host.services.audit import Audit
from buzz_host.settings import Home

WAITING = Path(__file__).parents[1] / "host" / "services" / "echo_harness.py"
DEADLINE_S = 30.0


@pytest.mark.req("OPS-03", "CLI-01")
def test_sigterm_ends_the_turn_and_records_it(home: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "buzz_host.cli", "run", "--plugin", str(WAITING), "--harness", "echo"]
    with subprocess.Popen(
        [*command, "--rehearse", "wait for ever"],
        env={"PATH": "/usr/bin:/bin", "BUZZ_HOME": str(home), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        audit = Audit(Home.resolve(home))
        end = time.monotonic() + DEADLINE_S
        while not audit.turns() and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert [row.status for row in audit.turns()] == ["interrupted"]
    assert list(temporary.iterdir()) == []


@pytest.mark.req("CLI-01")
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["run", "--plugin", str(WAITING), "--harness", "echo", "--model-url", "foo", "Hello"],
            "no endpoint of a model",
        ),
        (["run", "--plugin", str(WAITING), "--harness", "echo", " "], "the message is empty"),
        (["preview", " \n"], "the message is empty"),
    ],
)
def test_what_cannot_become_a_turn_is_refused_before_anything_is_recorded(
    home: Path, arguments: list[str], line: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "buzz_host.cli", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert line in done.stderr
    assert done.stderr.count("\n") == 1
    assert not home.joinpath("state.db").exists()
