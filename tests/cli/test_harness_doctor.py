"""`buzz harness doctor` on the real programs: each is green, and what it adds behind the text of a turn is named."""

from __future__ import annotations

import pytest

from tests.cli.commands import Buzz

# What each program itself adds behind the turn's text.
BEHIND = {"claude": "", "codex": "", "goose": "<turn-context>", "pi": ""}


@pytest.mark.req("HAR-01", "HAR-06", "TRN-01")
@pytest.mark.program("claude", "codex", "goose", "pi")
def test_the_doctor_is_green_for_each_real_program(buzz: Buzz) -> None:
    done = buzz("harness", "doctor", *BEHIND, "--json")
    assert done.code == 0, done.out
    assert [row["harness"] for row in done.rows] == list(BEHIND)
    for row in done.rows:
        assert (row["state"], row["fault"], row["tool"]) == ("holds", "", "answered")
        assert (row["arrived"]["role"], row["arrived"]["newest"], row["arrived"]["last"]) == ("user", True, True)
        behind = row["arrived"]["behind"].strip()
        assert behind.startswith(BEHIND[row["harness"]])
        assert bool(behind) == bool(BEHIND[row["harness"]])
        assert "PATH" in row["exposed"]
