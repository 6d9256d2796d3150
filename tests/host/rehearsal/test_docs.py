"""Every example of docs/rehearsal.md does what the page says."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path

import pytest

from buzz_host.rehearsal import Rehearsal
from buzz_host.rehearsal.script import FAULTS, VERBS
from tests.host.rehearsal.asking import ask, trace, user

pytestmark = [pytest.mark.anyio, pytest.mark.req("HAR-05")]

PAGE = Path(__file__).parents[3] / "docs" / "rehearsal.md"
BLOCKS = re.findall(r"^```(\S+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
EXAMPLES = [
    (told.removesuffix("\n"), shown.removesuffix("\n"))
    for (kind, told), (after, shown) in itertools.pairwise(BLOCKS)
    if kind == "message" and after == "trace"
]


@pytest.mark.parametrize(("message", "shown"), EXAMPLES)
@pytest.mark.parametrize("stream", [True, False])
async def test_each_message_of_the_page_gets_the_answers_shown(
    rehearsal: Rehearsal, message: str, shown: str, stream: bool
) -> None:
    lines = await asyncio.to_thread(trace, rehearsal.url, message, stream=stream)
    assert "\n".join(lines) == shown


async def test_both_script_files_of_the_page_answer_as_shown(tmp_path: Path) -> None:
    shown = BLOCKS[[kind for kind, _ in BLOCKS].index("script.toml") + 1][1].removesuffix("\n")
    for kind, text in BLOCKS:
        if not kind.startswith("script."):
            continue
        path = tmp_path / kind
        path.write_text(text, encoding="utf-8")
        async with Rehearsal.start(script=path) as rehearsal:
            lines = await asyncio.to_thread(trace, rehearsal.url, "rehearse: say this is not looked at")
            assert "\n".join(lines) == shown
            late = await asyncio.to_thread(ask, rehearsal.url, user("one more"))
            assert (late.status, late.error["message"]) == (
                400,
                "rehearsal: the script file is used up: it answers 4 requests, this is one more",
            )


async def test_the_python_example_runs() -> None:
    code = next(text for kind, text in BLOCKS if kind == "python")
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)

    async def asks(url: str) -> None:
        await asyncio.to_thread(ask, url, user("from the page"))

    rehearse = names["rehearse"]
    assert callable(rehearse)
    assert await rehearse(asks) == ["from the page"]


def test_the_page_names_each_directive() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(EXAMPLES) == 7
    assert set(FAULTS) < set(VERBS.split(", "))
    for verb in VERBS.split(", "):
        assert re.search(rf"^\| `{verb}[ `]", page, re.MULTILINE), verb
