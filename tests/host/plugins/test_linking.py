"""Linking a plugin in place and taking plugins out: one step, or nothing, and nobody's work is ever destroyed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from buzz_host.plugins.discovery import discover
from buzz_host.plugins.linking import LinkError, link, remove
from buzz_host.plugins.sources import PluginPathError
from buzz_host.settings import Home
from tests.host.plugins.making import write_plugin

APPLY = "def apply(ctx): pass"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def ids(home: Home) -> list[tuple[str, str]]:
    return [(source.id, source.origin) for source in discover(home, entry_points=False).sources]


@pytest.mark.req("CLI-01", "PLG-04")
def test_a_linked_folder_is_used_in_place_and_let_go_untouched(tmp_path: Path, home: Home) -> None:
    folder = write_plugin(tmp_path / "work", "my-tool", APPLY)
    linked = link(home, folder)
    assert (linked.source.id, linked.already) == ("my-tool", False)
    assert linked.link == home.plugins / "my-tool"
    assert ids(home) == [("my-tool", "linked")]
    assert link(home, folder / "plugin.toml").already
    removed = remove(home, "my_tool")
    assert removed.line == f"plugin 'my-tool' is not linked any more; its files stay at {folder}"
    assert ids(home) == []
    assert (folder / "plugin.py").exists()


@pytest.mark.req("CLI-01", "PLG-04")
def test_a_single_file_is_linked_under_its_own_name(tmp_path: Path, home: Home) -> None:
    file = tmp_path / "notes.py"
    file.write_text(APPLY, encoding="utf-8")
    assert link(home, file).link == home.plugins / "notes.py"
    assert ids(home) == [("notes", "linked")]
    assert remove(home, "notes").was_link
    assert file.exists()


@pytest.mark.req("CLI-01", "PLG-08")
@pytest.mark.parametrize("there", ["folder", "file", "link", "broken link"])
def test_a_name_that_is_taken_is_refused_and_says_by_what(tmp_path: Path, home: Home, there: str) -> None:
    home.folder(home.plugins)
    place = home.plugins / ("my_tool.py" if there == "file" else "my_tool")
    if there == "folder":
        write_plugin(home.plugins, "my_tool", APPLY)
    elif there == "file":
        place.write_text(APPLY, encoding="utf-8")
    else:
        place.symlink_to(tmp_path if there == "link" else tmp_path / "nothing")
    before = sorted(home.plugins.iterdir())
    with pytest.raises(LinkError) as caught:
        link(home, write_plugin(tmp_path, "my-tool", APPLY))
    assert str(place) in str(caught.value)
    assert "take it out first with: buzz plugin remove my-tool" in str(caught.value)
    assert sorted(home.plugins.iterdir()) == before


@pytest.mark.req("CLI-01")
def test_what_is_no_plugin_or_is_there_already_is_not_linked(tmp_path: Path, home: Home) -> None:
    with pytest.raises(PluginPathError):
        link(home, tmp_path / "missing")
    assert not home.root.exists()
    folder = write_plugin(home.folder(home.plugins), "mine", APPLY)
    with pytest.raises(LinkError, match="it needs no link"):
        link(home, folder)


@pytest.mark.req("CLI-01", "OPS-03")
def test_what_a_person_dropped_in_is_moved_aside_and_never_deleted(tmp_path: Path, home: Home) -> None:
    for number in range(3):
        folder = write_plugin(home.folder(home.plugins), "mine", APPLY, n__txt=str(number))
        removed = remove(home, "mine")
        assert not folder.exists()
        assert not removed.was_link
        assert (removed.kept / "n.txt").read_text(encoding="utf-8") == str(number)
        assert str(removed.kept) in removed.line
    (home.plugins / "mine.py").write_text(APPLY, encoding="utf-8")
    assert remove(home, "mine").kept == home.plugins / ".removed" / "mine.py"
    assert len(list((home.plugins / ".removed").iterdir())) == 4
    assert ids(home) == []


@pytest.mark.req("CLI-01", "SEC-03")
@pytest.mark.parametrize("name", ["nothing", "../home", "/etc/passwd", ".removed", "", ".", "a\nb", "mine.py"])
def test_a_name_that_stands_for_nothing_removes_nothing(home: Home, name: str) -> None:
    write_plugin(home.folder(home.plugins), "mine", APPLY)
    with pytest.raises(LinkError) as caught:
        remove(home, name)
    assert "\n" not in str(caught.value)
    assert ids(home) == [("mine", "dropped in")]


@pytest.mark.req("CLI-01")
def test_what_is_broken_can_be_taken_out_too(tmp_path: Path, home: Home) -> None:
    home.folder(home.plugins)
    (home.plugins / "gone").symlink_to(tmp_path / "nothing")
    (home.plugins / "Bad Name").mkdir()
    assert remove(home, "gone").kept == tmp_path / "nothing"
    assert remove(home, "Bad Name").kept == home.plugins / ".removed" / "Bad Name"
    assert discover(home, entry_points=False).faults == ()


@pytest.mark.req("CLI-01", "PLG-08")
def test_two_that_go_by_one_name_are_left_to_the_person(home: Home) -> None:
    write_plugin(home.folder(home.plugins), "my-tool", APPLY)
    (home.plugins / "my_tool.py").write_text(APPLY, encoding="utf-8")
    with pytest.raises(LinkError, match="go by the name 'my-tool': remove one of them by hand"):
        remove(home, "my-tool")


@pytest.mark.req("CLI-01")
def test_two_that_link_at_once_make_one_link(tmp_path: Path, home: Home) -> None:
    folders = [write_plugin(tmp_path / str(number), "same", APPLY) for number in range(8)]
    outcomes: list[str] = []
    start = threading.Barrier(8)

    def work(folder: Path) -> None:
        start.wait()
        try:
            link(home, folder)
            outcomes.append("linked")
        except LinkError:
            outcomes.append("refused")

    threads = [threading.Thread(target=work, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["linked"] + ["refused"] * 7
    assert ids(home) == [("same", "linked")]
