"""On a terminal there are colours, one for each plugin, and wrapped texts; with NO_COLOR, or into a pipe, neither."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from buzz_host.cli.drawing import PLUGIN_COLOURS, Palette
from buzz_host.settings import Home
from tests.cli.commands import PARROT_OPTIONS, Buzz
from tests.cli.ledgers import HOSTILE, TURN, full_turn, spoken, turn_record, write
from tests.cli.terminals import on_a_terminal

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def written(opened: Home) -> Home:
    write(opened, turn_record(1, spoken("one", "a", "word " * 40), spoken("two", "b", "Two.")))
    return opened


@pytest.mark.req("OPS-01", "AUD-01")
def test_a_transcript_is_coloured_by_plugin_and_wrapped(written: Home, environment: dict[str, str], work: Path) -> None:
    code, text = on_a_terminal("audit", "show", TURN, environment=environment, work=work)
    assert code == 0
    one = re.search(r"\x1b\[([0-9;]+)mplugin-instructions.*one/a", text)
    two = re.search(r"\x1b\[([0-9;]+)mplugin-instructions.*two/b", text)
    assert one, text
    assert two, text
    assert one[1] != two[1]
    plain = COLOUR.sub("", text)
    assert "\x1b" not in plain
    assert max(map(len, plain.split("\n"))) <= 80
    assert plain.count("│ word word") == 3


@pytest.mark.req("OPS-01")
def test_no_color_means_none(written: Home, environment: dict[str, str], work: Path) -> None:
    for arguments in (
        ["audit", "show", TURN],
        ["audit", "turns"],
        ["plugin", "list"],
        ["preview", *PARROT_OPTIONS, "x"],
    ):
        _, coloured = on_a_terminal(*arguments, environment=environment, work=work)
        code, plain = on_a_terminal(*arguments, environment={**environment, "NO_COLOR": "1"}, work=work)
        assert code == 0
        assert "\x1b" not in plain, arguments
        assert COLOUR.search(coloured), arguments


@pytest.mark.req("CLI-01")
def test_json_has_no_codes_on_a_terminal_either(written: Home, environment: dict[str, str], work: Path) -> None:
    for arguments in (["audit", "show", TURN], ["run", *PARROT_OPTIONS, "tool"]):
        code, text = on_a_terminal(*arguments, "--json", environment=environment, work=work)
        assert code == 0
        assert "\x1b" not in text


@pytest.mark.req("OPS-01")
def test_a_pipe_gets_whole_lines_without_codes(written: Home, buzz: Buzz) -> None:
    out = buzz("audit", "show", TURN).out
    assert "\x1b" not in out
    assert "│ " + ("word " * 40).strip() in out, "lines can be searched"


@pytest.mark.req("SEC-04")
def test_only_our_own_codes_reach_a_terminal(opened: Home, environment: dict[str, str], work: Path) -> None:
    write(opened, *full_turn(HOSTILE))
    for arguments in (["audit", "show", TURN], ["audit", "why", TURN], ["audit", "plugin", "style-guide"]):
        code, text = on_a_terminal(*arguments, environment=environment, work=work)
        assert code == 0
        assert not set(COLOUR.sub("", text)) & set("\x1b\x9b\u202e\x07\r"), arguments


@pytest.mark.req("AUD-01")
def test_colours_repeat_when_there_are_many_plugins() -> None:
    palette = Palette()
    first = [palette.of(f"plugin-{number}") for number in range(len(PLUGIN_COLOURS) + 1)]
    assert first[:-1] == list(PLUGIN_COLOURS)
    assert first[-1] == first[0]
    assert palette.of("plugin-1") == first[1]
    assert palette.of(None) == "default"
