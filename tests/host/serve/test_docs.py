"""docs/serving.md says what a host does: its calls with their arguments, its bounds, its deadlines."""

from __future__ import annotations

import attrs
import pytest

from buzz_author.framing import LINE_MAX_BYTES
from buzz_host.serve.clients import REQUESTS_AT_ONCE
from buzz_host.serve.running import STOP_DEADLINE_S, TURNS_DEADLINE_S
from buzz_host.services.calls import CALLS
from buzz_host.services.place import SOCKET_PATH_MAX_BYTES
from buzz_host.services.session_calls import SESSION_CALLS
from tests.docs.pages import code, tables
from tests.docs.test_facts import says
from tests.quality.tree import ROOT

PAGE = ROOT / "docs" / "serving.md"


@pytest.mark.req("CLI-01")
def test_the_page_lists_every_call_with_its_arguments() -> None:
    listed = {code(row[0])[0]: code(row[1]) for row in tables(PAGE)["call | arguments | what it does"]}
    calls = {
        name: [f"{each.name}{'' if each.default is attrs.NOTHING else '?'}" for each in attrs.fields(kind)]
        for name, kind in {**CALLS, **SESSION_CALLS}.items()
    }
    assert listed == calls


@pytest.mark.req("SEC-01", "OPS-03")
def test_the_page_gives_the_bounds_as_they_are() -> None:
    says(PAGE, f"has at most {LINE_MAX_BYTES // 1024**2} MiB")
    says(PAGE, f"up to {REQUESTS_AT_ONCE} of one connection")
    says(PAGE, f"more than {SOCKET_PATH_MAX_BYTES} bytes")
    says(
        PAGE,
        f"within {TURNS_DEADLINE_S:g} s, else their programs are ended. After {STOP_DEADLINE_S:g} s the process ends",
    )
