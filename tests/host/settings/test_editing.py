"""Editing `buzz.toml`: comments and order stay, other processes' edits too, and a crash leaves the old or the new."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from buzz_host.settings import Home, Settings, SettingsEdit, SettingsError, edit
from tests.conftest import SOAK

MINE = """\
# what I decided, and why
disabled_tool_plugins = [
    "noisy",  # talks too much
    "slow",
]

[agents.dev]  # the careful one
plugins_off = ["noisy"]

[plugins.style-guide]
language = "fi"   # for the team
"""
PROCESSES = 4
EDITS_EACH = 50 if SOAK else 8
KILLS = 200 if SOAK else 12


@pytest.fixture
def my_home(tmp_path: Path) -> Home:
    home = Home.resolve(tmp_path / "home")
    home.folder()
    home.config.write_text(MINE, encoding="utf-8")
    return home


@pytest.mark.req("REG-03")
def test_an_edit_keeps_comments_order_and_spacing(my_home: Home) -> None:
    def change(file: SettingsEdit) -> None:
        file.add(("disabled_tool_plugins",), "fresh")
        file.remove(("agents", "dev", "plugins_off"), "noisy")
        file.add(("agents", "main", "plugins_on"), "noisy")
        file.put(("plugins", "style-guide", "lines"), 80)

    settings = edit(my_home, change)
    text = my_home.config.read_text(encoding="utf-8")
    for kept in ("# what I decided, and why", '"noisy",  # talks too much', "[agents.dev]  # the careful one"):
        assert kept in text
    assert 'language = "fi"   # for the team' in text
    assert settings == Settings.read(my_home)
    assert settings.disabled_tool_plugins == ("noisy", "slow", "fresh")
    assert settings.agent("dev").plugins_off == ()
    assert settings.agent("main").plugins_on == ("noisy",)
    assert settings.plugin("style-guide") == {"language": "fi", "lines": 80}
    assert stat.S_IMODE(my_home.config.stat().st_mode) == 0o600


@pytest.mark.req("REG-03")
def test_edits_that_change_nothing_leave_the_file_alone(my_home: Home) -> None:
    before = my_home.config.stat()

    def change(file: SettingsEdit) -> None:
        file.add(("disabled_tool_plugins",), "noisy")
        file.remove(("forced_enabled_tool_plugins",), "noisy")
        file.remove(("agents", "nobody", "plugins_on"), "noisy")
        file.drop(("plugins", "nothing", "here"))

    edit(my_home, change)
    assert my_home.config.stat() == before
    assert my_home.config.read_text(encoding="utf-8") == MINE


@pytest.mark.req("REG-03")
def test_a_first_edit_makes_home_and_file(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path / "home")
    edit(home, lambda file: file.add(("agents", "dev", "plugins_on"), "x"))
    assert home.config.read_text(encoding="utf-8") == '[agents.dev]\nplugins_on = ["x"]\n'
    edit(home, lambda file: file.drop(("agents", "dev")))
    assert Settings.read(home).agents == {}


@pytest.mark.req("OPS-01")
def test_a_broken_file_is_never_edited(my_home: Home) -> None:
    my_home.config.write_text("a = [", encoding="utf-8")
    with pytest.raises(SettingsError, match="line 1, column 6"):
        edit(my_home, lambda file: file.add(("disabled_tool_plugins",), "x"))
    assert my_home.config.read_text(encoding="utf-8") == "a = ["


@pytest.mark.req("OPS-01")
def test_a_change_that_would_break_the_file_is_not_made(my_home: Home) -> None:
    with pytest.raises(SettingsError, match=r"would break buzz\.toml.*default_agent: expected a text"):
        edit(my_home, lambda file: file.put(("default_agent",), 1))
    with pytest.raises(SettingsError, match="disabled_tool_plugins: expected a table"):
        edit(my_home, lambda file: file.put(("disabled_tool_plugins", "x"), 1))
    assert my_home.config.read_text(encoding="utf-8") == MINE


@pytest.mark.req("SEC-03")
def test_a_link_is_not_written_through(my_home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "dotfiles.toml"
    my_home.config.rename(elsewhere)
    my_home.config.symlink_to(elsewhere)
    assert Settings.read(my_home).disabled_tool_plugins == ("noisy", "slow")
    with pytest.raises(SettingsError, match="is a link to"):
        edit(my_home, lambda file: file.add(("disabled_tool_plugins",), "x"))
    assert elsewhere.read_text(encoding="utf-8") == MINE


@pytest.mark.req("OPS-01")
def test_a_disk_that_refuses_leaves_the_old_file(my_home: Home) -> None:
    # A folder stands where the new content would be written first.
    my_home.config.with_name("buzz.toml.new").mkdir()
    with pytest.raises(SettingsError, match="its old content is still there"):
        edit(my_home, lambda file: file.add(("disabled_tool_plugins",), "x"))
    assert my_home.config.read_text(encoding="utf-8") == MINE


def without_empty_lists(table: dict[str, Any]) -> dict[str, Any]:
    """A list that an edit has emptied goes, unless a comment stands there; the two mean the same."""
    return {
        key: without_empty_lists(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value != []
    }


@pytest.mark.req("REG-01")
def test_a_list_that_is_emptied_goes_and_a_comment_stays(my_home: Home) -> None:
    my_home.config.write_text('[agents.dev]\nplugins_off = ["a"]\nplugins_on = ["b"]  # mine\n', encoding="utf-8")
    edit(my_home, lambda file: file.remove(("agents", "dev", "plugins_off"), "a"))
    edit(my_home, lambda file: file.remove(("agents", "dev", "plugins_on"), "b"))
    assert my_home.config.read_text(encoding="utf-8") == "[agents.dev]\nplugins_on = []  # mine\n"


names = st.sampled_from(["a", "b", "c-d", "e f", "g.h"])
listed = st.sampled_from([("disabled_tool_plugins",), ("forced_enabled_tool_plugins",)]) | st.builds(
    lambda agent, key: ("agents", agent, key), names, st.sampled_from(["plugins_on", "plugins_off"])
)
documents = st.sampled_from(
    ["", MINE, "agents = { dev = { plugins_on = ['a'] } }\n", "[agents]\n[plugins.a]\nx = 1\n", "[plugins]\n# end"]
)


@pytest.mark.req("REG-03")
@given(document=documents, steps=st.lists(st.tuples(st.booleans(), listed, names), max_size=12))
def test_any_row_of_edits_does_to_the_file_what_it_does_to_a_dictionary(
    document: str, steps: list[tuple[bool, tuple[str, ...], str]]
) -> None:
    edited = tomlkit.parse(document)
    model = tomllib.loads(document)
    for add, path, name in steps:
        file = SettingsEdit(edited)
        table = model
        for key in path[:-1]:
            table = table.setdefault(key, {}) if add else table.get(key, {})
        if add:
            file.add(path, name)
            names_there = table.setdefault(path[-1], [])
            if name not in names_there:
                names_there.append(name)
        else:
            file.remove(path, name)
            if name in table.get(path[-1], []):
                table[path[-1]].remove(name)
    text = tomlkit.dumps(edited)
    assert without_empty_lists(tomllib.loads(text)) == without_empty_lists(model)
    for line in document.splitlines():
        if "#" in line:
            assert line[line.index("#") :] in text


EDITOR = """
import sys
from pathlib import Path
from buzz_host.settings import Home, edit
home = Home(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    edit(home, lambda file: file.add(("disabled_tool_plugins",), f"{sys.argv[2]}-{number}"))
    print(number, flush=True)
"""


def editor(home: Home, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", EDITOR, str(home.root), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )


@pytest.mark.req("REG-03", "OPS-03")
def test_processes_that_edit_at_once_lose_none_of_each_others_edits(my_home: Home) -> None:
    editors = [editor(my_home, f"p{number}", EDITS_EACH) for number in range(PROCESSES)]
    for each in editors:
        each.communicate(timeout=60)
        assert each.returncode == 0
    expected = {f"p{process}-{number}" for process in range(PROCESSES) for number in range(EDITS_EACH)}
    assert set(Settings.read(my_home).disabled_tool_plugins) == expected | {"noisy", "slow"}
    assert "# talks too much" in my_home.config.read_text(encoding="utf-8")


@pytest.mark.req("REG-03", "OPS-03")
def test_killed_at_any_moment_the_file_is_whole_and_has_every_edit_that_was_acknowledged(my_home: Home) -> None:
    choice = random.Random(5)
    acknowledged: set[str] = set()
    for kill in range(KILLS):
        process = editor(my_home, f"k{kill}", 10_000)
        assert process.stdout is not None
        for _ in range(choice.randint(1, 6)):
            acknowledged.add(f"k{kill}-{process.stdout.readline().strip()}")
        os.kill(process.pid, signal.SIGKILL)
        rest, _ = process.communicate(timeout=60)
        acknowledged |= {f"k{kill}-{line}" for line in rest.split()}
        settings = Settings.read(my_home)
        assert acknowledged <= set(settings.disabled_tool_plugins)
    edit(my_home, lambda file: file.add(("disabled_tool_plugins",), "after"))
    assert "after" in Settings.read(my_home).disabled_tool_plugins
