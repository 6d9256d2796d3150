"""Which programs are on this machine: for tests that need a real one, and say so.

A missing program is a skip on a laptop and a failure where `CI=true`, so that no test is passed over unseen there.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

if TYPE_CHECKING:
    from buzz_author.plugins import Programs

PROGRAMS_VARIABLE: Final = "BUZZ_PROGRAMS"
_NOWHERE: Final = Path("/nonexistent/buzz/harnesses")


@functools.cache
def programs() -> Programs:
    """What `ctx.programs` is to a harness: those below `$BUZZ_PROGRAMS`, else those on the PATH."""
    from buzz_host.programs.places import ProgramPlaces

    return ProgramPlaces(_NOWHERE)


def claude_program() -> Path | None:
    """The Claude Code program that the SDK would start: its own, else the path's; None where either is missing.

    The SDK is looked for and not imported: importing it takes seconds.
    """
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        bundled = Path(folder) / "_bundled" / "claude"
        if os.access(bundled, os.X_OK):
            return bundled
    on_path = shutil.which("claude")
    return Path(on_path) if on_path else None


def program_is_here(harness: str) -> bool:
    """Whether the program of a harness is on this machine, by its id."""
    if harness == "claude":
        return claude_program() is not None
    folder = Path(os.environ.get(PROGRAMS_VARIABLE) or _NOWHERE) / harness
    return any(folder.glob("*/node_modules")) or shutil.which(harness) is not None


def missing(reason: str) -> NoReturn:
    """Skip the test on a laptop; fail it in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def need_program(harness: str) -> None:
    """Pass a test over, or fail it, when the program of this harness is not here."""
    if program_is_here(harness):
        return
    if harness == "claude":
        missing("the Claude Code program is not here: pip install 'buzz-agents[claude]'")
    missing(
        f"the program of {harness} is not here: buzz harness install {harness}, or name its folder in BUZZ_PROGRAMS"
    )
