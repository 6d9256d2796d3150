"""`buzz doctor`: exit codes, JSON, the running host, installed plugins, attached sessions, and every kind of home."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from buzz_host.settings import Home
from tests.cli.commands import EXAMPLES, PARROT_OPTIONS, Buzz
from tests.cli.hosts import serving
from tests.cli.mounts import Surrounded, contents, full, on_a_network, read_only


@pytest.fixture
def surrounded_home(buzz: Buzz, home: Path) -> Path:
    """A home with a turn in its ledger."""
    assert buzz("run", *PARROT_OPTIONS, "hello walrus").code == 0
    return home


@pytest.mark.req("OPS-01")
def test_a_home_that_is_well_is_exit_code_0_and_is_left_alone(buzz: Buzz, surrounded_home: Path) -> None:
    before = contents(surrounded_home)
    done = buzz("doctor")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("0 problems, 1 note\n") or "0 problems, " in done.out.split("\n")[-2]
    assert contents(surrounded_home) == before


@pytest.mark.req("OPS-01", "CLI-01")
def test_json_has_each_check_and_the_counts(buzz: Buzz, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "buzz.toml").write_text("nonsense", encoding="utf-8")
    done = buzz("doctor", "--json")
    assert (done.code, done.err) == (1, "")
    *checks, last = done.rows
    assert {tuple(each) for each in checks} == {("event", "area", "level", "message")}
    assert {each["level"] for each in checks} == {"ok", "note", "problem"}
    problems = [each for each in checks if each["level"] == "problem"]
    assert last == {
        "event": "examined",
        "problems": len(problems),
        "notes": sum(each["level"] == "note" for each in checks),
    }
    assert "buzz.toml" in problems[0]["message"]


@pytest.mark.req("OPS-01", "SEC-02")
def test_a_running_host_is_asked_and_its_environment_is_what_counts(
    buzz: Buzz, home: Path, environment: dict[str, str], work: Path
) -> None:
    with serving({**environment, "ANTHROPIC_API_KEY": "sk-of-the-host"}, work) as host:
        done = buzz("doctor", GITHUB_TOKEN="ghp-of-the-command")
        assert (done.code, done.err) == (0, "")
        assert f"process {host.process.pid} is the running host" in done.out
        whose = f"the host's environment (process {host.process.pid})"
        assert f"can read {whose}, with: ANTHROPIC_API_KEY" in done.out
        assert "GITHUB_TOKEN" not in done.out
        assert "of-the-host" not in done.out
        host.process.kill()
        host.process.wait()
        assert f"names process {host.process.pid} as the host, which is gone" in buzz("doctor").out


@pytest.mark.req("OPS-01", "CAT-02")
def test_an_installed_plugin_that_was_changed_is_a_problem(buzz: Buzz, home: Path) -> None:
    assert buzz("plugin", "install", EXAMPLES / "style-guide").code == 0
    assert "installed, each byte as it was then: style-guide" in buzz("doctor").out
    (code,) = (home / "store").glob("*/plugin.py")
    code.chmod(0o644)
    code.write_bytes(code.read_bytes() + b"\n")
    done = buzz("doctor")
    assert done.code == 1
    assert "installed plugin 'style-guide'" in done.out
    assert "is not what was installed" in done.out


@pytest.mark.req("OPS-01", "AUT-03")
def test_attached_sessions_are_looked_at_and_a_plugin_that_is_there_twice_is_named(
    buzz: Buzz, home: Path, work: Path, tmp_path: Path
) -> None:
    config = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config")}
    assert buzz("plugin", "install", "--link", EXAMPLES / "style-guide").code == 0
    assert buzz("attach", "claude", **config).code == 0
    (work / ".claude" / "skills" / "style-guide").mkdir(parents=True)
    done = buzz("doctor", **config)
    assert "plugin 'style-guide' is there twice" in done.out
    settings = work / ".claude" / "settings.local.json"
    settings.write_text(json.dumps({}), encoding="utf-8")
    done = buzz("doctor", **config)
    assert done.code == 1
    assert f"{settings} no longer has our entries" in done.out


@pytest.mark.req("SEC-04", "OPS-01")
def test_what_is_told_does_nothing_to_a_terminal(buzz: Buzz, opened: Home) -> None:
    folder = opened.folder(opened.plugins)
    (folder / "loud.py").write_text(
        "def apply(ctx):\n    raise ValueError('\\x1b]0;owned\\x07\\x1b[31m')\n", encoding="utf-8"
    )
    done = buzz("doctor")
    assert "plugin 'loud'" in done.out
    assert "\x1b" not in done.out


@pytest.mark.req("OPS-01", "OPS-02")
def test_a_read_only_home_is_a_problem_and_everything_else_is_told(
    surrounded_home: Path, surrounded: Surrounded
) -> None:
    done = surrounded(read_only(surrounded_home), "doctor")
    assert (done.code, done.err) == (1, "")
    assert "is on a file system that is mounted read-only: `buzz audit` and `buzz preview` work" in done.out
    assert "state.db is sound" in done.out


@pytest.mark.req("OPS-01", "OPS-02")
def test_a_home_on_a_network_file_system_is_refused(
    surrounded_home: Path, surrounded: Surrounded, tmp_path: Path
) -> None:
    done = surrounded(on_a_network(surrounded_home, tmp_path / "mountinfo"), "doctor")
    assert (done.code, done.err) == (1, "")
    assert "is on a network file system (nfs4), whose locks do not hold" in done.out


@pytest.mark.req("OPS-01", "OPS-02")
def test_a_full_disk_is_a_problem(surrounded_home: Path, surrounded: Surrounded, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    done = surrounded(full(surrounded_home, disk), "doctor", BUZZ_HOME=str(disk / "home"))
    assert (done.code, done.err) == (1, "")
    assert "the disk is full (0 MiB left): turns cannot be recorded; free some space" in done.out
