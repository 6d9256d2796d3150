"""Killed at any step, two at once, on a full disk, in a home that may not be written: the old or the new one, whole."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from buzz_author.errors import BuzzError
from buzz_host.plugins.discovery import discover
from buzz_host.plugins.install.installing import uninstall
from buzz_host.plugins.install.integrity import differences
from buzz_host.plugins.install.lockfile import NotInstalled, read_lock
from buzz_host.plugins.install.storing import STAGING_NAME, staging, sweep
from buzz_host.settings import Home
from tests.host.plugins.install.interrupted import left
from tests.host.plugins.install.making import Git, everything, folder, manifest, plugin, put
from tests.quality.tree import ROOT

pytestmark = pytest.mark.req("CAT-02", "OPS-03")

MORE = {f"more/{number}.txt": b"%d" % number for number in range(6)}


def versions(home: Home) -> list[str]:
    found = discover(home, entry_points=False)
    assert found.faults == ()
    return [source.version for source in found.sources]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("what", "before", "after", "steps"),
    [("first", [], ["2"], 20), ("upgrade", ["1"], ["2"], 20), ("repair", [], ["2"], 20), ("remove", ["1"], [], 8)],
)
def test_killed_at_each_step_a_home_has_the_old_or_the_new_one_whole(
    what: str, before: list[str], after: list[str], steps: int, tmp_path: Path
) -> None:
    base = Home(tmp_path / "base")
    source = folder(tmp_path, "honest", {**plugin(version="1"), **MORE})
    if what != "first":
        if what == "repair":
            (source / "plugin.toml").write_bytes(manifest(version="2"))
        place = put(base, source).row.place(base)
        if what == "repair":
            (place / "plugin.py").chmod(0o600)
            (place / "plugin.py").write_bytes(b"damaged")
    (source / "plugin.toml").write_bytes(manifest(version="2"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.host.plugins.install.interrupted", what, base.root, tmp_path / "work", source],
        cwd=ROOT, capture_output=True, encoding="utf-8", timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) > steps
    assert [row["killed"] for row in rows] == [True] * (len(rows) - 1) + [False]
    for row in rows:
        assert row["versions"] in (before, after), row
        assert row["faults"] == [] or what == "repair", row
        assert (row["left"], row["left_again"]) == ([], []), row
        assert row["again"] == after or (what == "remove" and "no installed plugin" in row["again"]), row
    assert rows[0]["versions"] == before
    assert rows[-1]["versions"] == after


def test_staging_of_the_living_is_not_swept(home: Home) -> None:
    with staging(home) as staged:
        (staged / "file").write_bytes(b"x")
        sweep(home)
        assert (staged / "file").exists()
    assert left(home) == []


def test_many_at_once_all_count(home: Home, tmp_path: Path) -> None:
    names = [f"plugin-{number}" for number in range(8)]
    sources = [folder(tmp_path, name, {**plugin(name), **MORE}) for name in names]
    faults: list[BaseException] = []
    start = threading.Barrier(len(names))

    def work(source: Path) -> None:
        start.wait()
        try:
            for _ in range(3):
                put(home, source)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert sorted(read_lock(home.lock)) == names
    assert len(versions(home)) == len(names)
    assert left(home) == []


def test_processes_at_once_install_upgrade_and_remove_one_plugin(home: Home, tmp_path: Path) -> None:
    """Whoever comes last has decided; what is there is whole at every look."""
    sources = [folder(tmp_path / str(number), "honest", {**plugin(version=f"{number}"), **MORE}) for number in (1, 2)]
    program = (
        "import sys; from pathlib import Path; from buzz_host.settings import Home\n"
        "from tests.host.plugins.install.making import put\n"
        "for _ in range(12): put(Home(Path(sys.argv[1])), sys.argv[2], agreed=True)\n"
    )
    put(home, sources[0])
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(home.root), str(source)], cwd=ROOT) for source in sources
    ]
    looks = 0
    while any(process.poll() is None for process in running):
        assert versions(home) in (["1"], ["2"])
        looks += 1
    assert [process.wait() for process in running] == [0, 0]
    assert looks > 5
    assert uninstall(home, "honest").name == "honest"
    with pytest.raises(NotInstalled):
        uninstall(home, "honest")
    assert versions(home) == []
    assert left(home) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "buzz-test", place], capture_output=True).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_on_a_disk_that_is_full_the_old_one_stays(small_disk: Path, tmp_path: Path) -> None:
    home = Home(small_disk / "home")
    source = folder(tmp_path, "honest", plugin(version="1"))
    put(home, source)
    before = everything(home.root)
    # More and more room is taken, so that it is full at another step each time.
    (source / "plugin.toml").write_bytes(manifest(version="2"))
    (source / "data.bin").write_bytes(bytes(200_000))
    refused = []
    for taken in range(480, 0, -24):
        (small_disk / "taken").unlink(missing_ok=True)
        try:
            (small_disk / "taken").write_bytes(bytes(taken * 1024))
        except OSError:
            continue
        try:
            put(home, source)
        except BuzzError as error:
            refused.append(str(error))
            if everything(home.root) != before:
                break
            continue
        break
    assert len(refused) > 3
    assert all("No space left on device" in line and "\n" not in line for line in refused)
    (small_disk / "taken").unlink()
    assert versions(home) == ["2"]
    put(home, source)
    assert left(home) == []


def test_on_a_disk_that_is_full_a_repository_is_not_fetched(small_disk: Path, tmp_path: Path) -> None:
    home = Home(small_disk / "home")
    put(home, folder(tmp_path, "resident", plugin("resident")))
    before = everything(home.root)
    git = Git(tmp_path / "repository")
    git.write({**plugin(), "data.bin": random.Random(1).randbytes(600_000)})
    for taken in (0, 300, 400, 440):
        (small_disk / "taken").write_bytes(bytes(taken * 1024))
        with pytest.raises(BuzzError) as caught:
            put(home, git.path.as_uri())
        assert "\n" not in str(caught.value)
        assert everything(home.root) == before


def test_a_home_that_may_not_be_written(small_disk: Path, tmp_path: Path) -> None:
    home = Home(small_disk / "home")
    source = folder(tmp_path, "honest", plugin(version="1"))
    put(home, source)
    (source / "plugin.toml").write_bytes(manifest(version="2"))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for attempt in (lambda: put(home, source), lambda: uninstall(home, "honest")):
        with pytest.raises(BuzzError, match="mounted read-only"):
            attempt()
    sweep(home)
    assert versions(home) == ["1"]
    with pytest.raises(BuzzError, match="Read-only file system"):
        put(Home(small_disk / "other"), source)


def test_what_is_damaged_in_the_store_is_put_back(home: Home, tmp_path: Path) -> None:
    source = folder(tmp_path, "honest", {**plugin(), **MORE})
    row = put(home, source).row
    place = row.place(home)
    assert put(home, source).status == "unchanged"
    for damage in ("changed", "missing", "added", "link", "gone"):
        place.chmod(0o700)
        path = place / "plugin.py"
        if damage == "added":
            (place / "added.py").write_bytes(b"")
        elif damage == "gone":
            place.rename(home.root / "elsewhere")
        else:
            path.unlink()
            if damage == "changed":
                path.write_bytes(b"x")
            elif damage == "link":
                path.symlink_to(source / "plugin.py")
        assert differences(home, row), damage
        assert put(home, source).status == "repaired", damage
        assert differences(home, row) == ()
        assert versions(home) == ["1.0.0"]
    assert not (home.store / STAGING_NAME).exists() or not list((home.store / STAGING_NAME).iterdir())
