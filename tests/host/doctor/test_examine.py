"""The doctor: every area is told whatever is broken, within its time, and nothing is changed."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from buzz_author.errors import BuzzError
from buzz_host.services.doctor import Check, examine, ok
from buzz_host.services.doctor.checks import bounded
from buzz_host.settings import Home
from tests.host.doctor.conftest import Examined, lines

AREAS = {
    "installation",
    "home",
    "settings",
    "agents",
    "host",
    "plugins",
    "harnesses",
    "credentials",
    "ledger",
    "leftovers",
}


@pytest.mark.req("OPS-01")
def test_a_home_that_is_not_there_yet_is_well_and_is_not_made(home: Path, examined: Examined) -> None:
    found = examined()
    assert {each.area for each in found} == AREAS
    assert [each for each in found if each.level == "problem"] == []
    assert not home.exists()


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize("kind", ["file", "link to nowhere"])
def test_a_home_that_is_none_is_a_problem_and_the_rest_is_told(kind: str, home: Path, examined: Examined) -> None:
    if kind == "file":
        home.write_text("x", encoding="utf-8")
    else:
        home.symlink_to(home.parent / "nowhere")
    found = examined()
    assert [each.area for each in found if each.level == "problem"] == ["home"]
    assert str(home) in lines(found)
    assert "installation" in {each.area for each in found}


@pytest.mark.req("OPS-01")
def test_everything_broken_at_once_is_all_told(opened: Home, examined: Examined) -> None:
    opened.root.chmod(0o777)
    opened.config.write_text("default_agent = ", encoding="utf-8")
    opened.folder(opened.agents)
    (opened.agents / "bad.md").write_text("---\nname: [\n---\n", encoding="utf-8")
    (opened.agents / "gone.md").symlink_to(opened.root / "nowhere")
    opened.folder(opened.plugins)
    (opened.plugins / "gone").symlink_to(opened.root / "nowhere")
    (opened.plugins / "broken.py").write_text("def apply(ctx: raise", encoding="utf-8")
    opened.lock.write_bytes(b"{")
    opened.database.write_bytes(b"no database " * 400)
    opened.head.write_text("nonsense", encoding="ascii")
    (opened.root / "serve.lock").write_bytes(b"\xff{")
    opened.folder(opened.root / "attach")
    (opened.root / "attach" / "endpoint").write_text("token", encoding="ascii")
    (opened.root / "attach" / "endpoint").chmod(0o644)
    before = {each: each.lstat().st_mtime_ns for each in opened.root.rglob("*")}
    problems = examined("problem")
    said = lines(problems)
    assert {each.area for each in problems} >= {"home", "settings", "agents", "plugins", "ledger"}
    for part in (
        "may be written by others",
        "buzz.toml",
        "bad.md",
        "plugins.lock",
        "state.db",
        "ledger.head",
        "endpoint",
    ):
        assert part in said, part
    assert all("\n" not in each.line and "Traceback" not in each.line for each in problems)
    assert {each: each.lstat().st_mtime_ns for each in opened.root.rglob("*")} == before


@pytest.mark.req("OPS-01")
def test_a_check_that_raises_or_never_ends_is_told_and_stops_nobody() -> None:
    blocked = threading.Event()

    def hangs() -> Iterator[Check]:
        yield ok("area", "begun")
        blocked.wait(30)

    def breaks(error: BaseException) -> Iterator[Check]:
        yield ok("area", "begun")
        raise error

    started = time.monotonic()
    found = bounded("area", hangs, deadline_s=0.2)
    assert time.monotonic() - started < 5
    assert lines(tuple(found)) == "ok area begun\nproblem area could not be looked at to the end within 0.2 s"
    blocked.set()
    assert bounded("area", lambda: breaks(BuzzError("in plain words")))[1].line == "in plain words"
    assert "ZeroDivisionError" in bounded("area", lambda: breaks(ZeroDivisionError("x")))[1].line
    assert "SystemExit" in bounded("area", lambda: breaks(SystemExit(3)))[1].line


@pytest.mark.req("OPS-01")
def test_other_faces_bring_areas_of_their_own(home: Path) -> None:
    found = tuple(examine(home, further=[("attached", lambda home: [ok("attached", str(home.root))])]))
    assert found[-1] == Check("attached", "ok", str(home))


@pytest.mark.req("OPS-01", "OPS-02")
def test_modes_that_are_wider_are_named_with_the_command_that_mends_them(opened: Home, examined: Examined) -> None:
    opened.root.chmod(0o755)
    opened.folder(opened.plugins).chmod(0o755)
    opened.config.touch(mode=0o644)
    said = lines(examined("note", "home"))
    assert f"{opened.root} may be entered by others (mode 0755): `chmod 700 {opened.root}`" in said
    assert "buzz.toml (0644), plugins (0755)" in said
    assert examined("problem", "home") == ()
    opened.root.chmod(0o700)
    command = next(each for each in said.split("`") if each.startswith("chmod go-rwx "))
    subprocess.run(command, shell=True, check=True)
    assert examined("note", "home") == ()


@pytest.mark.req("OPS-01")
def test_settings_and_agents_that_say_what_is_not_there(opened: Home, examined: Examined) -> None:
    opened.config.write_text('default_agent = "nobody"\nplugin = 1\n[agents.gone]\nplugins_on = []\n', encoding="utf-8")
    opened.config.chmod(0o600)
    assert "default_agent is 'nobody', and the agents are: dev, main" in lines(examined("problem", "settings"))
    said = lines(examined("note", "settings"))
    assert "[agents.gone] is for an agent that is not there" in said
    assert "plugin" in said


@pytest.mark.req("OPS-01")
def test_a_host_that_was_killed_is_told_as_one(opened: Home, examined: Examined) -> None:
    (opened.root / "serve.lock").write_text(f'{{"pid": 1, "socket": "{opened.root}/run/serve.sock"}}', encoding="ascii")
    (check,) = examined(area="host")
    assert check.level == "note"
    assert "names process 1 as the host, which is gone: the next `buzz serve` takes its place" in check.line


@pytest.mark.req("OPS-01", "OPS-03")
def test_what_the_dead_left_behind_is_named(opened: Home, examined: Examined) -> None:
    from buzz_host.processes.launcher import host_marker

    pid, _, namespace = host_marker().split(".")
    opened.folder(opened.root / "run" / f"{pid}.1.{namespace}")
    opened.folder(opened.root / "run" / host_marker())
    staged = opened.folder(opened.store / ".staging" / "0123456789abcdef")
    os.utime(staged, (0, 0))
    opened.folder(opened.store / ("0" * 64))
    opened.folder(opened.logs)
    (opened.logs / "crash-1.txt").touch()
    said = lines(examined("note", "leftovers"))
    for part in ("1 folders of dead hosts", "that were cut off", "in the store that no plugin uses", "crash-1.txt"):
        assert part in said, part
