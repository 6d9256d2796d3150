"""`buzz.toml` as it is read: defaults, types, unknown keys, broken files."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_host.settings import AgentSettings, Home, Settings, SettingsError, edit, signature

EVERYTHING = """
default_agent = "dev"
disabled_tool_plugins = ["a", "b", "a"]
forced_enabled_tool_plugins = ["c"]

[agents.dev]
plugins_on = ["x"]
plugins_off = ["y"]

[plugins.style-guide]
language = "fi"
limits = { lines = 80, ratio = 0.5, strict = true, tags = ["p", { q = 1 }] }
"""


@pytest.mark.req("REG-01")
def test_every_key_is_read() -> None:
    settings = Settings.parse(EVERYTHING)
    assert settings.default_agent == "dev"
    assert settings.disabled_tool_plugins == ("a", "b")
    assert settings.forced_enabled_tool_plugins == ("c",)
    assert settings.agent("dev") == AgentSettings(("x",), ("y",))
    assert settings.plugin("style-guide") == {
        "language": "fi",
        "limits": {"lines": 80, "ratio": 0.5, "strict": True, "tags": ("p", {"q": 1})},
    }
    assert settings.warnings == ()


@pytest.mark.req("OPS-02")
def test_a_missing_or_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path / "home")
    assert Settings.read(home) == Settings()
    assert Settings.parse("") == Settings()
    assert (Settings().default_agent, Settings().agent("dev"), Settings().plugin("x")) == ("main", AgentSettings(), {})
    assert not home.root.exists(), "reading makes nothing"


@pytest.mark.req("OPS-02")
def test_what_a_plugin_is_handed_cannot_be_changed() -> None:
    limits = Settings.parse(EVERYTHING).plugin("style-guide")["limits"]
    with pytest.raises(TypeError):
        limits["lines"] = 1  # type: ignore[index,call-overload]


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("default_agent = 1", "buzz.toml: default_agent: expected a text, found the number 1"),
        ("default_agent = true", "buzz.toml: default_agent: expected a text, found true"),
        (
            'disabled_tool_plugins = "x"',
            'buzz.toml: disabled_tool_plugins: expected a list of texts, found the text "x"',
        ),
        (
            'forced_enabled_tool_plugins = ["a", ["b"]]',
            "buzz.toml: forced_enabled_tool_plugins[1]: expected a text, found a list",
        ),
        ("agents = 1", "buzz.toml: agents: expected a table, found the number 1"),
        ("[agents]\ndev = []", "buzz.toml: agents.dev: expected a table, found a list"),
        ("[agents.dev]\nplugins_on = {}", "buzz.toml: agents.dev.plugins_on: expected a list of texts, found a table"),
        (
            '[agents."a b"]\nplugins_off = [1]',
            'buzz.toml: agents."a b".plugins_off[0]: expected a text, found the number 1',
        ),
        ("[plugins]\nx = 1", "buzz.toml: plugins.x: expected a table, found the number 1"),
        ("[plugins.x]\ny = [nan]", "buzz.toml: plugins.x.y[0]: expected a finite number, found the number nan"),
        (
            "[plugins.x]\nsince = 2026-01-01",
            (
                "buzz.toml: plugins.x.since: expected a text, number, true, false, list or table "
                "(a date or time goes in quotes), found a date or time"
            ),
        ),
    ],
)
def test_a_wrong_type_is_one_line_with_path_expected_and_found(text: str, line: str) -> None:
    with pytest.raises(SettingsError) as said:
        Settings.parse(text)
    assert str(said.value) == line


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a = 1\nb = ?", "line 2, column 5"),
        ('a = "never ended', "line 1, column 17"),
        ("[agents\n", "line 1, column 8"),
        ("a = 1\na = 2", "line 2"),
        ("a = [1,\n", "line 2, column 1"),
    ],
)
def test_broken_toml_says_line_and_column(text: str, place: str) -> None:
    with pytest.raises(SettingsError, match=rf"^buzz\.toml: {place}") as said:
        Settings.parse(text)
    assert "\n" not in str(said.value)


@pytest.mark.req("OPS-01")
def test_an_unknown_key_warns_with_a_suggestion_and_stops_nothing() -> None:
    settings = Settings.parse('disabled_tool_plugin = ["a"]\nzzz = 1\n[agents.dev]\nplugin_on = []\n')
    assert settings.warnings == (
        "buzz.toml: disabled_tool_plugin: this key is not known; did you mean disabled_tool_plugins?",
        (
            "buzz.toml: zzz: this key is not known; the keys here are agents, default_agent, disabled_tool_plugins, "
            "forced_enabled_tool_plugins, permission_deadline_s, permissions, plugins"
        ),
        "buzz.toml: agents.dev.plugin_on: this key is not known; did you mean plugins_on?",
    )
    assert settings.agent("dev") == AgentSettings()


@pytest.mark.req("PRM-01")
def test_one_policy_holds_for_the_home() -> None:
    assert (Settings().permissions, Settings().permission_deadline_s) == ("plugin-tools-only", 120)
    settings = Settings.parse('permissions = "ask"\npermission_deadline_s = 2\n')
    assert (settings.permissions, settings.permission_deadline_s) == ("ask", 2)
    for line in ('permissions = "everything"', "permissions = 1", 'permissions = ["ask"]'):
        with pytest.raises(
            SettingsError, match=r'expected "ask" or "plugin-tools-only" or "read-only" or "all", found'
        ):
            Settings.parse(line)
    for value in ("0.5", "3601", "true", '"120"', "nan"):
        with pytest.raises(SettingsError, match="expected a number of seconds from 1 to 3600, found"):
            Settings.parse(f"permission_deadline_s = {value}")


@pytest.mark.req("OPS-01")
def test_what_is_no_utf8_or_no_file_is_one_line(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    home.config.write_bytes(b'default_agent = "\xff"')
    with pytest.raises(SettingsError, match=r"is not UTF-8 \(byte 17\)"):
        Settings.read(home)
    home.config.write_bytes(b'\xef\xbb\xbfdefault_agent = "dev"')
    assert Settings.read(home).default_agent == "dev", "a byte-order mark is no fault"
    home.config.unlink()
    home.config.mkdir()
    with pytest.raises(SettingsError, match="cannot be read"):
        Settings.read(home)


@pytest.mark.req("OPS-01")
@given(st.text() | st.text(alphabet='[]{}="\n.,a1 #'))
def test_any_text_is_settings_or_one_line(text: str) -> None:
    said = ""
    try:
        Settings.parse(text)
    except SettingsError as error:
        said = str(error)
    assert "\n" not in said
    assert said == "" or said.startswith("buzz.toml: ")


@pytest.mark.req("PLG-06")
def test_the_signature_changes_with_the_file_and_only_with_it(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    assert signature(home) is None
    home.config.write_text("", encoding="utf-8")
    empty = signature(home)
    assert empty is not None
    assert signature(home) == empty
    home.config.write_text('default_agent = "a"', encoding="utf-8")
    first = signature(home)
    fresh = tmp_path / "fresh"
    fresh.write_text('default_agent = "b"', encoding="utf-8")
    os.utime(fresh, ns=(home.config.stat().st_atime_ns, home.config.stat().st_mtime_ns))
    fresh.replace(home.config)
    assert len({empty, first, signature(home)}) == 3, "even where size and time are the same, the file is another"


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
def test_only_a_regular_file_of_bounded_size_is_read(tmp_path: Path, kind: str) -> None:
    home = Home.resolve(tmp_path)
    if kind == "pipe":
        os.mkfifo(home.config)
    elif kind == "device":
        home.config.symlink_to("/dev/zero")
    else:
        home.config.write_bytes(b"# " + b"x" * 1024 * 1024)
    line = "is larger than 1024 KiB" if kind == "large" else "is no regular file"
    with pytest.raises(SettingsError, match=f"^{re.escape(str(home.config))}: {line}: put a file of settings") as said:
        Settings.read(home)
    assert "\n" not in str(said.value)
    if kind != "device":
        with pytest.raises(SettingsError, match=line):
            edit(home, lambda change: change.add(("disabled_tool_plugins",), "a"))


@pytest.mark.req("OPS-01")
def test_a_link_to_a_regular_file_is_read(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path / "home")
    home.folder()
    (tmp_path / "mine.toml").write_text('default_agent = "dev"', encoding="utf-8")
    home.config.symlink_to(tmp_path / "mine.toml")
    assert Settings.read(home).default_agent == "dev"
