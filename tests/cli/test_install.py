"""`buzz plugin install`, `upgrade`, `verify`, `remove`: what they say is what the next turn does, and data stays."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.commands import BUZZ, DEADLINE_S, EXAMPLES, ROOT, Buzz
from tests.cli.hosts import Line, serving
from tests.cli.test_plugin import listed, speaking
from tests.host.plugins.install.making import Git, folder, manifest, members, plugin, tar

pytestmark = pytest.mark.req("CAT-01", "CAT-02")

# Speaks, and counts in its own folder how often it was started.
COUNTS = b"""
inject = ("agents",)


def apply(ctx):
    ctx.agents.addInstructions(id="main", text="%s")
    counter = ctx.plugin.data_dir / "count"
    counter.write_text((counter.read_text() if counter.exists() else "") + "x")
"""


def counting(version: str) -> dict[str, bytes]:
    return {"plugin.toml": manifest("counting", version), "plugin.py": COUNTS % f"version {version}".encode()}


@pytest.fixture
def git(tmp_path: Path) -> Git:
    git = Git(tmp_path / "repository")
    git.write({f"tools/counting/{name}": content for name, content in counting("1.0.0").items()})
    git("tag", "v1")
    return git


def said(buzz: Buzz) -> str:
    """What the next turn carries of installed plugins."""
    done = buzz("preview", "--plugin", str(ROOT / "tests/cli/plugins/parrot.py"), "--harness", "parrot", "x")
    return done.out


def test_installed_from_git_used_upgraded_and_removed(buzz: Buzz, git: Git, home: Path) -> None:
    url = git.path.as_uri()
    done = buzz("plugin", "install", url)
    short = git("rev-parse", "HEAD")[:12]
    assert (done.code, done.err) == (0, "")
    assert done.out.split("\n") == [
        f"plugin 'counting' 1.0.0 is installed, from {url} ({short})",
        "  instructions: 1, 13 bytes a turn at most",
        "  it is on, from the next turn",
        "",
    ]
    assert "version 1.0.0" in said(buzz)
    assert speaking(buzz) == {"counting"}
    counter = home / "data" / "counting" / "count"
    before = counter.read_text(encoding="utf-8")
    assert before

    commit = git.write({f"tools/counting/{name}": content for name, content in counting("2.0.0").items()})
    done = buzz("plugin", "upgrade", "counting")
    assert done.code == 0
    assert done.out.startswith(f"plugin 'counting' 1.0.0 → 2.0.0, from {url} ({commit[:12]})\n")
    assert "version 2.0.0" in said(buzz)
    assert counter.read_text(encoding="utf-8").startswith(before + "x"), "what it keeps was kept"

    (row,) = buzz("plugin", "info", "counting", "--json").rows
    assert (row["origin"], row["source"], row["commit"], row["verified"]) == ("installed", url, commit, True)
    assert row["where"] == str(home / "store" / row["content_hash"])
    out = buzz("plugin", "info", "counting").out
    assert f"source       {url}\n" in out
    assert "origin       installed, verified\n" in out

    (again,) = buzz("plugin", "upgrade", "counting", "--json").rows
    assert (again["status"], again["before"], again["version"]) == ("unchanged", "2.0.0", "2.0.0")

    done = buzz("plugin", "remove", "counting")
    assert done.out == f"plugin 'counting' 2.0.0 is removed; what it keeps stays in {home / 'data' / 'counting'}\n"
    assert speaking(buzz) == set()
    assert counter.exists()
    assert buzz("plugin", "verify").out == "nothing is installed\n"

    buzz("plugin", "install", url)
    assert counter.read_text(encoding="utf-8").startswith(before + "x"), "and it is there again"
    (gone,) = buzz("plugin", "remove", "counting", "--purge", "--yes", "--json").rows
    assert gone == {"plugin": "counting", "was_link": False, "kept": None, "data": None, "from": "the next turn"}
    assert not (home / "data" / "counting").exists()


def test_a_pinned_version_stays_until_another_is_asked_for(buzz: Buzz, git: Git) -> None:
    git.write({f"tools/counting/{name}": content for name, content in counting("2.0.0").items()})
    url = git.path.as_uri()
    assert "counting' 1.0.0 is installed" in buzz("plugin", "install", f"{url}@v1").out
    assert "1.0.0 is the newest from" in buzz("plugin", "upgrade", "counting").out
    assert "1.0.0 → 2.0.0" in buzz("plugin", "install", f"{url}@main").out
    assert "2.0.0 → 1.0.0" in buzz("plugin", "install", f"{git.path}@v1#tools/counting", "--yes").out


def test_every_form_from_where_the_person_is(buzz: Buzz, work: Path) -> None:
    folder(work, "one", plugin("one"))
    tar(work / "two.tgz", members(plugin("two")))
    (work / "three.py").write_bytes(plugin()["plugin.py"])
    for name in ("one", "two.tgz", "./three.py"):
        assert buzz("plugin", "install", name).code == 0, name
    assert speaking(buzz) == {"one", "two", "three"}
    out = buzz("plugin", "list").out
    assert out.count("installed, verified") == 3
    for row in buzz("plugin", "list", "--json").rows:
        if row["origin"] == "installed":
            assert row["source"].startswith(str(work))
            assert (row["verified"], len(row["content_hash"])) == (True, 64)
    assert buzz("plugin", "upgrade", "--all").code == 0
    (work / "two.tgz").unlink()
    done = buzz("plugin", "upgrade", "--all")
    assert done.code == 1
    assert "plugin 'two' was not upgraded: " in done.err
    assert "plugin 'one' 1.0.0 is the newest" in done.out, "the others were looked at all the same"
    rows = {row["plugin"]: row["status"] for row in buzz("plugin", "upgrade", "--all", "--json").rows}
    assert rows == {"one": "unchanged", "two": "failed", "three": "unchanged"}
    assert speaking(buzz) == {"one", "two", "three"}


@pytest.mark.parametrize(
    ("code", "more", "words", "stays"),
    [
        ("def apply(ctx): pass", "", "nothing of it is carried: it started, and registered nothing", True),
        ("def apply(ctx): raise RuntimeError('no luck')", "", "it does not start: RuntimeError: no luck", True),
        ("this is no python", "", "it does not start: ", True),
        (
            "inject = ('nothing',)\ndef apply(ctx): pass",
            "",
            "it waits for 'nothing', which this host does not provide",
            True,
        ),
        (None, '[hooks]\ningest = "hooks/in.py"\n', "hooks: not carried yet (ingest: no hook is run)", False),
        ("def apply(ctx): pass", 'isolation = "process"\n', 'isolation = "process": not carried yet', False),
    ],
)
def test_what_carries_nothing_is_exit_code_1(
    code: str | None, more: str, words: str, stays: bool, buzz: Buzz, work: Path
) -> None:
    files = {"plugin.toml": manifest("idle", more=more)}
    if code is not None:
        files["plugin.py"] = code.encode()
    folder(work, "idle", files)
    done = buzz("plugin", "install", "idle")
    assert done.code == 1, done
    assert words in done.out
    assert ("it was not installed" in done.out) is not stays
    assert ("idle" in {row["plugin"] for row in buzz("plugin", "list", "--json").rows}) is stays
    if stays:
        assert buzz("plugin", "remove", "idle").code == 0


def test_one_that_is_off_says_so(buzz: Buzz, work: Path) -> None:
    folder(work, "shy", plugin("shy", more="enabled_by_default = false\n"))
    done = buzz("plugin", "install", "shy")
    assert done.code == 0
    assert "it is off: it is off unless somebody switches it on; buzz plugin enable shy\n" in done.out
    assert listed(buzz)["shy"] == (False, "off")
    buzz("plugin", "enable", "shy")
    assert speaking(buzz) == {"shy"}
    buzz("plugin", "disable", "shy")
    assert "it is off: it is switched off; buzz plugin enable shy\n" in buzz("plugin", "upgrade", "shy").out


def test_a_version_that_does_not_start_is_taken_back(buzz: Buzz, work: Path, home: Path) -> None:
    source = folder(work, "counting", counting("1"))
    buzz("plugin", "install", "counting")
    (source / "plugin.toml").write_bytes(manifest("counting", "2"))
    (source / "plugin.py").write_bytes(b"def apply(ctx): raise RuntimeError('no luck')")
    done = buzz("plugin", "upgrade", "counting")
    assert done.code == 1
    assert done.out.startswith("plugin 'counting' 2 does not start, so 1 is in use again: RuntimeError: no luck")
    assert "version 1" in said(buzz)
    assert buzz("plugin", "verify").code == 0
    (source / "plugin.toml").write_bytes(manifest("other", "2"))
    done = buzz("plugin", "upgrade", "counting")
    assert (done.code, done.out) == (2, "")
    assert "holds the plugin 'other' now, and no 'counting': nothing was changed" in done.err
    assert "version 1" in said(buzz)


def test_verify_names_each_difference(buzz: Buzz, work: Path, home: Path) -> None:
    for name in ("one", "two"):
        folder(work, name, {**plugin(name), "data.txt": b"x"})
        buzz("plugin", "install", name)
    done = buzz("plugin", "verify")
    assert done.code == 0
    assert "one 1.0.0: whole, 3 files, " in done.out
    (row,) = buzz("plugin", "info", "one", "--json").rows
    place = Path(row["where"])
    place.chmod(0o700)
    (place / "data.txt").chmod(0o600)
    (place / "data.txt").write_bytes(b"y")
    (place / "plugin.py").unlink()
    (place / "\x1b[31m").write_bytes(b"")
    done = buzz("plugin", "verify")
    assert done.code == 1
    assert f"one 1.0.0: {place}/data.txt: is not what was installed\n" in done.out
    assert f"one 1.0.0: {place}/plugin.py: was installed, and is gone\n" in done.out
    assert f"one 1.0.0: {place}/\\x1b[31m: was not installed\n" in done.out
    assert "two 1.0.0: whole" in done.out
    assert buzz("plugin", "verify", "two").code == 0
    rows = {row["plugin"]: row for row in buzz("plugin", "verify", "--json").rows}
    assert (rows["two"]["whole"], rows["one"]["whole"]) == (True, False)
    assert [each["kind"] for each in rows["one"]["differences"]] == ["added", "changed", "missing"]
    assert speaking(buzz) == {"two"}
    verified = {row["plugin"]: row["verified"] for row in buzz("plugin", "list", "--json").rows}
    assert (verified["one"], verified["two"], verified["claude"]) == (False, True, None)
    assert "nothing of plugin 'one' is loaded: buzz plugin upgrade one puts it back" in buzz("plugin", "errors").out
    assert "was damaged, and is whole again" in buzz("plugin", "upgrade", "one").out
    assert speaking(buzz) == {"one", "two"}


def test_what_is_taken_out_first_is_what_is_in_use(buzz: Buzz, work: Path, home: Path) -> None:
    folder(work, "one", plugin("one"))
    buzz("plugin", "install", "one")
    folder(home / "plugins", "one", plugin("one", "9"))
    done = buzz("plugin", "install", "one")
    assert done.code == 2
    assert "comes before an installed plugin of that name" in done.err
    assert "the installed plugin of that name is in use now" in buzz("plugin", "remove", "one").out
    assert "1.0.0 is removed; it kept nothing" in buzz("plugin", "remove", "one").out
    assert "there is no plugin 'one'" in buzz("plugin", "remove", "one").err


def typed(environment: dict[str, str], work: Path, answer: str, *arguments: str) -> tuple[int, str]:
    """A command in a terminal whose person answers its question."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*BUZZ, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=work, env=environment
    )
    os.close(theirs)
    seen, until = "", time.monotonic() + DEADLINE_S
    answered = False
    while time.monotonic() < until:
        if not select.select([ours], [], [], 0.1)[0]:
            continue
        try:
            octets = os.read(ours, 65536)
        except OSError:
            break
        seen += octets.decode("utf-8", "replace")
        if "[y/N]" in seen and not answered:
            answered = True
            os.write(ours, f"{answer}\n".encode())
    os.close(ours)
    return process.wait(DEADLINE_S), seen


def test_a_question_is_asked_before_anything_is_changed(
    buzz: Buzz, environment: dict[str, str], work: Path, home: Path
) -> None:
    folder(work / "a", "counting", counting("1"))
    folder(work / "b", "counting", counting("2"))
    buzz("plugin", "install", "a/counting")
    done = buzz("plugin", "install", "b/counting")
    assert (done.code, done.out) == (2, "")
    assert "replace it by 2 from" in done.err
    assert "nobody is here to ask: give --yes if so" in done.err
    assert "version 1" in said(buzz)
    assert typed(environment, work, "n", "plugin", "install", "b/counting")[0] == 1
    assert "version 1" in said(buzz)
    code, seen = typed(environment, work, "y", "plugin", "install", "b/counting")
    assert (code, "counting' 1 → 2" in seen) == (0, True), seen
    assert buzz("plugin", "remove", "counting", "--purge").code == 2
    assert typed(environment, work, "n", "plugin", "remove", "counting", "--purge")[0] == 1
    assert speaking(buzz) == {"counting"}
    code, seen = typed(environment, work, "y", "plugin", "remove", "counting", "--purge")
    assert (code, "is deleted" in seen) == (0, True), seen
    assert not (home / "data" / "counting").exists()


def test_a_plugin_of_a_package_is_not_replaced_unasked(buzz: Buzz, work: Path) -> None:
    folder(work, "claude", plugin("claude"))
    done = buzz("plugin", "install", "claude")
    assert done.code == 2
    assert "plugin 'claude' takes the place of harnesses.claude (entry point): install it?" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["install", "nowhere"], "nowhere: there is no such file or folder; plugins are installed from a folder"),
        (["install", "http://localhost/x.git"], "repositories are fetched by https, ssh, file only"),
        (["install", str(EXAMPLES)], "holds 3 plugins: choose one with --subdir: faulty-guard, release-freeze, style-"),
        (["install", str(EXAMPLES), "--subdir", "nothing"], "has no folder nothing"),
        (["install", "near"], "plugin.tml: a plugin's manifest is called plugin.toml: rename it"),
        (["upgrade", "nothing"], "no installed plugin is called 'nothing'; nothing is installed"),
        (["verify", "nothing"], "no installed plugin is called 'nothing'; nothing is installed"),
        (["upgrade"], "name one plugin, or give --all"),
        (["upgrade", "x", "--all"], "name one plugin, or give --all"),
        (["remove", "nothing", "--purge"], "there is no plugin 'nothing'"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    arguments: list[str], words: str, buzz: Buzz, work: Path, home: Path
) -> None:
    folder(work, "near", {"plugin.tml": manifest("near"), "plugin.py": b""})
    done = buzz("plugin", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert words in done.err
    assert not home.exists() or not (home / "store").exists()


@pytest.mark.req("PLG-06", "CLI-01")
def test_installed_while_a_host_runs_it_speaks_at_the_next_turn(
    buzz: Buzz, environment: dict[str, str], work: Path, home: Path
) -> None:
    source = folder(work, "counting", counting("1"))
    (home / "plugins").mkdir(parents=True)
    (home / "plugins" / "parrot.py").write_bytes((ROOT / "tests/cli/plugins/parrot.py").read_bytes())
    with serving(environment, work) as host, Line(host.socket) as line:
        line.line()

        def turn() -> str:
            answer = line.ask("preview", message="x", here=str(work), harness="parrot")
            return str(answer["value"]["text"])

        assert "version" not in turn()
        assert buzz("plugin", "install", "counting").code == 0
        assert "version 1" in turn()
        (source / "plugin.toml").write_bytes(manifest("counting", "2"))
        (source / "plugin.py").write_bytes(COUNTS % b"version 2")
        assert "1 → 2" in buzz("plugin", "upgrade", "counting").out
        assert "version 2" in turn()
        kept = home / "data" / "counting" / "count"
        assert kept.read_text(encoding="utf-8") == "xx", "each version was started once, by the host that runs"
        (source / "plugin.py").write_bytes(b"def apply(ctx): raise RuntimeError('no luck')")
        assert buzz("plugin", "upgrade", "counting").code == 1
        assert "version 2" in turn()
        done = buzz("plugin", "remove", "counting", "--purge", "--yes")
        assert (done.code, "is deleted" in done.out) == (0, True)
        assert "version" not in turn()
        assert not kept.exists()
        assert host.end()[0] == 0


def test_a_host_that_is_not_the_installer_sees_it_too(
    buzz: Buzz, environment: dict[str, str], work: Path, home: Path, git: Git
) -> None:
    """Whatever changes the lock is seen at the next turn: here another process, with no word to the host."""
    from buzz_host.settings import Home
    from tests.host.plugins.install.making import put

    (home / "plugins").mkdir(parents=True)
    (home / "plugins" / "parrot.py").write_bytes((ROOT / "tests/cli/plugins/parrot.py").read_bytes())
    with serving(environment, work) as host, Line(host.socket) as line:
        line.line()
        put(Home(home), git.path.as_uri())
        answer = line.ask("preview", message="x", here=str(work), harness="parrot")
        assert "version 1.0.0" in answer["value"]["text"]
        assert host.end()[0] == 0


@pytest.mark.req("OPS-03")
def test_what_a_killed_installer_left_is_swept_when_a_host_starts(
    environment: dict[str, str], work: Path, home: Path, buzz: Buzz
) -> None:
    folder(work, "one", plugin("one"))
    buzz("plugin", "install", "one")
    stale = home / "store" / ("ab" * 32)
    stale.mkdir()
    (stale / "x").write_bytes(b"")
    (home / "store" / ".staging" / "0123456789abcdef" / "fresh").mkdir(parents=True)
    with serving(environment, work) as host:
        assert not stale.exists()
        assert not list((home / "store" / ".staging").iterdir())
        assert host.end()[0] == 0
    assert buzz("plugin", "verify", "one").code == 0


def test_an_interrupted_command_ends_at_once_and_changes_nothing(
    environment: dict[str, str], work: Path, home: Path, tmp_path: Path
) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "git").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexec sleep 600\n", encoding="utf-8")
    (fake / "git").chmod(0o755)
    process = subprocess.Popen(
        [*BUZZ, "plugin", "install", "https://localhost/x.git"], cwd=work,
        env={**environment, "PATH": f"{fake}:{environment['PATH']}"}, stderr=subprocess.PIPE,
    )  # fmt: skip
    until = time.monotonic() + DEADLINE_S
    while not (tmp_path / "started").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - began < 10
    assert process.returncode == 130, err
    assert not (home / "store").exists()
