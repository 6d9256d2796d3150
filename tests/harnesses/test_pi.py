"""The real Pi in the conformance suite: the line that Buzz fetches."""

from __future__ import annotations

import json

import pytest

from buzz_author.harness import Harness
from buzz_author.testing import HarnessConformance, HarnessUnderTest
from buzz_author.testing.programs import programs


def pi_harness(**fixed: object) -> Harness:
    from harnesses.pi import PiHarness

    return PiHarness(programs=programs(), **fixed)  # type: ignore[arg-type]


PI = HarnessUnderTest(
    "pi",
    pi_harness,
    own_call=lambda path: f"write {json.dumps({'path': str(path), 'content': 'made'})}",
    # Too long, says the model: what stands before the newest twenty thousand tokens becomes a summary.
    compact="rehearse: fail 413 1 time\n" + "word " * 20_000,
    recovers_from=529,
    idle_s=lambda seconds: {"idle_s": seconds},
    lower_line_bound=lambda patched, octets: {"limit_bytes": octets},
    leftovers=("buzz/*",),
)


@pytest.mark.program("pi")
class TestPi(HarnessConformance):
    kind = PI
