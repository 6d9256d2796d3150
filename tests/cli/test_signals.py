"""A command that is told to end does so in order: what runs is recorded, and nothing is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from buzz_host.services.audit import Audit
from buzz_host.settings import Home
from tests.cli.commands import BUZZ, PARROT, PARROT_OPTIONS
from tests.cli.hosts import serving

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


# A child inherits what is ignored, as `nohup` uses it.
IGNORING: Final = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.req("OPS-03", "CLI-01")
@pytest.mark.parametrize(
    ("signals", "most_s"),
    [
        ([signal.SIGINT], 10),
        ([signal.SIGINT, signal.SIGINT], 2.5),
        ([signal.SIGINT, signal.SIGTERM], 2.5),
        ([signal.SIGTERM], 10),
        ([signal.SIGHUP], 10),
    ],
)
def test_a_program_that_does_not_stop_holds_nobody_and_each_beginning_has_one_end(
    environment: dict[str, str], work: Path, opened: Home, signals: list[signal.Signals], most_s: float
) -> None:
    command = [*BUZZ, "run", "--json", *PARROT_OPTIONS, 'say "so far"\nhang deaf']
    with subprocess.Popen(
        command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline()) for _ in range(len("so far") + 1)]
        for number in signals[:-1]:
            process.send_signal(number)
            time.sleep(0.3)  # two at once would be one
        begun = time.monotonic()
        process.send_signal(signals[-1])
        out, said = process.communicate(timeout=DEADLINE_S)
        took_s = time.monotonic() - begun
    assert process.returncode == 130, said
    assert took_s < most_s
    assert b"Traceback" not in said
    assert (b"waiting for the program" in said) == (signal.SIGINT in signals)
    told += [json.loads(line) for line in out.decode().split("\n")[:-1]]
    ends = [(each["turn"], each["status"]) for each in told if each["event"] == "turn_completed"]
    assert ends == [(told[0]["turn"], "interrupted")]
    assert [row.status for row in Audit(opened).turns()] == ["interrupted"]


@pytest.mark.req("CLI-01")
def test_a_hang_up_that_is_ignored_stays_ignored(environment: dict[str, str], work: Path, opened: Home) -> None:
    command = [sys.executable, "-c", IGNORING, *BUZZ, "run", "--json", *PARROT_OPTIONS, 'say "so far"\nhang']
    with subprocess.Popen(
        command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        for _ in range(len("so far") + 1):
            process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert [row.status for row in Audit(opened).turns()] == ["interrupted"]


@pytest.mark.req("OPS-03", "CLI-01")
def test_who_leaves_a_running_host_is_told_one_end_too(environment: dict[str, str], work: Path, opened: Home) -> None:
    (opened.folder(opened.plugins) / PARROT.name).write_bytes(PARROT.read_bytes())
    with serving(environment, work):
        command = [*BUZZ, "run", "--json", *PARROT_OPTIONS[2:], 'say "so far"\nhang deaf']
        with subprocess.Popen(
            command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            told = [json.loads(process.stdout.readline()) for _ in range(len("so far") + 1)]
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            out, said = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 130, said
        told += [json.loads(line) for line in out.decode().split("\n")[:-1]]
        ends = [(each["turn"], each["status"], each["reply"]) for each in told if each["event"] == "turn_completed"]
        assert ends == [(told[0]["turn"], "interrupted", "so far")]
        assert [row.status for row in Audit(opened).turns()] == ["interrupted"]
