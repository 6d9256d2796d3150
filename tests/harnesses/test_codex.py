"""The real Codex in the conformance suite, and what is so of it alone."""

from __future__ import annotations

import json

import pytest

from buzz_author.harness import Harness
from buzz_author.testing import HarnessConformance, HarnessUnderTest
from buzz_author.testing.programs import programs


def codex_harness(**fixed: object) -> Harness:
    from harnesses.codex import CodexHarness

    return CodexHarness(programs=programs(), **fixed)  # type: ignore[arg-type]


CODEX = HarnessUnderTest(
    "codex",
    codex_harness,
    tells_status=False,
    tells_native_calls=False,
    recovers_from=500,
    idle_s=lambda seconds: {"idle_s": seconds},
    lower_line_bound=lambda patched, octets: {"limit_bytes": octets},
    own_tools=frozenset({"request_user_input"}),
    own_call=lambda path: f"shell {json.dumps({'command': ['touch', str(path)]})}",
)


@pytest.mark.program("codex")
class TestCodex(HarnessConformance):
    kind = CODEX
