"""`buzz run --harness all`: one text through each harness that is here, and plugins' part the same in each."""

from __future__ import annotations

from pathlib import Path

import pytest

from buzz_host.services.side_by_side import Side, identical, sides_json
from tests.cli.commands import EXAMPLES, PARROT, Buzz
from tests.cli.hosts import serving
from tests.docs.pages import code, tables
from tests.quality.tree import ROOT

EVENTS = ROOT / "docs" / "events.md"
SPEAKS = ("--plugin", str(EXAMPLES / "style-guide"))


def installed(buzz: Buzz) -> list[str]:
    return [row["harness"] for row in buzz("harness", "list", "--json").rows if row["fault"] is None]


@pytest.mark.claude
@pytest.mark.req("HAR-01", "HAR-03", "INS-01", "CLI-01")
def test_each_harness_answers_and_carries_the_same_plugin_part(buzz: Buzz) -> None:
    here = installed(buzz)
    assert {"claude", "direct"} <= set(here)
    done = buzz("run", "--harness", "all", "--rehearse", *SPEAKS, "hello")
    assert done.code == 0, done
    blocks = done.out.split("── ")[1:]
    assert [each.partition(":")[0] for each in blocks[:-1]] == here
    for block in blocks[:-1]:
        assert "plugin-instructions plugin=style-guide (209" in block.replace("\n│ ", " "), block
    assert len({line for line in done.out.split("\n") if line.startswith("plugins ")}) == 1
    assert f"✓ {len(here)} plugin parts are identical" in blocks[-1]
    assert f"✓ {len(here)} of {len(here)} harnesses answered" in blocks[-1]
    behind = {each.partition(":")[0] for each in blocks if "\nadded   behind it" in each}
    assert behind == {"goose"} & set(here)
    assert sorted(line.split(":")[0] for line in done.err.split("\n")[:-1]) == here
    # Each is a session of its own, on record.
    rows = buzz("audit", "turns", "--json").rows
    assert sorted(row["harness"] for row in rows) == here
    assert {row["status"] for row in rows} == {"completed"}


@pytest.mark.claude
@pytest.mark.req("CLI-01", "HAR-01")
def test_as_json_each_event_has_its_session_and_the_comparison_comes_last(
    buzz: Buzz, environment: dict[str, str], work: Path
) -> None:
    def told() -> list[str]:
        done = buzz("run", "--harness", "all", "--rehearse", "--json", "hello")
        assert (done.code, done.err) == (0, "")
        *events, compared = done.rows
        assert (compared["event"], compared["identical"]) == ("compared", True)
        sessions = {row["harness"]: row["session"] for row in compared["harnesses"]}
        assert {row["session"] for row in events} == set(sessions.values())
        for row in compared["harnesses"]:
            own = [each for each in events if each["session"] == row["session"]]
            assert (own[0]["event"], own[-1]["event"]) == ("turn_started", "turn_completed")
            assert (own[0]["harness"], own[0]["turn"]) == (row["harness"], row["turn"])
            assert (row["arrived"], row["before"], row["fault"]) == (True, "", None)
            assert (row["behind"] != "") == (row["harness"] == "goose")
            assert row["reply"] == own[-1]["reply"]
        return list(sessions)

    alone = told()
    with serving(environment, work):
        assert told() == alone


@pytest.mark.req("CLI-01")
def test_one_that_fails_is_named_and_the_exit_code_is_1(buzz: Buzz) -> None:
    """Without a way to a model most cannot even begin; a harness that needs none answers all the same."""
    done = buzz("run", "--harness", "all", "--plugin", str(PARROT), *SPEAKS, 'say "Hello"', PATH="/usr/bin:/bin")
    assert done.code == 1
    parrot = next(each for each in done.out.split("── ") if each.startswith("parrot: Parrot 1.0"))
    assert "│ Hello\nplugins 275 bytes  sha256 " in parrot
    last = done.out.split("── ")[-1]
    assert "✗ " in last
    assert "harnesses answered; failed: " in last
    assert "failed  Claude Code has no way to a model: " in done.out or "claude" not in done.out


@pytest.mark.req("CLI-01")
@pytest.mark.parametrize("option", [("--resume", "x"), ("--rehearse", "--record", "file")])
def test_what_is_about_one_session_is_refused(option: tuple[str, ...], buzz: Buzz) -> None:
    done = buzz("run", "--harness", "all", *option, "hello")
    assert (done.code, done.out) == (2, "")
    assert "is about one session: name one harness instead of 'all'" in done.err


@pytest.mark.req("CLI-01")
def test_the_page_lists_the_keys_of_the_comparison() -> None:
    (row,) = sides_json([Side("a")])["harnesses"]  # type: ignore[misc]
    listed = [name for each in tables(EVENTS)["key of a harness | value"] for name in code(each[0])]
    assert listed == list(row)


@pytest.mark.req("HAR-03")
def test_parts_are_identical_only_when_all_are_there() -> None:
    one = Side("a", session="s", turn="t", plugin_part="x")
    assert identical([one, Side("b", session="s", turn="u", plugin_part="x")])
    assert not identical([one, Side("b", session="s", turn="u", plugin_part="y")])
    assert not identical([one, Side("b", fault="not there")])
    assert not Side("a", status="completed", arrived=False).completed
