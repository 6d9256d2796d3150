"""The rules of the root conftest, each seen to hold and to fail, on small tests that run in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.quality.tree import ROOT

PATIENT, IMPATIENT = "CHILD_EXIT_DEADLINE_S = 10.0", "CHILD_EXIT_DEADLINE_S = 0.2"
NEEDS_CLAUDE = "import pytest\n\n@pytest.mark.claude\ndef test_it():\n    pass\n"
NEEDS_A_PROGRAM = "import pytest\n\n@pytest.mark.program('no-such-harness')\ndef test_it():\n    pass\n"
LEAVES_A_CHILD = "import subprocess\n\ndef test_it():\n    subprocess.Popen(['sleep', '3'])\n"
LEAVES_A_ZOMBIE = "import os\n\ndef test_it():\n    if os.fork() == 0:\n        os._exit(0)\n"
LOOKS_AROUND = """
import os

def test_it(home):
    assert not [name for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE", "OPENAI_"))]
    assert os.environ["BUZZ_HOME"] == str(home)
    assert not home.exists()
"""


def _run(folder: Path, test: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One run of pytest below our conftest, where no Claude Code program can be found unless the test put one there."""
    rules = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    assert PATIENT in rules
    (folder / "conftest.py").write_text(rules.replace(PATIENT, IMPATIENT), encoding="utf-8")
    (folder / "test_small.py").write_text(test, encoding="utf-8")
    (folder / "shadow" / "claude_agent_sdk").mkdir(parents=True, exist_ok=True)
    (folder / "shadow" / "claude_agent_sdk" / "__init__.py").touch()
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(folder / "shadow"), **environment}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={folder}",
         "-p", "no:cacheprovider", str(folder)],
        cwd=folder, env=clean, capture_output=True, encoding="utf-8", timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("test", [NEEDS_CLAUDE, NEEDS_A_PROGRAM], ids=["claude", "another"])
def test_a_missing_program_is_a_skip_on_a_laptop(tmp_path: Path, test: str) -> None:
    done = _run(tmp_path, test)
    assert (done.returncode, "1 skipped" in done.stdout) == (0, True), done.stdout


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (NEEDS_CLAUDE, "the Claude Code program is not here"),
        (NEEDS_A_PROGRAM, "the program of no-such-harness is not here: buzz harness install no-such-harness"),
    ],
    ids=["claude", "another"],
)
def test_a_missing_program_is_a_failure_in_ci(tmp_path: Path, test: str, words: str) -> None:
    done = _run(tmp_path, test, CI="true")
    assert done.returncode == 1
    assert words in done.stdout


def test_a_program_below_the_folder_of_programs_is_found(tmp_path: Path) -> None:
    (tmp_path / "programs" / "no-such-harness" / "1.0" / "node_modules").mkdir(parents=True)
    done = _run(tmp_path, NEEDS_A_PROGRAM, CI="true", BUZZ_PROGRAMS=str(tmp_path / "programs"))
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


def test_a_program_that_the_sdk_brings_is_found(tmp_path: Path) -> None:
    program = tmp_path / "shadow" / "claude_agent_sdk" / "_bundled" / "claude"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    done = _run(tmp_path, NEEDS_CLAUDE, CI="true")
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


@pytest.mark.parametrize("test", [LEAVES_A_CHILD, LEAVES_A_ZOMBIE], ids=["running", "zombie"])
def test_a_child_that_is_left_behind_is_a_failure(tmp_path: Path, test: str) -> None:
    done = _run(tmp_path, test)
    assert done.returncode == 1
    assert "child processes were left behind" in done.stdout


def test_nobodys_credentials_reach_a_test(tmp_path: Path) -> None:
    done = _run(tmp_path, LOOKS_AROUND, ANTHROPIC_API_KEY="x", CLAUDE_CONFIG_DIR="x", OPENAI_API_KEY="x", BUZZ_HOME="x")
    assert done.returncode == 0, done.stdout
