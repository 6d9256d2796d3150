"""Finding plugins: each source, its order, and a line for everything that is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from buzz_host.plugins import files
from buzz_host.plugins.discovery import discover
from buzz_host.plugins.files import read_folder
from buzz_host.plugins.sources import Discovery, PluginPathError
from buzz_host.settings import Home
from tests.host.plugins.making import write_plugin

APPLY = "def apply(ctx): pass"
EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"


def found(tmp_path: Path, *paths: Path, shipped: Path | None = None) -> Discovery:
    return discover(Home(tmp_path / "home"), paths, shipped=shipped, entry_points=False)


def dropped(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "plugins"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def lines(discovery: Discovery) -> list[str]:
    return [fault.message for fault in discovery.faults]


def ids(discovery: Discovery) -> list[tuple[str, str]]:
    return [(source.id, source.origin) for source in discovery.sources]


@pytest.mark.req("PLG-04")
def test_without_a_home_there_is_nothing_and_nothing_is_made(tmp_path: Path) -> None:
    assert found(tmp_path) == Discovery()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("PLG-04")
def test_folders_files_and_links_in_the_home_are_found(tmp_path: Path) -> None:
    folder = dropped(tmp_path)
    write_plugin(folder, "folder", APPLY, manifest='description = "a folder"\nversion = "3"\n')
    (folder / "single_file.py").write_text(APPLY, encoding="utf-8")
    (folder / "linked").symlink_to(write_plugin(tmp_path / "elsewhere", "linked", APPLY))
    (tmp_path / "loose.py").write_text(APPLY, encoding="utf-8")
    (folder / "loose.py").symlink_to(tmp_path / "loose.py")
    (folder / "README.md").write_text("not a plugin", encoding="utf-8")
    (folder / ".removed").mkdir()
    (folder / "__pycache__").mkdir()
    discovery = found(tmp_path)
    assert ids(discovery) == [
        ("folder", "dropped in"), ("linked", "linked"), ("loose", "linked"), ("single_file", "dropped in"),
    ]  # fmt: skip
    assert discovery.faults == ()
    first, linked, *_ = discovery.sources
    assert (first.description, first.version, first.form) == ("a folder", "3", "folder")
    assert linked.path == (tmp_path / "elsewhere" / "linked").resolve()


@pytest.mark.req("PLG-04")
def test_a_single_file_is_described_by_its_literals_and_never_run(tmp_path: Path) -> None:
    code = '''"""What it does, in one line.

    More.
    """
    import sys
    name: str = "My Notes"
    version = "0.3"
    author = str("computed")
    enabled_by_default = False
    sys.exit("this must not run")
    '''
    file = dropped(tmp_path) / "notes.py"
    file.write_text("\n".join(line.removeprefix("    ") for line in code.split("\n")), encoding="utf-8")
    (source,) = found(tmp_path).sources
    assert (source.id, source.title, source.version, source.author) == ("notes", "My Notes", "0.3", "")
    assert source.description == "What it does, in one line."
    assert source.enabled_by_default is False


@pytest.mark.req("PLG-04")
@pytest.mark.parametrize("content", [b"def (", b"\0", b"\xff\xfe", b"(" * 5000, b"x = 1\n" * 300_000])
def test_a_file_that_cannot_be_described_is_found_all_the_same(tmp_path: Path, content: bytes) -> None:
    (dropped(tmp_path) / "odd.py").write_bytes(content)
    discovery = found(tmp_path)
    assert ids(discovery) == [("odd", "dropped in")]


@pytest.mark.req("PLG-04")
def test_the_first_source_wins_and_a_warning_names_both(tmp_path: Path) -> None:
    given, folder = write_plugin(tmp_path / "given", "my-tool", APPLY), dropped(tmp_path)
    write_plugin(dropped(tmp_path), "my_tool", APPLY)
    write_plugin(tmp_path / "shipped", "my-tool", APPLY)
    write_plugin(tmp_path / "shipped", "other", APPLY)
    discovery = found(tmp_path, given, shipped=tmp_path / "shipped")
    assert ids(discovery) == [("my-tool", "--plugin"), ("other", "shipped")]
    assert discovery.faults == ()
    assert discovery.warnings == (
        f"plugin 'my-tool': {given} (--plugin) comes before {folder}/my_tool (dropped in), which is not used",
        f"plugin 'my-tool': {given} (--plugin) comes before {tmp_path}/shipped/my-tool (shipped), which is not used",
    )


@pytest.mark.req("PLG-04", "PLG-08")
def test_two_of_one_name_in_one_source_are_a_fault_and_neither_is_used(tmp_path: Path) -> None:
    folder = dropped(tmp_path)
    write_plugin(folder, "my-tool", APPLY)
    (folder / "my_tool.py").write_text(APPLY, encoding="utf-8")
    write_plugin(tmp_path / "shipped", "my-tool", APPLY)
    discovery = found(tmp_path, shipped=tmp_path / "shipped")
    assert discovery.sources == ()
    (fault,) = discovery.faults
    assert fault.plugin == "my-tool"
    assert fault.message == (
        f"{folder}/my-tool (dropped in) and {folder}/my_tool.py (dropped in) "
        "have names that differ in '_' and '-' only ('my-tool', 'my_tool'), "
        "so none of them is used: rename or remove one"
    )


@pytest.mark.req("PLG-04")
def test_all_plugin_options_are_one_source(tmp_path: Path) -> None:
    one, two = (write_plugin(tmp_path / place, "same", APPLY) for place in ("one", "two"))
    discovery = found(tmp_path, one, two)
    assert discovery.sources == ()
    assert lines(discovery) == [
        f"{one} (--plugin) and {two} (--plugin) have the same name, so none of them is used: rename or remove one"
    ]
    assert ids(found(tmp_path, one, one, one / "plugin.toml", one / "plugin.py")) == [("same", "--plugin")]


@pytest.mark.req("PLG-04")
def test_a_broken_plugin_keeps_its_name(tmp_path: Path) -> None:
    write_plugin(dropped(tmp_path), "a", APPLY, manifest="api = 7\n")
    write_plugin(tmp_path / "shipped", "a", APPLY)
    discovery = found(tmp_path, shipped=tmp_path / "shipped")
    assert discovery.sources == ()
    assert len(discovery.faults) == len(discovery.warnings) == 1


@pytest.mark.req("PLG-04")
def test_options_name_folders_files_and_what_is_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_plugin(tmp_path, "here", APPLY)
    monkeypatch.chdir(folder)
    assert ids(found(tmp_path, Path())) == [("here", "--plugin")]
    assert ids(found(tmp_path, Path("plugin.py"))) == [("here", "--plugin")]
    assert ids(found(tmp_path, Path("../here"))) == [("here", "--plugin")]


@pytest.mark.req("PLG-04")
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing", "{path}: there is no such file or folder"),
        ("text.md", "{path}: is no plugin: give a folder with a plugin.toml, or a .py file"),
        ("empty", "{path}: is no plugin: it has no plugin.toml"),
        ("typo", "{path}/plugin.tml: a plugin's manifest is called plugin.toml: rename it"),
        ("bad", "{path}/plugin.toml: line 1, column 1: Invalid statement"),
        ("Bad.py", "{path}: plugin name 'Bad' is not allowed"),
    ],
)
def test_an_option_that_names_no_plugin_is_the_persons_error(tmp_path: Path, path: str, message: str) -> None:
    for name in ("empty", "typo", "bad"):
        (tmp_path / name).mkdir()
    (tmp_path / "typo" / "plugin.tml").write_text("", encoding="utf-8")
    (tmp_path / "bad" / "plugin.toml").write_text("=", encoding="utf-8")
    (tmp_path / "bad" / "plugin.py").write_text(APPLY, encoding="utf-8")
    (tmp_path / "text.md").write_text("", encoding="utf-8")
    (tmp_path / "Bad.py").write_text(APPLY, encoding="utf-8")
    with pytest.raises(PluginPathError) as caught:
        found(tmp_path, tmp_path / path)
    assert str(caught.value).startswith(message.replace("{path}", str(tmp_path / path)))
    assert "\n" not in str(caught.value)


@pytest.mark.req("PLG-04")
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "{path}: is no plugin: it has no plugin.toml"),
        ({"Plugin.toml": ""}, "{path}/Plugin.toml: a plugin's manifest is called plugin.toml: rename it"),
        ({"plugin.toml.txt": ""}, "{path}/plugin.toml.txt: a plugin's manifest is called plugin.toml: rename it"),
        ({"plugin.py": ""}, '{path}: has plugin.py but no plugin.toml: add one with api = 1 and name = "p"'),
        ({"plugin.toml": 'name = "p"'}, "{path}: has no plugin.py: put `def apply(ctx): ...` into one"),
        (
            {"plugin.toml": 'name = "p"', "plugins.py": ""},
            "{path}/plugins.py: the code of a plugin is called plugin.py",
        ),
        (
            {"plugin.toml": 'name = "p"\n[hooks]\ningest = "x.py"'},
            "{path}: has hooks but no plugin.py, and this version of Buzz runs no hooks",
        ),
    ],
)
def test_a_folder_that_is_nearly_a_plugin_is_told_what_is_missing(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    folder = dropped(tmp_path) / "p"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    discovery = found(tmp_path)
    assert discovery.sources == ()
    (fault,) = discovery.faults
    assert fault.plugin == "p"
    assert fault.message.startswith(message.replace("{path}", str(folder)))


@pytest.mark.req("PLG-04")
def test_hooks_beside_code_are_a_warning(tmp_path: Path) -> None:
    write_plugin(dropped(tmp_path), "p", APPLY, manifest='[hooks]\ningest = "x.py"\n')
    discovery = found(tmp_path)
    assert ids(discovery) == [("p", "dropped in")]
    assert "hooks: this version of Buzz runs no hooks" in discovery.warnings[0]


@pytest.mark.req("PLG-08", "SEC-03")
@pytest.mark.parametrize("name", ['a"b', "a b", "a\nb", "é", "_a", "..a", "bus", "<system-reminder>", "a\x1b[31m"])
def test_names_on_disk_that_are_not_allowed_are_one_printable_line(tmp_path: Path, name: str) -> None:
    folder = dropped(tmp_path)
    write_plugin(folder, name, APPLY)
    (folder / f"{name}.py").write_text(APPLY, encoding="utf-8")
    discovery = found(tmp_path)
    assert discovery.sources == ()
    for fault in discovery.faults:
        assert fault.plugin.isprintable()
        assert fault.message.isprintable()


@pytest.mark.req("PLG-04")
def test_a_name_that_is_no_utf8_is_a_line_too(tmp_path: Path) -> None:
    (dropped(tmp_path) / os.fsdecode(b"\xff")).mkdir()
    (dropped(tmp_path) / os.fsdecode(b"\xfe.py")).touch()
    discovery = found(tmp_path)
    assert discovery.sources == ()
    assert len(discovery.faults) == 2
    for fault in discovery.faults:
        fault.message.encode("utf-8")
        fault.plugin.encode("utf-8")


@pytest.mark.req("PLG-04")
def test_a_link_that_leads_nowhere_is_a_line(tmp_path: Path) -> None:
    (dropped(tmp_path) / "gone").symlink_to(tmp_path / "nothing")
    (dropped(tmp_path) / "loop").symlink_to(dropped(tmp_path) / "loop")
    faults = {fault.plugin: fault.message for fault in found(tmp_path).faults}
    assert faults["gone"].endswith(
        f"is a link to {tmp_path}/nothing, where nothing is: buzz plugin remove takes it away"
    )
    assert "loop" in faults


@pytest.mark.req("PLG-04")
def test_a_folder_of_plugins_that_is_a_file_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "plugins").write_text("", encoding="utf-8")
    (fault,) = found(tmp_path).faults
    assert "cannot be read" in fault.message


@pytest.mark.req("PLG-04", "SEC-03")
def test_what_a_folder_may_not_contain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = dropped(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("x", encoding="utf-8")
    write_plugin(folder, "out", APPLY)
    (folder / "out" / "link").symlink_to(secret)
    write_plugin(folder, "pipe", APPLY)
    os.mkfifo(folder / "pipe" / "fifo")
    write_plugin(folder, "broken", APPLY)
    (folder / "broken" / "link").symlink_to("nowhere")
    write_plugin(folder, "circle", APPLY)
    (folder / "circle" / "link").symlink_to(".")
    write_plugin(folder, "many", APPLY, x__txt="", y__txt="", z__txt="")
    write_plugin(folder, "large", APPLY, x__txt="x" * 3000)
    deep = write_plugin(folder, "deep", APPLY).joinpath(*("d" * 40))
    deep.mkdir(parents=True)
    write_plugin(folder, "fine", APPLY, real__txt="x")
    (folder / "fine" / "inner.txt").symlink_to("real.txt")
    monkeypatch.setattr(files, "FILES_MAX", 4)
    monkeypatch.setattr(files, "TOTAL_MAX_BYTES", 2000)
    discovery = found(tmp_path)
    assert ids(discovery) == [("fine", "dropped in")]
    assert {fault.plugin: fault.message.partition(": ")[2] for fault in discovery.faults} == {
        "out": "this link leads out of the plugin's folder: copy the file into it instead",
        "pipe": "neither file nor folder",
        "broken": "this link leads nowhere",
        "circle": "this link leads back to a folder that it is in",
        "many": "a plugin may have 4 files at most: move the rest elsewhere",
        "large": "a plugin may have 0 MiB at most",
        "deep": "the folders of a plugin are nested 32 deep at most",
    }


@pytest.mark.req("PLG-04")
def test_the_hash_is_over_paths_and_bytes_of_all_content_and_nothing_else(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path, "a", APPLY, style__md="x")
    seen = {read_folder(folder).content_hash}
    for noise in ("__pycache__/plugin.pyc", ".git/HEAD", "plugin.pyc", ".plugin.py.swp", "plugin.py~"):
        (folder / noise).parent.mkdir(exist_ok=True)
        (folder / noise).write_text("noise", encoding="utf-8")
    os.utime(folder / "plugin.py", (1, 1))
    (folder / "plugin.py").chmod(0o700)
    assert {read_folder(folder).content_hash} == seen
    for change in ("style.md", "plugin.py", "plugin.toml", ".hidden", "sub/file", "sub/f", "sub2/ile"):
        (folder / change).parent.mkdir(exist_ok=True)
        (folder / change).write_text("changed", encoding="utf-8")
        seen.add(read_folder(folder).content_hash)
    (folder / "style.md").rename(folder / "style2.md")
    seen.add(read_folder(folder).content_hash)
    assert len(seen) == 9
    copy = tmp_path / "elsewhere"
    folder.rename(copy)
    assert read_folder(copy).content_hash in seen


@pytest.mark.req("PLG-04")
def test_a_plugin_that_disappears_while_it_is_read_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_plugin(dropped(tmp_path), "a", APPLY, z__txt="")
    read = files._read

    def read_and_lose(path: Path, most_bytes: int) -> bytes:
        (folder / "z.txt").unlink(missing_ok=True)
        return read(path, most_bytes)

    monkeypatch.setattr(files, "_read", read_and_lose)
    assert lines(found(tmp_path)) == [f"{folder}/z.txt: disappeared while it was read"]


@pytest.mark.req("PLG-04")
def test_finding_runs_nothing(tmp_path: Path) -> None:
    (dropped(tmp_path) / "a.py").write_text("raise SystemExit", encoding="utf-8")
    write_plugin(dropped(tmp_path), "b", "raise SystemExit")
    before = set(sys.modules)
    assert len(found(tmp_path).sources) == 2
    assert not [name for name in set(sys.modules) - before if "buzz_plugins" in name]


@pytest.mark.req("PLG-04")
def test_the_examples_of_the_documentation_are_plugins() -> None:
    paths = sorted(path for path in EXAMPLES.iterdir() if path.is_dir())
    discovery = discover(Home(Path("/nowhere")), paths, entry_points=False)
    assert len(discovery.sources) == len(paths) == 3
    assert (discovery.faults, discovery.warnings) == ((), ())
