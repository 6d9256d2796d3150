"""`direct` in the conformance suite, over both protocols of OpenAI."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import pytest

from buzz_author.harness import Harness
from buzz_author.testing import HarnessConformance, HarnessUnderTest, Stage
from buzz_author.testing.tools import Tools
from buzz_author.testing.turns import Turns
from buzz_host.rehearsal import Rehearsal
from tests.harnesses.chat_only import ChatOnly


def direct_harness(**fixed: object) -> Harness:
    from harnesses.direct import DirectHarness

    return DirectHarness(**fixed)  # type: ignore[arg-type]


DIRECT = HarnessUnderTest(
    "direct",
    direct_harness,
    runs_program=False,
    idle_s=lambda seconds: {"settings": {"idle_s": seconds}},
    compact="rehearse: fail 413 1 time\nrehearse: say Shorter.",
)


class TestDirect(HarnessConformance):
    kind = DIRECT


class TestDirectOverChat(Turns, Tools):
    """An endpoint without Responses, as Ollama's and many others are."""

    kind = attrs.evolve(DIRECT, images=False)  # a tool's message has text alone in this protocol

    @pytest.fixture(scope="class")
    @classmethod
    async def rehearsal(cls, anyio_backend: str) -> AsyncIterator[ChatOnly]:  # type: ignore[override]
        async with Rehearsal.start() as running, ChatOnly(running).listening() as chat_only:
            yield chat_only

    @pytest.mark.req("HAR-04")
    async def test_what_an_endpoint_speaks_is_asked_once(self, stage: Stage, rehearsal: ChatOnly) -> None:
        before = rehearsal.refused
        harness_made_once = direct_harness()
        for _ in range(2):
            talk = await stage.open(harness=harness_made_once)
            assert (await talk.ask("rehearse: say One.")).reply == "One."
            assert (await talk.ask("rehearse: say Two.")).reply == "Two."
        assert rehearsal.refused == before + 1
        assert {each.path for each in stage.requests()} == {"/v1/chat/completions"}
