"""Which plugin is meant, what is no plugin and why, and what a plugin may not say of itself."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.errors import BuzzError
from buzz_host.plugins.discovery import discover
from buzz_host.plugins.install.checking import CarriesNothing
from buzz_host.plugins.install.installing import InTheWay, Question, install
from buzz_host.plugins.install.listing import Listing, Refused
from buzz_host.plugins.install.lockfile import Provenance
from buzz_host.plugins.install.requests import SourceError, requested
from buzz_host.plugins.linking import link
from buzz_host.settings import Home
from tests.host.plugins.install.making import (
    SPEAKS,
    Git,
    asked,
    everything,
    folder,
    manifest,
    members,
    plugin,
    put,
    tar,
    zipped,
)

pytestmark = pytest.mark.req("CAT-01", "CAT-02")

Refuse = Callable[..., str]
Make = Callable[[Path, Mapping[str, bytes]], Path]


def _git(path: Path, files: Mapping[str, bytes]) -> Path:
    git = Git(path / "repository")
    git.write(files)
    bare = path / "repository.git"
    git("clone", "--quiet", "--bare", str(git.path), str(bare))
    return bare


# The same files in each form that a plugin is installed from.
FORMS: dict[str, Make] = {
    "folder": lambda path, files: folder(path, "source", files),
    "tar.gz": lambda path, files: tar(path / "source.tar.gz", members(files)),
    "tgz": lambda path, files: tar(path / "source.tgz", members(files)),
    "tar": lambda path, files: tar(path / "source.tar", members(files), mode="w:"),
    "zip": lambda path, files: zipped(path / "source.zip", members(files)),
    "git": _git,
}
every_form = pytest.mark.parametrize("make", FORMS.values(), ids=FORMS)


def below(name: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{name}/{each}": content for each, content in files.items()}


@every_form
def test_a_plugin_is_installed_from_each_form_and_found_with_its_origin(make: Make, home: Home, tmp_path: Path) -> None:
    files = {**plugin(), "more/data.bin": bytes(range(256)), "empty": b""}
    placed = put(home, make(tmp_path, files))
    assert placed.status == "installed"
    (source,) = discover(home, entry_points=False).sources
    assert (source.id, source.origin, source.version) == ("honest", "installed", "1.0.0")
    assert source.installation is not None
    assert source.content_hash == placed.row.content_hash
    assert source.path == home.store / placed.row.content_hash
    assert placed.row.files == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    for name, content in files.items():
        assert (source.path / name).read_bytes() == content
        assert (source.path / name).stat().st_mode & 0o777 == 0o444
    assert source.path.stat().st_mode & 0o777 == 0o555
    assert home.lock.stat().st_mode & 0o777 == 0o600


@every_form
def test_the_content_is_the_same_whatever_it_came_in(make: Make, home: Home, tmp_path: Path) -> None:
    before = put(home, folder(tmp_path, "first", plugin())).row.content_hash
    assert put(home, make(tmp_path, plugin()), agreed=True).status == "unchanged"
    assert home.store.joinpath(before).is_dir()


@every_form
def test_the_only_plugin_is_found_where_it_stands(make: Make, home: Home, tmp_path: Path) -> None:
    place = make(tmp_path, {**below("wrapped-1.0/src/it", plugin()), "wrapped-1.0/README.md": b"read me"})
    row = put(home, place).row
    assert set(row.files) == set(plugin())
    assert row.provenance.subdir == "", "next time it may be in another folder"


@every_form
def test_several_are_named_and_one_is_chosen(make: Make, home: Home, tmp_path: Path) -> None:
    files = {**below("top/one", plugin("one")), **below("top/two", plugin("two")), "top/single.py": SPEAKS}
    place = make(tmp_path, files)
    with pytest.raises(SourceError) as caught:
        put(home, place)
    assert "holds 2 plugins: choose one with --subdir: top/one, top/two" in str(caught.value)
    for subdir, name in (("two", "two"), ("top/one", "one"), ("./top//two/", "two"), ("single.py", "single")):
        row = put(home, place, subdir=subdir, agreed=True).row
        assert row.name == name
    with pytest.raises(SourceError, match="has no folder three"):
        put(home, place, subdir="three")
    for outside in ("../top/one", "/top/one", "top/../../x"):
        with pytest.raises(SourceError):
            put(home, place, subdir=outside)


def test_a_plugin_in_a_plugin_is_part_of_it(home: Home, tmp_path: Path) -> None:
    row = put(home, folder(tmp_path, "a", {**plugin(), **below("examples/inner", plugin("inner"))})).row
    assert row.name == "honest"
    assert "examples/inner/plugin.py" in row.files


def test_a_single_file(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "single.py"
    path.write_bytes(b'"""Says hello."""\nversion = "3"\n' + SPEAKS)
    row = put(home, path).row
    assert (row.form, row.version, dict(row.files)) == (
        "file", "3", {"single.py": hashlib.sha256(path.read_bytes()).hexdigest()},
    )  # fmt: skip
    (source,) = discover(home, entry_points=False).sources
    assert (source.form, source.path) == ("file", home.store / row.content_hash / "single.py")


@every_form
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"plugin.tml": manifest(), "plugin.py": SPEAKS}, "plugin.tml: a plugin's manifest is called plugin.toml"),
        ({"a/Plugin.TOML": manifest(), "a/plugin.py": SPEAKS}, "Plugin.TOML: a plugin's manifest is called"),
        ({"plugin.py": SPEAKS}, "has plugin.py but no plugin.toml"),
        ({"plugin.toml": manifest(), "plugn.py": SPEAKS}, "plugn.py: the code of a plugin is called plugin.py"),
        ({"README.md": b"hello"}, "is no plugin: it has no plugin.toml"),
        ({"plugin.toml": b"name = ", "plugin.py": SPEAKS}, "plugin.toml: line 1"),
        ({"plugin.toml": b"api = 1\n", "plugin.py": SPEAKS}, "plugin.toml: name: expected a text, found nothing"),
        ({"plugin.toml": b"name = 5\n", "plugin.py": SPEAKS}, "name: expected a text, found the number 5"),
        ({"plugin.toml": manifest("Not A Name"), "plugin.py": SPEAKS}, "plugin name 'Not A Name' is not allowed"),
        ({"plugin.toml": manifest("../evil"), "plugin.py": SPEAKS}, "plugin name '../evil' is not allowed"),
        ({"plugin.toml": manifest("a\\u202eb"), "plugin.py": SPEAKS}, "is not allowed"),
        ({"plugin.toml": manifest("bus"), "plugin.py": SPEAKS}, "is reserved by Buzz"),
        (plugin(more="api = 2\n".replace("api", "x.api")), ""),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value)[:30],
)  # fmt: skip
def test_what_is_no_plugin_says_why(
    make: Make, files: dict[str, bytes], words: str, home: Home, tmp_path: Path
) -> None:
    if not words:
        assert put(home, make(tmp_path, files)).checked.warnings, "an unknown key is a warning"
        return
    with pytest.raises(BuzzError) as caught:
        put(home, make(tmp_path, files))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not home.root.exists()


@pytest.mark.parametrize(
    "text",
    ["a\u202eb", "a\U000e0041b", "x\u200b\u200cy", "x\u200by", "a\\u001b[31m", "\ufeffx", "a\u2066b", "x\u0085y"],
)
@pytest.mark.parametrize("key", ["description", "author", "version", "i18n.de.description", "config.a.description"])
def test_a_plugin_says_nothing_that_cannot_be_seen(key: str, text: str, refused: Refuse, tmp_path: Path) -> None:
    files = {"plugin.toml": f'api = 1\nname = "honest"\n{key} = "{text}"\n'.encode(), "plugin.py": SPEAKS}
    assert "has an invisible character (U+" in refused(folder(tmp_path, "source", files))


@pytest.mark.parametrize("text", ["👩‍👩‍👧 family", "🏴󠁧󠁢󠁥󠁮󠁧󠁿 flag", "می‌خواهم", "naïve café", "日本語 🇩🇪", "zwj क्‍ष"])
def test_what_is_written_with_joiners_and_flags_is_seen(text: str, home: Home, tmp_path: Path) -> None:
    files = {"plugin.toml": manifest(more=f'description = "{text}"\n'), "plugin.py": SPEAKS}
    assert put(home, folder(tmp_path, "source", files)).checked.source.description == text


def test_the_integrity_of_a_manifest_is_believed_only_if_it_holds(refused: Refuse, home: Home, tmp_path: Path) -> None:
    digest = hashlib.sha256(SPEAKS).hexdigest()
    wrong = plugin(more=f'[integrity]\n"plugin.py" = "{"0" * 64}"\n')
    assert "is not the file that the [integrity]" in refused(folder(tmp_path, "wrong", wrong))
    gone = plugin(more=f'[integrity]\n"other.py" = "{digest}"\n')
    assert "names other.py, and there is no such file" in refused(folder(tmp_path, "gone", gone))
    right = plugin(more=f'[integrity]\n"plugin.py" = "{digest}"\n')
    assert put(home, folder(tmp_path, "right", right)).status == "installed"


def test_what_is_not_carried_yet_is_said(home: Home, tmp_path: Path) -> None:
    more = (
        'needs = ["network"]\nisolation = "host"\n[hooks]\ningest = "hooks/in.py"\n[env]\nA = "b"\n'
        '[grants]\nnet = true\n[[requires]]\nbinary = "ffmpeg"\n'
    )
    files = {
        **plugin(more=more), "requirements.txt": b"# none\nrequests>=2\n", "skills/a/SKILL.md": b"x",
        "mcp.json": b"{}", "hooks/in.py": b"",
    }  # fmt: skip
    said = {each.what: each.detail for each in put(home, folder(tmp_path, "a", files)).checked.not_carried}
    assert set(said) == {"hooks", "requires", "env", "grants", "needs", "requirements.txt", "skills", "tools"}
    assert said["requires"].startswith("ffmpeg")
    assert "ingest" in said["hooks"]
    clean = put(home, folder(tmp_path, "b", {**plugin("b"), "requirements.txt": b"# none\n\n"})).checked
    assert clean.not_carried == ()


@pytest.mark.parametrize("what", ["hooks", "process"])
def test_a_plugin_of_which_nothing_can_be_carried_is_not_installed(what: str, home: Home, tmp_path: Path) -> None:
    files = {"plugin.toml": manifest(more='[hooks]\ningest = "hooks/in.py"\n'), "hooks/in.py": b""}
    if what == "process":
        files = plugin(more='isolation = "process"\n')
    with pytest.raises(CarriesNothing) as caught:
        put(home, folder(tmp_path, "a", files))
    assert caught.value.plugin == "honest"
    assert caught.value.not_carried
    assert not home.root.exists()


def test_what_stands_in_the_way_is_named(home: Home, tmp_path: Path) -> None:
    mine = folder(tmp_path / "mine", "my-tool", plugin("my-tool"))
    link(home, mine)
    with pytest.raises(InTheWay, match="take it out first with: buzz plugin remove my_tool"):
        put(home, folder(tmp_path, "a", plugin("my_tool")))
    put(home, folder(tmp_path, "b", plugin("other_one")))
    before = everything(home.root)
    with pytest.raises(InTheWay, match="differs from it in '_' and '-' only"):
        put(home, folder(tmp_path, "c", plugin("other-one")), agreed=True)
    assert everything(home.root) == before


def test_another_source_and_another_plugins_place_are_asked_about(home: Home, tmp_path: Path) -> None:
    put(home, folder(tmp_path, "a", plugin()))
    before = everything(home.root)
    question = asked(home, folder(tmp_path, "b", plugin(version="2")))
    assert isinstance(question, Question)
    assert str(tmp_path / "a") in question.text
    assert str(tmp_path / "b") in question.text
    assert everything(home.root) == before
    assert put(home, tmp_path / "b", agreed=True).status == "upgraded"
    hiding = install(
        home, requested(str(folder(tmp_path, "c", plugin("claude"))), tmp_path), agreed=False,
        hides={"claude": "harnesses.claude (entry point)"}, called_off=threading.Event(),
    )  # fmt: skip
    assert isinstance(hiding, Question)
    assert hiding.text == "plugin 'claude' takes the place of harnesses.claude (entry point): install it?"


def test_a_folder_on_the_disk_is_judged_as_an_archive_is(refused: Refuse, tmp_path: Path) -> None:
    good = plugin()
    os.mkfifo(folder(tmp_path, "pipe", good) / "pipe")
    assert "neither file nor folder" in refused(tmp_path / "pipe")
    (folder(tmp_path, "link", good) / "out").symlink_to("/etc/passwd")
    assert "leads out of the plugin's folder" in refused(tmp_path / "link")
    (folder(tmp_path, "folder-link", good) / "out").symlink_to(tmp_path)
    assert "leads out of the plugin's folder" in refused(tmp_path / "folder-link")
    (folder(tmp_path, "set-id", {**good, "run": b"x"}) / "run").chmod(0o4755)
    assert "set-user-id" in refused(tmp_path / "set-id")
    (tmp_path / "single.py").write_bytes(SPEAKS)
    (tmp_path / "single.py").chmod(0o4755)
    assert "set-user-id" in refused(tmp_path / "single.py")
    (folder(tmp_path, "bytes", good) / os.fsdecode(b"n\xe9")).write_bytes(b"")
    assert "is a name that is not UTF-8" in refused(tmp_path / "bytes")
    folder(tmp_path, "case", {**good, "a.py": b"", "A.py": b""})
    assert "differ in case" in refused(tmp_path / "case")
    folder(tmp_path, "deep", {**good, "/".join(["d"] * 33 + ["x"]): b""})
    assert "more than 32 deep" in refused(tmp_path / "deep")
    with (folder(tmp_path, "huge", good) / "big").open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    assert "64 MiB at most" in refused(tmp_path / "huge")
    assert "neither file nor folder" in refused("/dev/null")
    (tmp_path / "notes.txt").write_bytes(b"x")
    assert "is no plugin: give a folder, a .py file, or an archive" in refused(tmp_path / "notes.txt")


HERE = Path("/here")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://h/p/repo.git", Provenance("git", "https://h/p/repo.git")),
        ("https://h/p/repo.git@v1", Provenance("git", "https://h/p/repo.git", "v1")),
        ("HTTPS://h/p/repo@feature/x#sub/dir", Provenance("git", "https://h/p/repo", "feature/x", subdir="sub/dir")),
        ("git+https://h/p/r.git@v1#subdirectory=a", Provenance("git", "https://h/p/r.git", "v1", subdir="a")),
        ("ssh://git@h:22/p/repo@v1", Provenance("git", "ssh://git@h:22/p/repo", "v1")),
        ("git@h.org:p/repo.git", Provenance("git", "git@h.org:p/repo.git")),
        ("git@h.org:p/repo.git@v1#a", Provenance("git", "git@h.org:p/repo.git", "v1", subdir="a")),
        ("https://h/@scope/repo", Provenance("git", "https://h/@scope/repo")),
        ("https://h/@scope/repo@v1", Provenance("git", "https://h/@scope/repo", "v1")),
        ("file:///srv/repo", Provenance("git", "file:///srv/repo")),
    ],
)
def test_a_repository_is_taken_apart(text: str, expected: Provenance) -> None:
    found = requested(text, HERE)
    assert found == expected
    assert requested(str(found), HERE) == found, "what is shown can be typed again"


def test_a_path_is_what_is_there_before_it_is_anything_else(home: Home, tmp_path: Path) -> None:
    odd = folder(tmp_path, "a@b#c", plugin())
    assert requested("a@b#c", tmp_path) == Provenance("folder", str(odd))
    git = Git(tmp_path / "repo")
    git.write(below("sub", plugin()))
    assert requested("repo@main#sub", tmp_path) == Provenance("git", git.path.as_uri(), "main", subdir="sub")
    assert requested("./repo/../repo", tmp_path, "sub") == Provenance("folder", str(git.path), subdir="sub")
    assert requested("repo#sub", tmp_path, "sub").subdir == "sub"
    with pytest.raises(SourceError, match="give one of them"):
        requested("repo#sub", tmp_path, "other")


names = st.text(st.sampled_from("abAB./\\~:\u0301é\u202e\x00ß "), min_size=1, max_size=12)


@pytest.mark.req("SEC-03")
@given(st.lists(names, max_size=12))
def test_no_name_that_passes_leads_out_or_meets_another(given_names: list[str]) -> None:
    listing = Listing("x")
    with suppress(Refused):
        for name in given_names:
            listing.add(name, "file")
        listing.close()
        _must_be_apart(listing)


def _must_be_apart(listing: Listing) -> None:
    root = Path("/somewhere/of/it")
    paths = [Path(os.path.normpath(root / path)) for path in listing.entries]
    assert all(path.is_relative_to(root) and path != root for path in paths)
    assert len({str(path).casefold() for path in paths}) == len(paths)
    assert not any(path in other.parents for path in paths for other in paths)
