"""The real Codex in the conformance suite, and what is so of it alone."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.harness import Harness
from buzz_author.testing import HarnessConformance, HarnessUnderTest, staged
from buzz_author.testing.programs import programs
from buzz_host.rehearsal import Rehearsal
from harnesses.codex.encode import decoded, encoded


def codex_harness(**fixed: object) -> Harness:
    from harnesses.codex import CodexHarness

    return CodexHarness(programs=programs(), **fixed)  # type: ignore[arg-type]


CODEX = HarnessUnderTest(
    "codex",
    codex_harness,
    hidden_statuses=frozenset({400, 500}),
    tells_native_calls=False,
    recovers_from=500,
    message_max_characters=1024 * 1024,
    before_results=r"Wall time: [\d.]+ seconds\nOutput:\n",
    idle_s=lambda seconds: {"idle_s": seconds},
    lower_line_bound=lambda patched, octets: {"limit_bytes": octets},
    own_tools=frozenset(
        {"list_mcp_resource_templates", "list_mcp_resources", "read_mcp_resource", "request_user_input"}
    ),
    own_call=lambda path: f"exec_command {json.dumps({'cmd': f'touch {path}'})}",
)


@pytest.mark.program("codex")
class TestCodex(HarnessConformance):
    kind = CODEX


MENTIONS = (
    "use $lightskill now",
    "[$lightskill]({place}/SKILL.md) and $lightskill.",
    "$lightskill",
    "a price of $5, ${{HOME}}, $(ls), $HOME and $$lightskill",
)


@pytest.mark.anyio
@pytest.mark.program("codex")
@pytest.mark.req("HAR-01", "INS-07")
async def test_no_text_pulls_in_a_skill_or_leaves_the_end_of_the_message(tmp_path: Path) -> None:
    async with Rehearsal.start() as rehearsal, staged(CODEX, rehearsal, tmp_path) as stage:
        place = tmp_path / "work" / ".agents" / "skills" / "lightskill"
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text("---\nname: lightskill\ndescription: Light.\n---\nTHE BODY\n", encoding="utf-8")
        talk = await stage.open()
        harness = codex_harness()
        for text in MENTIONS:
            plain = text.format(place=place)
            handed = harness.encode(plain, talk.spec)
            await talk.ask(talk.raw(plain))
            assert stage.requests()[-1].newest_user_text == handed
            assert b"THE BODY" not in stage.requests()[-1].raw
            assert decoded(handed) == plain
        # That the program would have done so is what makes the rest mean something.
        await talk.ask(attrs.evolve(talk.raw("x"), text=MENTIONS[0]))
        assert b"THE BODY" in stage.requests()[-1].raw


@given(st.text(alphabet=st.sampled_from("$aZ_0-:.{( \u2060HOMEPATH"), max_size=60))
@pytest.mark.req("HAR-01")
def test_what_is_encoded_can_be_read_back_and_encodes_to_itself(text: str) -> None:
    once = encoded(text)
    assert encoded(once) == once
    assert decoded(once) == decoded(text)
    assert once.replace("\u2060", "") == text.replace("\u2060", "")
    assert "$" in text or once is text
