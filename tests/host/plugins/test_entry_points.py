"""Plugins of installed packages: found without importing them, save a manifest, which is bounded."""

from __future__ import annotations

import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import cattrs
import pytest

from buzz_host.plugins import entry_points
from buzz_host.plugins.discovery import discover
from buzz_host.plugins.entry_points import Found, entry_point_plugins
from buzz_host.settings import Home
from tests.host.plugins.making import running, spoken, write_plugin


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, the only one that is searched; what is imported from it is forgotten."""
    assert cattrs  # the host imports it when it first needs it, which must not be while the path is another one
    folder = tmp_path / "site"
    folder.mkdir()
    before = set(sys.modules)
    standard = [path for path in sys.path if "site-packages" not in path and Path(path) != Path.cwd()]
    monkeypatch.setattr(sys, "path", [str(folder), *standard])
    monkeypatch.setattr(entry_points, "_looked_at", {})
    monkeypatch.setattr(entry_points, "_scanned", {})
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("pkg_of_a_test"):
            del sys.modules[name]


def install(site: Path, package: str, lines: str, version: str = "1.0", **modules: str) -> None:
    metadata = site / f"{package}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {package}\nVersion: {version}\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(
        f"[console_scripts]\nbuzz.plugins = x:y\n\n[buzz.plugins]\n{dedent(lines)}\n[other]\nz = z\n", encoding="utf-8"
    )
    for name, code in modules.items():
        (site / f"{name}.py").write_text(dedent(code), encoding="utf-8")


def only() -> Found:
    (found,) = entry_point_plugins()
    return found


@pytest.mark.req("PLG-04")
def test_a_module_is_found_and_described_without_being_imported(site: Path) -> None:
    code = '"""Says hello.\n\nMore."""\nname = "Hello"\nraise SystemExit'
    install(site, "my_pkg", "hello = pkg_of_a_test [extra]", version="2.5", pkg_of_a_test=code)
    source = only().source
    assert source is not None
    assert (source.id, source.version, source.title, source.description) == ("hello", "2.5", "Hello", "Says hello.")
    assert (source.form, source.import_path, source.origin) == ("module", "pkg_of_a_test", "entry point")
    assert "pkg_of_a_test" not in sys.modules
    assert only().where == "pkg_of_a_test of my-pkg 2.5"


@pytest.mark.req("PLG-04")
def test_the_hash_is_over_the_module_or_its_whole_package(site: Path) -> None:
    (site / "pkg_of_a_test" / "inner").mkdir(parents=True)
    for name in ("__init__.py", "one.py", "inner/__init__.py", "inner/part.py"):
        (site / "pkg_of_a_test" / name).write_text(f"# {name}", encoding="utf-8")
    install(site, "p", "a = pkg_of_a_test.one\nb = pkg_of_a_test.inner\nc = pkg_of_a_test.made_up_at_run_time")

    def hashes() -> list[str]:
        entry_points._looked_at.clear()
        return [found.source.content_hash for found in entry_point_plugins() if found.source]

    first = hashes()
    assert len(set(first)) == 3
    (site / "pkg_of_a_test" / "inner" / "part.py").write_text("# changed", encoding="utf-8")
    second = hashes()
    assert [one == two for one, two in zip(first, second, strict=True)] == [True, False, True]


@pytest.mark.req("PLG-04")
def test_what_was_imported_once_keeps_its_revision_for_the_life_of_the_process(site: Path) -> None:
    install(site, "p", "a = pkg_of_a_test", pkg_of_a_test="x = 1")
    before = only()
    (site / "pkg_of_a_test.py").write_text("x = 2", encoding="utf-8")
    assert only() == before


MANIFEST = """
    from buzz_author import PluginEntry, PluginManifest
    manifest = PluginManifest(plugins=[
        PluginEntry("plugin", "one", "pkg_of_a_test_one"),
        PluginEntry("plugin", "two", "pkg_of_a_test_one:Two"),
        PluginEntry("agent", "three", "pkg_of_a_test_one:Three"),
        PluginEntry("plugin", "Bad Name", "pkg_of_a_test_one"),
        PluginEntry("plugin", "odd", "not an import path"),
        PluginEntry("plugin", "missing", "no_such_module_at_all"),
    ])
"""
ONE = """
    def apply(ctx):
        ctx.agents.addInstructions(id="a", text="one")
    class Two:
        def apply(self, ctx):
            ctx.agents.addInstructions(id="a", text="two")
"""


@pytest.mark.req("PLG-04")
@pytest.mark.anyio
async def test_a_manifest_brings_several_plugins_and_says_what_it_cannot_bring(site: Path, tmp_path: Path) -> None:
    install(site, "p", "all = pkg_of_a_test:manifest", pkg_of_a_test=MANIFEST, pkg_of_a_test_one=ONE)
    discovery = discover(Home(tmp_path / "home"))
    assert [source.id for source in discovery.sources] == ["one", "two"]
    faults = {fault.plugin: fault.message for fault in discovery.faults}
    assert "of the type 'agent', which this version of Buzz does not carry" in faults["three"]
    assert "plugin name 'Bad Name' is not allowed" in faults["Bad Name"]
    assert "expected package.module or package.module:name" in faults["odd"]
    assert "there is no module 'no_such_module_at_all'" in faults["missing"]
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile(discovery.sources)
        await runtime.settled()
        assert spoken(runtime.contributions) == [("one/a", "one"), ("two/a", "two")]


@pytest.mark.req("PLG-04")
def test_an_object_with_a_colon_may_be_a_plugin_itself(site: Path) -> None:
    install(site, "p", "two = pkg_of_a_test_one:Two", pkg_of_a_test_one=ONE)
    source = only().source
    assert source is not None
    assert source.import_path == "pkg_of_a_test_one:Two"


@pytest.mark.req("PLG-04", "PLG-02")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise SystemExit(1)", "SystemExit: 1"),
        ("while True: pass", "was still being imported after 0.2 s"),
        ("x = 1", "has no attribute 'manifest'"),
    ],
)
def test_a_manifest_that_cannot_be_imported_is_one_line_and_costs_a_bounded_time(
    site: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    monkeypatch.setattr(entry_points, "MANIFEST_IMPORT_S", 0.2)
    install(site, "p", "a = pkg_of_a_test:manifest", pkg_of_a_test=code)
    found = only()
    assert found.source is None
    assert message in found.reason
    assert "\n" not in found.reason
    began = time.monotonic()
    assert only() == found, "it is not tried again"
    assert time.monotonic() - began < 0.1


@pytest.mark.req("PLG-04")
def test_two_packages_with_one_name_are_a_fault(site: Path, tmp_path: Path) -> None:
    install(site, "p", "same = pkg_of_a_test", pkg_of_a_test=ONE)
    install(site, "q", "same = pkg_of_a_test_two", pkg_of_a_test_two=ONE)
    discovery = discover(Home(tmp_path / "home"))
    assert discovery.sources == ()
    (fault,) = discovery.faults
    assert "pkg_of_a_test of p 1.0 (entry point) and pkg_of_a_test_two of q 1.0 (entry point)" in fault.message


@pytest.mark.req("PLG-04")
def test_what_is_dropped_in_comes_before_an_entry_point(site: Path, tmp_path: Path) -> None:
    install(site, "p", "same = pkg_of_a_test", pkg_of_a_test=ONE)
    write_plugin(tmp_path / "home" / "plugins", "same", ONE)
    discovery = discover(Home(tmp_path / "home"))
    assert [source.origin for source in discovery.sources] == ["dropped in"]
    assert "comes before pkg_of_a_test of p 1.0 (entry point)" in discovery.warnings[0]


@pytest.mark.req("PLG-04")
def test_a_package_that_is_shadowed_on_the_path_does_not_count(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    install(site, "my_pkg", "a = pkg_of_a_test", pkg_of_a_test=ONE)
    install(other, "My.Pkg", "b = pkg_of_a_test", version="0.1")
    monkeypatch.setattr(sys, "path", [*sys.path, str(other)])
    assert [found.name for found in entry_point_plugins()] == ["a"]


@pytest.mark.req("PLG-04")
def test_a_package_that_is_installed_while_the_host_runs_is_found(site: Path) -> None:
    assert entry_point_plugins() == ()
    install(site, "p", "a = pkg_of_a_test", pkg_of_a_test=ONE)
    assert only().name == "a"


@pytest.mark.req("PLG-04")
def test_packages_in_an_archive_are_found_too(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("packed-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: packed\nVersion: 1.0\n")
        file.writestr("packed-1.0.dist-info/entry_points.txt", "[buzz.plugins]\nzipped = pkg_of_a_test_zip\n")
        file.writestr("pkg_of_a_test_zip.py", "def apply(ctx): pass")
    monkeypatch.setattr(sys, "path", [*sys.path, str(archive), str(tmp_path / "nowhere"), ""])
    assert [found.name for found in entry_point_plugins()] == ["zipped"]


@pytest.mark.req("PLG-04", "HAR-02")
def test_the_claude_harness_is_found_this_way(tmp_path: Path) -> None:
    sources = {source.id: source for source in discover(Home(tmp_path / "home")).sources}
    assert sources["claude"].origin == "entry point"
    assert sources["claude"].import_path == "harnesses.claude"
