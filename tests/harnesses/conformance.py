"""Claude Code on a stage, for tests of its own; the suite itself is `buzz_author.testing`."""

from __future__ import annotations

from buzz_author.testing.stage import SYSTEM_PROMPT, Stage, spec_for, staged
from buzz_author.testing.talk import DEADLINE_S, Talk, check_laws
from buzz_author.testing.under_test import HarnessUnderTest as Kind
from buzz_author.testing.wires import end_of_newest_user_message
from tests.harnesses.test_claude import CLAUDE

__all__ = [
    "CLAUDE",
    "DEADLINE_S",
    "SYSTEM_PROMPT",
    "Kind",
    "Stage",
    "Talk",
    "check_laws",
    "end_of_newest_user_message",
    "spec_for",
    "staged",
]
