"""Programs are installed whole or not at all, by the real npm, from a registry on loopback."""

from __future__ import annotations

import multiprocessing
import os
import re
import select
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from buzz_author.harness import NpmProgram
from buzz_author.names import InvalidName
from buzz_host.programs.fetching import FetchFailed
from buzz_host.programs.installing import Installed, Installer, InstallRefused, Progress
from buzz_host.programs.places import ProgramPlaces
from tests.host.programs.registry import TOY, TOY_FILES, Registry, need_npm, running

NOWHERE = "http://127.0.0.1:9"
DEADLINE_S = 60.0


@pytest.fixture
def registry() -> Iterator[Registry]:
    need_npm()
    with running() as registry:
        yield registry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "programs"


def installer(folder: Path, registry: Registry, tell: object = None) -> Installer:
    environ = registry.environment(folder.parent)
    return Installer(ProgramPlaces(folder, environ), environ=environ, **({"tell": tell} if tell else {}))


def left_in(folder: Path) -> list[str]:
    """What is in the folder beside its lock."""
    return sorted(each.name for each in folder.iterdir() if each.name != ".change.lock") if folder.exists() else []


@pytest.mark.req("HAR-06")
def test_what_was_installed_is_said_found_and_there_the_next_time(folder: Path, registry: Registry) -> None:
    integrity = registry.publish(TOY.package, TOY.version, TOY_FILES)
    told: list[Progress] = []
    pinned = attrs.evolve(TOY, integrity={TOY.package: integrity})
    done = installer(folder, registry, told.append).install("toy", pinned)
    place = folder / "toy" / "1.2.3"
    assert attrs.evolve(done, bytes=0, seconds=0) == Installed(
        "toy", "@buzz/toy", "1.2.3", True, place, 0, integrity=integrity, verified=True
    )
    assert done.bytes > len(TOY_FILES["bin/toy"])
    assert told[0] == Progress("toy", "fetching @buzz/toy@1.2.3", 0)
    found = ProgramPlaces(folder, {}).find("toy", TOY)
    assert found is not None
    assert found.argv == (str(place / "node_modules" / TOY.executable),)
    assert left_in(folder) == ["toy"]
    asked = len(registry.asked)
    again = installer(folder, registry).install("toy", pinned)
    assert (again.already, again.verified, again.bytes) == (True, True, done.bytes)
    assert len(registry.asked) == asked, "nothing is fetched again"


@pytest.mark.req("HAR-06", "SEC-02")
def test_another_archive_than_the_pinned_one_is_refused(folder: Path, registry: Registry) -> None:
    registry.publish(TOY.package, TOY.version, TOY_FILES)
    pinned = attrs.evolve(TOY, integrity={TOY.package: "sha512-another"})
    with pytest.raises(InstallRefused, match="is not the archive that Buzz was tested with"):
        installer(folder, registry).install("toy", pinned)
    assert left_in(folder) == []


@pytest.mark.req("HAR-06", "SEC-02")
def test_what_arrives_must_be_what_the_registry_announced(folder: Path, registry: Registry) -> None:
    registry.publish(TOY.package, TOY.version, TOY_FILES)
    announced = registry.document(TOY.package)
    registry.publish(TOY.package, TOY.version, {"bin/toy": "#!/bin/sh\necho evil\n"})
    registry.document = lambda name: announced  # type: ignore[method-assign]
    with pytest.raises(FetchFailed, match="what arrived is not what the registry announced"):
        installer(folder, registry).install("toy", TOY)
    assert left_in(folder) == []


@pytest.mark.req("HAR-06", "SEC-02")
def test_no_script_of_a_package_runs(folder: Path, registry: Registry, tmp_path: Path) -> None:
    scripts = dict.fromkeys(("preinstall", "install", "postinstall", "prepare"), f"touch {tmp_path / 'ran'}")
    registry.publish(TOY.package, TOY.version, TOY_FILES, scripts=scripts)
    installer(folder, registry).install("toy", TOY)
    assert not (tmp_path / "ran").exists()


@pytest.mark.req("HAR-06")
def test_a_version_that_lacks_the_program_is_refused(folder: Path, registry: Registry) -> None:
    registry.publish(TOY.package, TOY.version, {"README": "empty"})
    with pytest.raises(InstallRefused, match="this version cannot be used on this machine"):
        installer(folder, registry).install("toy", TOY)
    assert left_in(folder) == []


@pytest.mark.req("HAR-06")
def test_another_version_is_taken_where_it_would_be_run(folder: Path, registry: Registry) -> None:
    for version in ("1.0.0", "1.2.3"):
        registry.publish(TOY.package, version, TOY_FILES)
    pinned = attrs.evolve(TOY, integrity={TOY.package: "sha512-of-the-pinned-one"})
    done = installer(folder, registry).install("toy", pinned, version="1.0.0")
    assert (done.version, done.pinned, done.verified) == ("1.0.0", False, False)
    installer(folder, registry).install("toy", TOY)
    with pytest.raises(InstallRefused, match=re.escape("toy 1.2.3 is installed and goes before 1.9.9")):
        installer(folder, registry).install("toy", TOY, version="1.9.9")
    gone = installer(folder, registry).uninstall("toy", {"toy": TOY})
    assert gone.versions == ("1.0.0", "1.2.3")
    with pytest.raises(FetchFailed, match="there is no such version"):
        installer(folder, registry).install("toy", TOY, version="9.9.9")
    assert left_in(folder) == []


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize("version", ["../1.0.0", "1", "latest", "1.0/..", "", "1.0.0 --global"])
def test_a_version_is_never_a_path_or_an_option(folder: Path, version: str) -> None:
    with pytest.raises(InstallRefused, match="is no version"):
        Installer(ProgramPlaces(folder, {}), environ={}).install("toy", TOY, version=version)
    assert not folder.exists()


@pytest.mark.req("SEC-03")
def test_a_harness_is_never_a_path(folder: Path) -> None:
    for name in ("../toy", ".staging", "a/b"):
        with pytest.raises(InvalidName):
            Installer(ProgramPlaces(folder, {}), environ={}).install(name, TOY)
        with pytest.raises(InvalidName):
            Installer(ProgramPlaces(folder, {}), environ={}).uninstall(name, {})


@pytest.mark.req("HAR-06", "OPS-03")
def test_whoever_is_killed_leaves_nothing_that_is_used_and_the_next_one_cleans_up(
    folder: Path, registry: Registry
) -> None:
    registry.publish(TOY.package, TOY.version, TOY_FILES)
    registry.held.clear()
    child = multiprocessing.get_context("spawn").Process(target=install_toy, args=(folder, registry.url))
    child.start()
    assert registry.asked_for_archive.wait(DEADLINE_S)
    child.kill()
    child.join(DEADLINE_S)
    assert ProgramPlaces(folder, {}).find("toy", TOY) is None
    (staged,) = (folder / ".staging").iterdir()
    npm = writing_to(staged)
    assert npm, "npm waits for its archive"
    held, registry.held = registry.held, threading.Event()
    registry.held.set()
    assert installer(folder, registry).install("toy", TOY).version == TOY.version
    assert staged.exists(), "npm writes there still, and is in nobody's way"
    for pid in npm:
        os.kill(pid, signal.SIGKILL)
    await_gone(npm)
    held.set()
    with pytest.raises(InstallRefused):
        installer(folder, registry).uninstall("nobody", {})
    installer(folder, registry).uninstall("toy", {"toy": TOY})
    assert left_in(folder) == []


@pytest.mark.req("HAR-06", "OPS-03")
def test_of_two_at_once_one_waits_and_says_so(folder: Path, registry: Registry) -> None:
    registry.publish(TOY.package, TOY.version, TOY_FILES)
    registry.held.clear()
    done: list[Installed] = []
    waits = threading.Event()

    def told(progress: Progress) -> None:
        if progress == Progress("toy", "waiting for another installation"):
            waits.set()

    first = threading.Thread(target=lambda: done.append(installer(folder, registry).install("toy", TOY)))
    second = threading.Thread(target=lambda: done.append(installer(folder, registry, told).install("toy", TOY)))
    first.start()
    assert registry.asked_for_archive.wait(DEADLINE_S)
    second.start()
    assert waits.wait(DEADLINE_S)
    registry.held.set()
    for each in (first, second):
        each.join(DEADLINE_S)
    assert [each.already for each in done] == [False, True]
    assert left_in(folder) == ["toy"]


@pytest.mark.req("HAR-06")
def test_a_registry_that_is_not_there_is_one_line(folder: Path, registry: Registry) -> None:
    environ = registry.environment(folder.parent) | {"npm_config_registry": NOWHERE}
    with pytest.raises(FetchFailed) as raised:
        Installer(ProgramPlaces(folder, environ), environ=environ).install("toy", TOY)
    assert "the package registry cannot be reached" in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(FetchFailed, match="there is no such version"):
        installer(folder, registry).install("toy", TOY)
    assert left_in(folder) == []


@pytest.mark.req("HAR-06")
def test_without_npm_and_pip_it_is_said_what_is_needed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buzz_host.programs.nodejs.pip_words", lambda: None)
    environ = {"PATH": str(folder)}
    with pytest.raises(FetchFailed, match="install node and npm, or pip for this Python"):
        Installer(ProgramPlaces(folder, environ), environ=environ).install("toy", TOY)
    assert left_in(folder) == []


@pytest.mark.req("HAR-06")
def test_what_has_no_room_is_not_begun(folder: Path, registry: Registry) -> None:
    huge = attrs.evolve(TOY, megabytes=10**9)
    with pytest.raises(InstallRefused, match=r"toy needs about 1,500,000,000 MB while it is installed, and [\d,]+ MB"):
        installer(folder, registry).install("toy", huge)
    assert registry.asked == []


@pytest.mark.req("HAR-06")
def test_node_goes_when_nothing_that_is_known_needs_it(folder: Path, registry: Registry) -> None:
    script = NpmProgram("@buzz/script", "1.0.0", "@buzz/script/cli.js", megabytes=1, node=(18, 0))
    known = {"toy": TOY, "script": script, "other": None}
    node = folder / "node" / "24.19.0" / "bin" / "node"
    node.parent.mkdir(parents=True)
    node.write_text("#!/bin/sh\n", encoding="utf-8")
    node.chmod(0o755)
    for name in ("toy", "script", "strange"):
        (folder / name / "1.0.0").mkdir(parents=True)
    taken = installer(folder, registry)
    assert taken.uninstall("toy", known).node == (), "the script needs it"
    assert taken.uninstall("script", known).node == (), "of what is strange nobody knows"
    assert node.exists()
    assert taken.uninstall("strange", known).node == ("24.19.0",)
    assert left_in(folder) == []
    with pytest.raises(InstallRefused, match="is not installed in"):
        taken.uninstall("toy", known)
    with pytest.raises(InstallRefused, match="is not installed in"):
        taken.uninstall("node", known)


@pytest.mark.req("HAR-06")
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_real_program_is_installed_on_a_machine_without_node(tmp_path: Path) -> None:
    goose = NpmProgram(
        "@aaif/goose-binary-linux-x64", "1.52.0", "@aaif/goose-binary-linux-x64/bin/goose", 287, integrity={}
    )
    environ = {**os.environ, "PATH": str(tmp_path)}
    places = ProgramPlaces(tmp_path / "programs", environ)
    done = Installer(places, environ=environ).install("goose", goose)
    assert done.node is not None
    found = places.find("goose", goose)
    assert found is not None
    assert os.access(found.path, os.X_OK)


def install_toy(folder: Path, url: str) -> None:
    """In a process of its own, to be killed."""
    registry = Registry(url)
    installer(folder, registry).install("toy", TOY)


def writing_to(folder: Path) -> list[int]:
    """The processes that work below a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def await_gone(pids: list[int]) -> None:
    """Until none of them holds anything any more; they are nobody's children here."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            assert poll.poll(int(DEADLINE_S * 1000)), f"process {pid} does not end"
        finally:
            os.close(descriptor)
