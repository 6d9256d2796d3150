"""The home folder: where it is, that it is its owner's alone, and that nothing is written outside of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from buzz_host.settings import Home, HomeError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.req("OPS-02")
def test_an_argument_comes_before_the_variable_and_the_variable_before_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "account"))
    monkeypatch.setenv("BUZZ_HOME", "")
    assert Home.resolve().root == tmp_path / "account" / ".buzz"
    monkeypatch.setenv("BUZZ_HOME", str(tmp_path / "variable"))
    assert Home.resolve().root == tmp_path / "variable"
    assert Home.resolve(tmp_path / "argument").root == tmp_path / "argument"
    monkeypatch.chdir(tmp_path)
    assert Home.resolve(Path("relative")).root == tmp_path / "relative"
    assert Home.resolve(Path("~/mine")).root == tmp_path / "account" / "mine"


@pytest.mark.req("OPS-02")
def test_the_paths_are_the_ones_that_the_design_names(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    names = ["agents", "skills", "plugins", "store", "data", "harnesses", "logs"]
    assert [getattr(home, name) for name in names] == [tmp_path / name for name in names]
    assert (home.config, home.database, home.head) == (
        tmp_path / "buzz.toml",
        tmp_path / "state.db",
        tmp_path / "ledger.head",
    )


@pytest.mark.req("OPS-02")
def test_folders_are_made_on_first_need_for_their_owner_alone(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path / "above" / "home")
    assert not home.root.exists()
    made = home.folder(home.data / "some-plugin")
    assert made.is_dir()
    assert [mode(path) for path in (home.root, home.data, made)] == [0o700] * 3
    assert home.folder(home.data / "some-plugin") == made


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize("outside", ["../elsewhere", "data/../../elsewhere", "/etc/elsewhere"])
def test_a_path_outside_of_the_home_is_never_made(tmp_path: Path, outside: str) -> None:
    home = Home.resolve(tmp_path / "home")
    with pytest.raises(HomeError, match="outside of the home"):
        home.folder(Path(outside))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.req("OPS-01")
def test_a_home_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("not a folder", encoding="utf-8")
    with pytest.raises(HomeError, match="a folder is needed here") as said:
        Home.resolve(tmp_path / "home")
    assert "\n" not in str(said.value)
    below = Home(tmp_path / "home" / "below")
    with pytest.raises(HomeError, match=r"cannot be used|a folder is needed"):
        below.folder()


@pytest.mark.req("OPS-01")
def test_a_folder_whose_place_a_file_takes_is_one_clear_line(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    home.plugins.write_text("", encoding="utf-8")
    with pytest.raises(HomeError, match="plugins: a folder is needed here"):
        home.folder(home.plugins / "one")
    home.skills.symlink_to(tmp_path / "nowhere")
    with pytest.raises(HomeError, match="skills: a folder is needed here"):
        home.folder(home.skills)


@pytest.mark.req("OPS-01")
def test_a_home_that_may_not_be_written_is_one_clear_line(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path / "home")
    home.folder()
    home.root.chmod(0o500)
    if os.access(home.root, os.W_OK):
        home = Home.resolve(Path("/proc/self/buzz-home"))  # the superuser may write anywhere but here
    with pytest.raises(HomeError) as said:
        home.writable_root()
    assert "\n" not in str(said.value)
    assert "BUZZ_HOME" in str(said.value)


@pytest.mark.req("OPS-02")
def test_a_home_on_a_path_of_200_characters_works(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100) / ("y" * 100)
    assert Home.resolve(long).folder(Path("data")).is_dir()


@pytest.mark.req("OPS-01")
def test_a_home_that_no_program_could_name_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="must be UTF-8"):
        Home.resolve(tmp_path / os.fsdecode(b"home\xff"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("OPS-01")
def test_a_relative_home_in_a_folder_that_is_gone_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(HomeError, match=r"^home: is relative, and the folder .* is gone: give the whole path$"):
        Home.resolve(Path("home"))
    assert Home.resolve(tmp_path / "home").root == tmp_path / "home"
