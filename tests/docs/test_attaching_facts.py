"""The numbers of docs/attaching.md are those of the code."""

from __future__ import annotations

import re

import pytest

from buzz_host.attach.client import OLDEST_BASH, client_program
from buzz_host.attach.current_set import GUARDS_TOGETHER_S
from buzz_host.attach.handing import ANSWER_BUDGET_S
from buzz_host.attach.hook_entries import HOOK_TIMEOUT_S
from buzz_host.attach.parts import ENTRY_MAX_UNITS
from buzz_host.attach.registry import DEFAULT_ENTRIES, ENTRIES_MAX, HARNESS
from buzz_host.cli import attach as verb
from tests.docs.test_facts import DOCS, says

pytestmark = pytest.mark.req("AUT-03")

PAGE = DOCS / "attaching.md"


def test_the_times_and_sizes_are_those_of_the_code() -> None:
    says(PAGE, f"A host has {ANSWER_BUDGET_S:g} s for its answer")
    says(PAGE, f"the guards of all plugins together have {GUARDS_TOGETHER_S:g} s")
    says(PAGE, f"One entry of a hook holds {ENTRY_MAX_UNITS:,} characters")
    says(PAGE, f"(`--entries`, {DEFAULT_ENTRIES} if you say nothing)")
    says(PAGE, f"**bash** {OLDEST_BASH[0]} or newer")
    says(PAGE, f"the harness `{HARNESS}`")


def test_every_time_limit_lies_below_the_next_one() -> None:
    program = client_program(PAGE).decode("utf-8")
    waits = [float(each) for each in re.findall(r"read -r -t ([0-9.]+)", program)]
    assert waits == [2.0, 0.5, 1.0]
    says(PAGE, f"the client waits {max(waits):g} s for it")
    assert GUARDS_TOGETHER_S < ANSWER_BUDGET_S < max(waits)
    assert sum(waits) < HOOK_TIMEOUT_S


def test_the_command_line_takes_as_many_entries_as_there_can_be() -> None:
    assert verb.ENTRIES_MAX == ENTRIES_MAX
