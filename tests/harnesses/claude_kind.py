"""Claude Code as the conformance suite sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from buzz_author.harness import Harness
from buzz_author.testing import HarnessUnderTest


def claude_harness(**fixed: object) -> Harness:
    from harnesses.claude import ClaudeHarness

    return ClaudeHarness(**fixed)  # type: ignore[arg-type]


def lower_line_bound(patched: pytest.MonkeyPatch, octets: int) -> dict[str, object]:
    patched.setattr("harnesses.claude.session.LINE_MAX_BYTES", octets)
    return {}


def writing(path: Path) -> str:
    return f"Write {json.dumps({'file_path': str(path), 'content': 'tea'})}"


CLAUDE = HarnessUnderTest(
    "claude",
    claude_harness,
    native_model="claude-sonnet-4-5",
    own_call=writing,
    compact="rehearse: fail 413",  # says the model, so the program replaces its history by a summary
    lower_line_bound=lower_line_bound,
    leftovers=("buzz/*",),
)
