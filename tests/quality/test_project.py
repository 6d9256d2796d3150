"""The project's own files agree with each other: make targets, constraints, entry points, and what a wheel holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.quality.tree import PACKAGES, ROOT, committed_files, documents, relative

TARGETS_WE_OWE = ("demo", "test", "check", "bench", "soak", "clean")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = frozenset(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _required() -> set[str]:
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["dev"], *extras["claude"]]
    return {_canonical(re.split(r"[ \[<>=!~;]", name)[0]) for name in wanted}


def _pins() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split("\n")
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("target", TARGETS_WE_OWE)
def test_contributing_names_each_target(target: str) -> None:
    assert target in TARGETS
    assert f"make {target}" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", documents(), ids=relative)
def test_a_page_names_no_target_that_is_not_there(page: Path) -> None:
    named = set(re.findall(r"(?:`|^|\$ )make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= TARGETS


def test_constraints_are_names_and_versions_only_and_cover_what_is_required() -> None:
    pins = _pins()
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", pin)] == []
    assert _required() <= {_canonical(pin.partition("==")[0]) for pin in pins}


def test_what_ci_runs_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an unpacked wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_a_wheel_holds_every_committed_file_of_the_packages_and_the_examples(wheel: Path) -> None:
    expected = {
        relative(file).replace("docs/examples/", "buzz_host/example_plugins/")
        for file in committed_files()
        if relative(file).startswith((*(f"{package}/" for package in PACKAGES), "docs/examples/"))
    }
    assert {name for name in expected if not (wheel / name).is_file()} == set()
    # and nothing that is only the repository's: tests and documents
    assert {path.name for path in wheel.iterdir() if path.suffix != ".dist-info"} <= set(PACKAGES)


def test_an_installed_wheel_finds_its_examples(wheel: Path) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", "from buzz_host.examples import examples_folder; print(examples_folder())"],
        cwd=wheel, env={"PYTHONPATH": str(wheel)}, check=True, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert Path(asked.stdout.strip()) == wheel / "buzz_host" / "example_plugins"
    assert list((wheel / "buzz_host" / "example_plugins").glob("*/plugin.toml"))


def test_the_console_script_and_the_harnesses_are_declared() -> None:
    assert PROJECT["scripts"] == {"buzz": "buzz_host.cli:main"}
    names = ("claude", "codex", "direct", "goose", "pi")
    assert PROJECT["entry-points"]["buzz.plugins"] == {each: f"harnesses.{each}" for each in names}
