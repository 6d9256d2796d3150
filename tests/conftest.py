"""What every test stands on: a home of its own, nobody's credentials in the environment, one async backend.

Two rules live here because no single test can keep them: soak tests run only when asked for; a session leaves no child
behind. A third is the suite's for authors (`buzz_author.testing.pytest_plugin`): a test that needs a real program is
skipped on a laptop without it and fails in CI.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["buzz_author.testing.pytest_plugin"]
SOAK = os.environ.get("BUZZ_SOAK") == "1"
SCRUBBED_PREFIXES = ("ANTHROPIC_", "CLAUDE", "OPENAI_", "BUZZ_")
KEPT_VARIABLES = frozenset({"BUZZ_PROGRAMS", "BUZZ_SOAK"})
CHILD_EXIT_DEADLINE_S = 10.0
REDUCED_EXAMPLES = 60
FULL_EXAMPLES = 2000

# Two cores are shared by everything that runs: a deadline per example would measure the neighbours.
shared = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("reduced", shared, max_examples=REDUCED_EXAMPLES, stateful_step_count=20)
settings.register_profile("full", shared, max_examples=FULL_EXAMPLES, stateful_step_count=50)
settings.load_profile("full" if SOAK else "reduced")


def pytest_configure(config: pytest.Config) -> None:
    """Take the credentials and settings of whoever runs the tests out of the environment."""
    for name in list(os.environ):
        if name.startswith(SCRUBBED_PREFIXES) and name not in KEPT_VARIABLES:
            del os.environ[name]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("soak") and not SOAK:
        pytest.skip("full counts: make soak")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh home folder's path, in BUZZ_HOME. It does not exist yet: the host makes it on first need."""
    path = tmp_path / "home"
    monkeypatch.setenv("BUZZ_HOME", str(path))
    return path


@pytest.fixture(scope="session", autouse=True)
def _nobodys_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test that forgets the `home` fixture writes to a temporary folder, never to a person's ~/.buzz."""
    os.environ["BUZZ_HOME"] = str(tmp_path_factory.mktemp("unasked") / "home")
    yield
    os.environ.pop("BUZZ_HOME", None)


def _children() -> dict[int, str]:
    """Our child processes: pid -> what it is; a zombie is dead, but we have not collected it."""
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
            state, parent = rest.split()[:2]
            if int(parent) != os.getpid():
                continue
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:  # it ended while we looked
            continue
        if "multiprocessing.resource_tracker" in command:  # the interpreter's own; it ends with us
            continue
        found[int(entry.name)] = "a zombie: " + name if state == "Z" else command
    return found


@pytest.fixture(scope="session", autouse=True)
def _no_child_left_behind() -> Iterator[None]:
    """After the last test no child of this process is left, neither running nor dead and uncollected."""
    before = set(_children())
    yield
    deadline = time.monotonic() + CHILD_EXIT_DEADLINE_S
    while left := {pid: what for pid, what in _children().items() if pid not in before}:
        if time.monotonic() > deadline:
            pytest.fail(f"child processes were left behind: {left}", pytrace=False)
        time.sleep(0.05)
