"""Where programs are looked for: fetched ones, pinned first; then the PATH; and node for those that need it."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from buzz_author.harness import FoundProgram, NpmProgram
from buzz_host.programs.places import ProgramPlaces, numbers
from buzz_host.services.host import Host

TOY = NpmProgram("@buzz/toy", "1.2.3", "@buzz/toy/bin/toy", megabytes=1)
SCRIPT = NpmProgram("@buzz/script", "2.0.0", "@buzz/script/dist/cli.js", megabytes=1, node=(22, 19))


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def fetched(folder: Path, harness: str, version: str, program: NpmProgram) -> Path:
    return executable(folder / harness / version / "node_modules" / program.executable)


def node(path: Path, version: str) -> Path:
    return executable(path, f"#!/bin/sh\necho v{version}\n")


@pytest.mark.req("HAR-06")
def test_the_pinned_version_goes_first_then_the_newest_then_the_path(tmp_path: Path) -> None:
    folder, on_path = tmp_path / "programs", executable(tmp_path / "bin" / "toy")
    places = ProgramPlaces(folder, {"PATH": str(tmp_path / "bin")})
    assert places.find("toy", TOY) == FoundProgram((str(on_path),), on_path, None)
    for version in ("1.9.0", "1.10.0"):
        path = fetched(folder, "toy", version, TOY)
        assert places.find("toy", TOY) == FoundProgram((str(path),), path, version)
    pinned = fetched(folder, "toy", "1.2.3", TOY)
    assert places.find("toy", TOY) == FoundProgram((str(pinned),), pinned, "1.2.3")
    assert places.versions("toy", TOY) == ["1.2.3", "1.10.0", "1.9.0"]
    pinned.unlink()
    assert places.versions("toy", TOY) == ["1.10.0", "1.9.0"], "a version without its program is none"


@pytest.mark.req("HAR-06")
def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    places = ProgramPlaces(tmp_path / "programs", {"PATH": str(tmp_path)})
    assert places.find("toy", TOY) is None
    assert places.find("script", SCRIPT) is None
    (tmp_path / "programs").write_text("a file", encoding="utf-8")
    assert places.find("toy", TOY) is None


@pytest.mark.req("HAR-06")
def test_a_script_runs_with_a_node_that_is_new_enough(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    script = fetched(folder, "script", "2.0.0", SCRIPT)
    places = ProgramPlaces(folder, {"PATH": str(tmp_path / "bin")})
    assert places.find("script", SCRIPT) is None
    old = node(tmp_path / "bin" / "node", "20.20.2")
    assert ProgramPlaces(folder, {"PATH": str(old.parent)}).find("script", SCRIPT) is None
    new = node(tmp_path / "newer" / "node", "22.19.0")
    found = ProgramPlaces(folder, {"PATH": str(new.parent)}).find("script", SCRIPT)
    assert found == FoundProgram((str(new), str(script)), script, "2.0.0")
    brought = node(folder / "node" / "24.19.0" / "bin" / "node", "24.19.0")
    found = places.find("script", SCRIPT)
    assert found == FoundProgram((str(brought), str(script)), script, "2.0.0")


@pytest.mark.req("HAR-06")
def test_an_earlier_version_runs_with_the_node_that_it_asks_for(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    script = fetched(folder, "script", "0.74.2", SCRIPT)
    package = folder / "script" / "0.74.2" / "node_modules" / "@buzz" / "script" / "package.json"
    old = node(tmp_path / "bin" / "node", "20.20.2")
    places = ProgramPlaces(folder, {"PATH": str(old.parent)})
    assert places.find("script", SCRIPT) is None, "it does not say, so it needs what the pinned one needs"
    package.write_text(json.dumps({"engines": {"node": ">=20.6.0"}}), encoding="utf-8")
    found = places.find("script", SCRIPT)
    assert found == FoundProgram((str(old), str(script)), script, "0.74.2")


@pytest.mark.req("HAR-06")
def test_a_folder_that_the_environment_names_is_used_instead(tmp_path: Path) -> None:
    path = fetched(tmp_path / "shared", "toy", "1.2.3", TOY)
    places = ProgramPlaces(tmp_path / "home", {"BUZZ_PROGRAMS": str(tmp_path / "shared")})
    found = places.find("toy", TOY)
    assert found is not None
    assert found.path == path
    assert ProgramPlaces(tmp_path / "home", {"BUZZ_PROGRAMS": ""}).folder == tmp_path / "home"


@pytest.mark.req("HAR-06", "PLG-02")
@pytest.mark.anyio
async def test_a_plugin_finds_programs_in_the_home_of_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUZZ_PROGRAMS", raising=False)
    home = tmp_path / "home"
    path = fetched(home / "harnesses", "toy", "1.2.3", TOY)
    plugin = tmp_path / "asking.py"
    plugin.write_text(
        "from buzz_author.harness import NpmProgram\n"
        f"TOY = NpmProgram({', '.join(repr(each) for each in attrs.astuple(TOY)[:4])})\n"
        'inject = ("agents", "programs")\n\n\n'
        "def apply(ctx):\n"
        '    ctx.agents.addInstructions(id="where", text=str(ctx.programs.find("toy", TOY).path))\n',
        encoding="utf-8",
    )
    async with Host(home, plugins=[plugin]) as host:
        preview = await host.preview("hello", harness="direct")
        assert str(path) in preview.text


@pytest.mark.parametrize(("version", "found"), [("v24.19.0", (24, 19, 0)), (">=22.19", (22, 19)), ("none", ())])
@pytest.mark.req("HAR-06")
def test_the_numbers_of_a_version(version: str, found: tuple[int, ...]) -> None:
    assert numbers(version) == found
