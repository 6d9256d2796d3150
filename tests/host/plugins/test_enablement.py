"""Which plugins are on: one rule, every order of decisions, and another process that changes its mind."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.errors import InvalidName
from buzz_host.plugins.enablement import Decision, Enablement
from buzz_host.plugins.manifest import Setting
from buzz_host.plugins.sources import PluginSource, SettingRule
from buzz_host.settings import Home, Settings, SettingsError
from tests.host.plugins.making import WAIT_S


def plugin(name: str = "my-tool", *, default: bool = True, **options: object) -> PluginSource:
    return PluginSource(name, "dropped in", "file", "0", enabled_by_default=default, **options)  # type: ignore[arg-type]


def enablement(tmp_path: Path, text: str = "") -> Enablement:
    home = Home(tmp_path / "home")
    home.folder()
    if text:
        home.config.write_text(text, encoding="utf-8")
    return Enablement(home)


@pytest.mark.req("REG-01")
@given(
    disabled=st.booleans(), off=st.booleans(), on=st.booleans(), forced=st.booleans(), default=st.booleans(),
    spelling=st.sampled_from(["my-tool", "my_tool"]),
)  # fmt: skip
def test_disabled_beats_off_beats_on_beats_forced_beats_default(
    disabled: bool, off: bool, on: bool, forced: bool, default: bool, spelling: str
) -> None:
    def names(there: bool) -> str:
        return f'["other", "{spelling}"]' if there else '["other"]'

    text = (
        f"disabled_tool_plugins = {names(disabled)}\nforced_enabled_tool_plugins = {names(forced)}\n"
        f"[agents.dev]\nplugins_off = {names(off)}\nplugins_on = {names(on)}\n"
    )
    made = Enablement.__new__(Enablement)
    made._settings = Settings.parse(text)
    source = plugin(default=default)
    expected = (
        Decision(False, "disabled") if disabled
        else Decision(False, "off for the agent") if off
        else Decision(True, "on for the agent") if on
        else Decision(True, "forced") if forced
        else Decision(default, "default")
    )  # fmt: skip
    assert made.decision(source, "dev") == expected
    general = made.decision(source)
    assert general == made.decision(source, "main")
    assert general.enabled is (not disabled and (default or forced)), "the ported rule, where no agent is named"
    assert made.enabled_anywhere(source) is (general.enabled or expected.enabled)


@pytest.mark.req("REG-01", "PLG-06")
def test_switching_for_all_and_for_one(tmp_path: Path) -> None:
    made, source = enablement(tmp_path), plugin()
    assert made.decision(source, "dev") == Decision(True, "default")
    assert made.disable(source, "dev") == Decision(False, "off for the agent")
    assert made.enabled_for(source, "main")
    assert made.enable(source, "dev") == Decision(True, "on for the agent")
    assert made.disable(source) == Decision(False, "disabled")
    assert made.enable(source, "dev") == Decision(False, "disabled"), "and the answer says which rule is in the way"
    assert not made.enabled_anywhere(source)
    assert made.enable(source) == Decision(True, "default")
    assert made.enabled_for(source, "dev")


@pytest.mark.req("REG-01")
def test_enabling_what_is_off_by_default_forces_it(tmp_path: Path) -> None:
    made, source = enablement(tmp_path), plugin(default=False)
    assert not made.enabled_anywhere(source)
    assert made.enable(source, "dev") == Decision(True, "on for the agent")
    assert made.enabled_anywhere(source)
    assert not made.enabled_for(source, "main")
    assert made.enable(source) == Decision(True, "forced")
    assert made.disable(source) == Decision(False, "disabled")
    assert made.settings.forced_enabled_tool_plugins == ("my-tool",)


@pytest.mark.req("REG-01", "PLG-08")
def test_a_name_is_found_however_it_is_spelled(tmp_path: Path) -> None:
    made = enablement(tmp_path, 'disabled_tool_plugins = ["my_tool"]\n[agents.dev]\nplugins_off = ["my_tool"]\n')
    made.enable(plugin())
    made.enable(plugin(), "dev")
    assert made.settings.disabled_tool_plugins == ()
    assert made.decision(plugin(), "dev") == Decision(True, "on for the agent")


@pytest.mark.req("REG-03")
def test_listeners_hear_changes_and_only_changes(tmp_path: Path) -> None:
    made, heard = enablement(tmp_path), []
    unsubscribe = made.subscribe(lambda settings: heard.append(settings.disabled_tool_plugins))
    made.disable(plugin())
    made.disable(plugin())
    assert not made.refresh()
    made.enable(plugin())
    assert heard == [("my-tool",), ()]
    unsubscribe()
    made.disable(plugin())
    assert len(heard) == 2


@pytest.mark.req("PLG-06", "REG-03")
def test_another_process_switches_a_plugin_off(tmp_path: Path) -> None:
    made, heard = enablement(tmp_path), []
    made.subscribe(heard.append)
    code = (
        "import sys; from pathlib import Path; from buzz_host.settings import Home\n"
        "from buzz_host.plugins.enablement import Enablement; from buzz_host.plugins.sources import PluginSource\n"
        "Enablement(Home(Path(sys.argv[1]))).disable(PluginSource('my-tool', 'dropped in', 'file', '0'))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "home")], check=True, timeout=WAIT_S)
    assert made.enabled_for(plugin(), "main")
    assert made.refresh()
    assert not made.enabled_for(plugin(), "main")
    assert len(heard) == 1
    assert not made.refresh()


@pytest.mark.req("PLG-06")
def test_a_file_that_is_broken_meanwhile_changes_nothing_until_it_is_mended(tmp_path: Path) -> None:
    made = enablement(tmp_path, 'disabled_tool_plugins = ["my-tool"]\n')
    config = tmp_path / "home" / "buzz.toml"
    config.write_text("disabled_tool_plugins = [\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(SettingsError):
            made.refresh()
        assert not made.enabled_for(plugin(), "main")
    with pytest.raises(SettingsError):
        made.enable(plugin())
    config.write_text("", encoding="utf-8")
    assert made.refresh()
    assert made.enabled_for(plugin(), "main")


@pytest.mark.req("REG-03")
def test_many_threads_switch_and_no_decision_is_lost(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    faces = [Enablement(home) for _ in range(4)]

    def work(number: int) -> None:
        for step in range(5):
            faces[number].disable(plugin(f"p{number}-{step}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Enablement(home).settings.disabled_tool_plugins) == 20
    for face in faces:
        face.refresh()
        assert len(face.settings.disabled_tool_plugins) == 20


@pytest.mark.req("PLG-08", "SEC-03")
def test_an_agent_that_cannot_be_is_refused(tmp_path: Path) -> None:
    made = enablement(tmp_path)
    with pytest.raises(InvalidName):
        made.disable(plugin(), "../dev")
    assert not (tmp_path / "home" / "buzz.toml").exists()


@pytest.mark.req("PLG-01")
def test_a_plugins_settings_are_the_persons_over_its_own(tmp_path: Path) -> None:
    made = enablement(tmp_path, '[plugins.my_tool]\nlimit = "ten"\ntone = "stern"\nextra = 1\nlimits = 3\n')
    source = plugin(
        defaults={"limit": 3, "tone": "kind", "on": True},
        setting_rules={"limit": SettingRule("number"), "tone": SettingRule("string"), "on": SettingRule("boolean")},
    )
    assert dict(made.settings_of(source)) == {"limit": 3, "tone": "stern", "on": True, "extra": 1, "limits": 3}
    assert made.setting_warnings(source) == (
        "buzz.toml: plugins.my-tool.extra: this key is not known; the keys here are limit, on, tone",
        "buzz.toml: plugins.my-tool.limits: this key is not known; did you mean limit?",
        'buzz.toml: plugins.my-tool.limit: expected a number, found the text "ten"; the plugin\'s default holds',
    )
    assert made.setting_warnings(plugin()) == (), "a plugin that says nothing of its settings takes all"
    assert dict(made.settings_of(plugin("quiet"))) == {}
    assert Setting().default is None
