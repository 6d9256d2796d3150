"""An installed plugin is loaded only if each byte is what was installed, whatever happens to its files, and when."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from buzz_author.errors import BuzzError
from buzz_host.plugins.discovery import VERIFY_PHASE, discover
from buzz_host.plugins.files import read_folder
from buzz_host.plugins.install.integrity import ChangedError, differences, must_be_whole
from buzz_host.plugins.install.lockfile import InstalledPlugin, LockFileError, read_lock
from buzz_host.plugins.loading import load, unload
from buzz_host.plugins.sources import PluginSource
from buzz_host.settings import Home
from tests.conftest import SOAK
from tests.host.plugins.install.making import SPEAKS, folder, manifest, plugin, put

pytestmark = pytest.mark.req("CAT-02")

FILES = 50
SWAPS = 1000 if SOAK else 50


@pytest.fixture
def large(home: Home, tmp_path: Path) -> InstalledPlugin:
    """A plugin of fifty files: code, packages, data."""
    files = dict(plugin())
    for number in range(FILES - len(files) - 1):
        files[f"part{number % 7}/module{number}.py"] = f"VALUE = {number}\n".encode() * (1 + number % 5)
    files["data.bin"] = bytes(range(256))
    assert len(files) == FILES
    return put(home, folder(tmp_path, "honest", files)).row


@pytest.fixture(autouse=True)
def _writable(home: Home) -> Iterator[None]:
    """The owner of a home can always write it, and so can whoever wants harm."""
    yield
    for path in home.store.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)


def only(home: Home) -> PluginSource:
    (source,) = discover(home, entry_points=False).sources
    return source


def refusal(home: Home, source: PluginSource) -> str:
    """What finding says, and loading what was found before: the same, and nothing is loaded."""
    found = discover(home, entry_points=False)
    assert found.sources == ()
    (fault,) = found.faults
    assert (fault.plugin, fault.phase) == ("honest", VERIFY_PHASE)
    with pytest.raises(ChangedError) as caught:
        load(source)
    assert str(caught.value) == fault.message
    return fault.message


def test_one_bit_anywhere_is_found_and_the_file_is_named(home: Home, large: InstalledPlugin) -> None:
    source = only(home)
    unload(load(source).package)
    place = large.place(home)
    chance = random.Random(11)
    names = sorted(large.files) if SOAK else chance.sample(sorted(large.files), 8)
    for name in names:
        path = place / name
        whole = path.read_bytes()
        positions = range(len(whole)) if SOAK and len(whole) < 400 else chance.sample(range(len(whole)), 3)
        path.chmod(0o600)
        for position in positions:
            flipped = bytearray(whole)
            flipped[position] ^= 1 << chance.randrange(8)
            path.write_bytes(flipped)
            assert f"{path}: is not what was installed: nothing of plugin 'honest' is loaded" in refusal(home, source)
            assert [(each.file, each.kind) for each in differences(home, large)] == [(name, "changed")]
        path.write_bytes(whole)
    assert differences(home, large) == ()
    unload(load(source).package)


def test_a_file_more_or_less_is_found_and_named(home: Home, large: InstalledPlugin) -> None:
    source, place = only(home), large.place(home)
    place.chmod(0o700)
    (place / "added.py").write_bytes(b"")
    assert f"{place / 'added.py'}: was not installed" in refusal(home, source)
    (place / "added.py").rename(place / "plugin.py2")
    assert "plugin.py2: was not installed" in refusal(home, source)
    (place / "plugin.py2").unlink()
    (place / "data.bin").unlink()
    assert f"{place / 'data.bin'}: was installed, and is gone" in refusal(home, source)
    (place / "data.bin").write_bytes(bytes(range(256)))
    assert only(home) == source
    (place / "a").write_bytes(b"")
    for number in range(5):
        (place / f"b{number}").write_bytes(b"")
    assert "; and 3 more: nothing of plugin" in refusal(home, source)
    place.rename(home.root / "elsewhere")
    assert "are gone: buzz plugin upgrade honest puts it back" in refusal(home, source)
    assert [each.kind for each in differences(home, large)] == ["missing"]


def test_links_and_devices_in_the_store_are_found(home: Home, large: InstalledPlugin, tmp_path: Path) -> None:
    source, place = only(home), large.place(home)
    place.chmod(0o700)
    (place / "out").symlink_to("/etc/passwd")
    assert discover(home, entry_points=False).sources == ()
    with pytest.raises(BuzzError, match="leads out of the plugin's folder"):
        load(source)
    assert [(each.file, each.kind) for each in differences(home, large)] == [("out", "not a file")]
    (place / "out").unlink()
    os.mkfifo(place / "pipe")
    with pytest.raises(BuzzError, match="neither file nor folder"):
        load(source)
    assert [(each.file, each.kind) for each in differences(home, large)] == [("pipe", "not a file")]
    (place / "pipe").unlink()
    (place / "__pycache__").mkdir()
    (place / "__pycache__" / "plugin.cpython-311.pyc").write_bytes(b"evil")
    unload(load(source).package)  # nothing of it can be imported, but verify says that it is there
    assert [each.kind for each in differences(home, large)] == ["added"]


def test_what_was_swapped_between_looking_and_loading_is_never_loaded(home: Home, tmp_path: Path) -> None:
    """Somebody exchanges the file, the folder, and a link to either, as fast as they can, while it is loaded."""
    source_folder = folder(tmp_path, "honest", plugin())
    row = put(home, source_folder).row
    place = row.place(home)
    source = only(home)
    evil_marker = tmp_path / "evil-ran"
    evil = SPEAKS + f"\nopen({str(evil_marker)!r}, 'w').close()\n".encode()
    evil_folder = folder(tmp_path, "evil", {"plugin.toml": manifest(), "plugin.py": evil})
    (tmp_path / "evil.py").write_bytes(evil)
    for path in (home.store, place):
        path.chmod(0o700)
    over = threading.Event()

    def swap() -> None:
        chance = random.Random(5)
        link, good = home.store / "link", home.store / "good"
        while not over.is_set():
            if chance.random() < 0.5:
                link.unlink(missing_ok=True)
                link.symlink_to(tmp_path / "evil.py")
                (place / "plugin.py").rename(good)
                link.rename(place / "plugin.py")
                (place / "plugin.py").unlink()
                good.rename(place / "plugin.py")
            else:
                place.rename(good)
                place.symlink_to(evil_folder)
                place.unlink()
                good.rename(place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    loaded = refused = 0
    try:
        while loaded + refused < SWAPS or not refused:
            try:
                unload(load(source).package)
                loaded += 1
            except BuzzError:
                refused += 1
    finally:
        over.set()
        swapping.join()
    assert refused
    assert not evil_marker.exists()
    unload(load(source).package)


def test_the_bytes_that_are_judged_are_the_bytes_that_run(home: Home, tmp_path: Path) -> None:
    put(home, folder(tmp_path, "honest", {**plugin(), "late.py": b"VALUE = 'installed'\n"}))
    source = only(home)
    loaded = load(source)
    assert loaded.package is not None
    place = home.store / source.content_hash
    (place / "late.py").chmod(0o600)
    (place / "late.py").write_bytes(b"VALUE = 'exchanged'\n")
    import importlib

    try:
        assert importlib.import_module(f"{loaded.package}.late").VALUE == "installed"
    finally:
        unload(loaded.package)


def test_a_lock_that_names_other_content_now_is_not_loaded_under_the_old_name(home: Home, tmp_path: Path) -> None:
    where = folder(tmp_path, "honest", plugin(version="1"))
    put(home, where)
    old = only(home)
    (where / "plugin.toml").write_bytes(manifest(version="2"))
    put(home, where)
    with pytest.raises(BuzzError, match="was exchanged while it was being loaded: try again"):
        load(old)
    unload(load(only(home)).package)


def test_what_is_loaded_is_compared_and_not_what_was_found(home: Home, large: InstalledPlugin) -> None:
    files = read_folder(large.place(home))
    must_be_whole(large, files)
    (large.place(home) / "data.bin").chmod(0o600)
    (large.place(home) / "data.bin").write_bytes(b"")
    must_be_whole(large, files)
    with pytest.raises(ChangedError):
        must_be_whole(large, read_folder(large.place(home)))


@pytest.mark.parametrize(
    "damage",
    [
        b"", b"not json", b"[]", b"{}", b'{"v": 1}', b'{"v": 2, "plugins": {}}', b'{"v": 1, "plugins": []}',
        b"[" * 100_000, b"\xff\xfe",
    ],
)  # fmt: skip
def test_a_lock_that_is_damaged_makes_one_fault_and_installs_nothing(
    damage: bytes, home: Home, large: InstalledPlugin, tmp_path: Path
) -> None:
    home.lock.write_bytes(damage)
    found = discover(home, entry_points=False)
    assert found.sources == ()
    assert [fault.plugin for fault in found.faults] == ["plugins.lock"]
    assert str(home.lock) in found.faults[0].message
    with pytest.raises(LockFileError):
        put(home, folder(tmp_path, "other", plugin("other")))
    assert home.lock.read_bytes() == damage
    assert large.place(home).is_dir(), "what no lock names for certain is not swept"


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize("field", ["content_hash", "previous", "name", "file", "form", "kind"])
def test_a_lock_that_leads_out_of_the_store_is_not_believed(field: str, home: Home, large: InstalledPlugin) -> None:
    said = json.loads(home.lock.read_bytes())
    row = said["plugins"]["honest"]
    if field == "name":
        said["plugins"]["../../evil"] = said["plugins"].pop("honest")
    elif field == "file":
        row["files"]["plugin.py"] = "../x"
    elif field == "kind":
        row["provenance"]["kind"] = "../x"
    else:
        row[field] = "../../evil"
    home.lock.write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(LockFileError, match="is damaged"):
        read_lock(home.lock)
    assert discover(home, entry_points=False).sources == ()


def test_an_installed_plugin_gives_way_to_one_that_is_dropped_in_and_comes_before_the_shipped(
    home: Home, large: InstalledPlugin, tmp_path: Path
) -> None:
    shipped = folder(tmp_path, "shipped/honest", plugin(version="9")).parent
    assert discover(home, entry_points=False, shipped=shipped).sources[0].origin == "installed"
    folder(home.plugins, "honest", plugin(version="8"))
    found = discover(home, entry_points=False, shipped=shipped)
    assert [source.origin for source in found.sources] == ["dropped in"]
    assert any("(dropped in) comes before" in line and "(installed)" in line for line in found.warnings)
