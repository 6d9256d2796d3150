"""What the doctor says of plugins, harnesses and credentials: names of variables, and never a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from buzz_host.settings import Home
from tests.host.doctor.conftest import Examined, lines

PARROT = Path(__file__).parents[2] / "cli" / "plugins" / "parrot.py"
SECRETS = {
    "ANTHROPIC_API_KEY": "sk-very-secret-1",
    "GITHUB_TOKEN": "ghp-very-secret-2",
    "MYSQL_PWD": "very-secret-3",
    "HTTPS_PROXY": "http://me:very-secret-4@proxy:3128",
}


@pytest.mark.req("SEC-02", "OPS-01")
def test_each_exposure_is_named_and_no_value_is_told(
    opened: Home, examined: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PLAIN_MONKEY", "very-plain")
    monkeypatch.setenv("EMPTY_TOKEN", "")
    said = lines(examined(area="credentials"))
    assert "note credentials the program of Claude Code gets these credentials: ANTHROPIC_API_KEY\n" in said
    assert "kept from the program of Claude Code: GITHUB_TOKEN, HTTPS_PROXY, MYSQL_PWD" in said
    assert "plugins run inside of the host and can read your environment, with: " + ", ".join(sorted(SECRETS)) in said
    assert "PATH" in said
    everything = lines(examined())
    assert "very-secret" not in everything
    assert "very-plain" not in everything
    assert "EMPTY_TOKEN" not in everything


@pytest.mark.req("SEC-02", "OPS-01")
def test_a_harness_that_does_not_say_what_its_program_gets_is_told_as_such(opened: Home, examined: Examined) -> None:
    (opened.folder(opened.plugins) / "parrot.py").write_bytes(PARROT.read_bytes())
    assert "does not say which variables of your environment its program gets" in lines(examined("note", "credentials"))


@pytest.mark.req("OPS-01")
def test_faults_of_plugins_are_problems_with_their_names(opened: Home, examined: Examined) -> None:
    folder = opened.folder(opened.plugins)
    (folder / "broken.py").write_text("def apply(ctx):\n    raise ValueError('no luck')\n", encoding="utf-8")
    (folder / "two-of-us.py").write_text("def apply(ctx):\n    pass\n", encoding="utf-8")
    (folder / "two_of_us.py").write_text("def apply(ctx):\n    pass\n", encoding="utf-8")
    (folder / "gone").symlink_to(folder / "nowhere")
    said = lines(examined("problem", "plugins"))
    for part in ("plugin 'broken', ", "no luck", "two", "gone", "where nothing is"):
        assert part in said, part


@pytest.mark.req("OPS-01")
def test_a_plugin_that_never_ends_does_not_hold_the_doctor_up(opened: Home, examined: Examined) -> None:
    folder = opened.folder(opened.plugins)
    (folder / "spins.py").write_text("def apply(ctx):\n    while True:\n        pass\n", encoding="utf-8")
    found = examined()
    assert "plugin 'spins'" in lines(found)
    assert "leftovers" in {each.area for each in found}
