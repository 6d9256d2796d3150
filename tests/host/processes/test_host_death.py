"""When the host is killed, its children die; what slips through is found by its marker at the next start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from buzz_host.processes import launcher as keeper
from buzz_host.processes import sweep
from tests.conftest import SOAK
from tests.host.processes import hosting
from tests.host.processes.trees import DEADLINE_S, STUBBORN_SIZE, members, tagged, wait_for_size, wait_until_gone

CYCLES = 50 if SOAK else 2
ROOT = Path(__file__).parents[3]


def started(folder: Path, env: dict[str, str]) -> tuple[subprocess.Popen[str], str]:
    """A host with two trees, and its marker."""
    folder.mkdir(exist_ok=True)
    host = subprocess.Popen(
        [sys.executable, hosting.__file__, str(folder)],
        env={**os.environ, **env, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert host.stdout is not None
    word, marker = host.stdout.readline().split()
    assert word == "ready"
    return host, marker


def killed(host: subprocess.Popen[str]) -> None:
    host.kill()
    host.wait()
    assert host.stdout is not None
    host.stdout.close()


def keepers_of(marker: str) -> list[int]:
    found = keeper.environments(keeper.table())
    return [pid for pid, each in found.items() if each.get("BUZZ_HOST") == marker and "BUZZ_KEEPER" in each]


@pytest.mark.req("HAR-03", "OPS-03")
def test_a_killed_host_leaves_no_child(tmp_path: Path) -> None:
    for _ in range(CYCLES):
        tag, env = tagged()
        host, _marker = started(tmp_path / "run", env)
        assert len(wait_for_size(tag, 2 * STUBBORN_SIZE)) >= 2 * STUBBORN_SIZE
        killed(host)
        wait_until_gone(tag)


@pytest.mark.req("HAR-03", "OPS-03")
def test_keepers_that_somebody_stopped_end_their_trees_with_the_host_all_the_same(tmp_path: Path) -> None:
    tag, env = tagged()
    host, marker = started(tmp_path / "run", env)
    wait_for_size(tag, 2 * STUBBORN_SIZE)
    keepers = keepers_of(marker)
    assert len(keepers) == 2
    for pid in keepers:
        os.kill(pid, signal.SIGSTOP)
    killed(host)
    wait_until_gone(tag)


@pytest.mark.req("HAR-03", "OPS-03")
def test_the_next_start_ends_what_a_killed_host_and_its_killed_keepers_left(tmp_path: Path) -> None:
    tag, env = tagged()
    other_tag, other_env = tagged()
    host, marker = started(tmp_path / "run", env)
    alive, alive_marker = started(tmp_path / "run", other_env)
    try:
        wait_for_size(tag, 2 * STUBBORN_SIZE)
        wait_for_size(other_tag, 2 * STUBBORN_SIZE)
        keepers = keepers_of(marker)
        assert len(keepers) == 2
        notes = [tmp_path / "run" / marker / "keepers" / str(pid) for pid in keepers]
        programs = {int(note.read_text(encoding="utf-8").split()[1]) for note in notes}
        host.send_signal(signal.SIGSTOP)  # so that it ends no orphan
        for pid in keepers:
            os.kill(pid, signal.SIGKILL)
        killed(host)
        until = time.monotonic() + DEADLINE_S
        while programs & members(tag).keys():  # the programs themselves die with their keepers
            assert time.monotonic() < until
        assert members(tag), "orphans in sessions of their own survive this"
        swept = sweep(tmp_path / "run")
        assert swept.left == ()
        assert set(members(tag)) == set()
        assert swept.folders == (tmp_path / "run" / marker,)
        assert not (tmp_path / "run" / marker).exists()
        assert (tmp_path / "run" / alive_marker).is_dir()
        again = sweep(tmp_path / "run")
        assert len(untouched := wait_for_size(other_tag, 2 * STUBBORN_SIZE)) >= 2 * STUBBORN_SIZE
        assert not set(untouched) & {*swept.ended, *again.ended}
    finally:
        killed(alive)
    wait_until_gone(other_tag)


@pytest.mark.req("HAR-03")
def test_a_host_is_judged_by_pid_and_start_time_in_its_own_namespace() -> None:
    marker = keeper.host_marker()
    pid, started_at, namespace = marker.split(".")
    assert not keeper.host_is_gone(marker)
    assert keeper.host_is_gone(f"{pid}.{int(started_at) + 1}.{namespace}")
    assert keeper.host_is_gone(f"{2**22 + 1}.1.{namespace}")
    for foreign in (f"{pid}.1.{int(namespace) + 1}", "", "x", "1.2", "a.b.c"):
        assert not keeper.host_is_gone(foreign)


@pytest.mark.req("HAR-03")
def test_where_nobody_tells_of_a_parents_death_the_keeper_looks_for_it(tmp_path: Path) -> None:
    tag, env = tagged()
    # What other systems than Linux have: no parent-death signal, no /proc, a table of processes by `ps`.
    portable = (
        "import sys; from buzz_host.processes import launcher; launcher.LINUX = False; "
        "launcher.main(['*', 'sh', '-c', 'sleep 1000 & setsid sleep 1000 & wait'])"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {portable!r}])"],
        env={**env, "PYTHONPATH": str(ROOT)},
    )
    found = wait_for_size(tag, 5)
    parent.kill()
    parent.wait()
    wait_until_gone(tag, DEADLINE_S)
    assert len(found) >= 5


@pytest.mark.req("HAR-03")
def test_the_table_of_ps_says_what_proc_says(monkeypatch: pytest.MonkeyPatch) -> None:
    tag, env = tagged()
    child = subprocess.Popen(["sleep", "1000"], env={**env, "BUZZ_HOST": "1.2.3", "BUZZ_SESSION": "s-1"})
    try:
        wait_for_size(tag, 1)
        mine = keeper.process(child.pid)
        marked = keeper.environments([child.pid])
        monkeypatch.setattr(keeper, "LINUX", False)
        other = keeper.process(child.pid)
        assert mine is not None
        assert other is not None
        assert (mine.pid, mine.parent, mine.zombie) == (other.pid, other.parent, other.zombie)
        assert keeper.environments([child.pid]) == marked == {child.pid: {"BUZZ_HOST": "1.2.3", "BUZZ_SESSION": "s-1"}}
        assert not keeper.host_is_gone(keeper.host_marker())
        assert [row.pid for row in keeper.descendants(os.getpid(), keeper.table())][:1] != []
        assert not keeper.become_subreaper()
        child.kill()
        until = time.monotonic() + DEADLINE_S
        while (dead := keeper.process(child.pid)) is not None and not dead.zombie:
            assert time.monotonic() < until
    finally:
        child.kill()
        child.wait()


@pytest.mark.req("SEC-02", "OPS-03")
def test_the_next_start_removes_the_record_of_a_rehearsal_whose_host_and_server_were_killed(tmp_path: Path) -> None:
    mine = keeper.host_marker()
    left = tmp_path / f"{2**22 + 1}.1.{mine.split('.')[2]}.rehearsal-5f"
    running = tmp_path / f"{mine}.rehearsal-60"
    for folder in (left, running):
        folder.mkdir()
        (folder / "record.jsonl").write_text("what was said", encoding="utf-8")
    assert sweep(tmp_path).folders == (left,)
    assert list(tmp_path.iterdir()) == [running]
