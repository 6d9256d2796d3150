"""Git trees that must not be installed are refused, and nothing that a repository brings along is ever run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from buzz_host.plugins.install import git as git_module
from buzz_host.plugins.install.git import GitError
from buzz_host.plugins.install.installing import install
from buzz_host.plugins.install.listing import ENTRIES_MAX
from buzz_host.plugins.install.requests import requested
from buzz_host.settings import Home
from tests.host.plugins.install.making import SPEAKS, Git, everything, manifest, plugin, put

ARCHIVE = ".tar.gz"

pytestmark = pytest.mark.req("CAT-02", "SEC-03")

Refuse = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "repository")


HOSTILE: dict[str, tuple[Callable[[Git], object], str]] = {
    "parent": (lambda git: git.hostile(("40000", b"..", git.tree([("100644", b"x.py", git.blob(b"x"))]))), "hasDotdot"),
    "parent-file": (lambda git: git.hostile(("100644", b"..", git.blob(b"x"))), "hasDotdot"),
    "slash-in-a-name": (lambda git: git.hostile(("100644", b"../escape.py", git.blob(b"x"))), "fullPathname"),
    "absolute": (lambda git: git.hostile(("100644", b"/tmp/escape.py", git.blob(b"x"))), "fullPathname"),
    "backslash": (lambda git: git.hostile(("100644", b"..\\escape.py", git.blob(b"x"))), "backslash"),
    "dot-git": (
        lambda git: git.hostile(("40000", b".git", git.tree([("100755", b"hooks", git.blob(b"x"))]))), "hasDotgit",
    ),
    "dot-git-of-other-case": (lambda git: git.hostile(("100644", b".GIT", git.blob(b"x"))), "hasDotgit"),
    "link-out": (lambda git: git.hostile(("120000", b"link", git.blob(b"/etc/passwd"))), "is a link that leads out"),
    "link-parent": (lambda git: git.hostile(("120000", b"link", git.blob(b"../../x"))), "is a link that leads out"),
    "link-to-folder": (
        lambda git: git.hostile(
            ("40000", b"a", git.tree([("100644", b"x", git.blob(b"x"))])), ("120000", b"link", git.blob(b"a"))
        ),
        "is a link to a folder",
    ),
    "link-without-end": (
        lambda git: git.hostile(("120000", b"link", git.blob(b"a" * 9000))), "has more than 4 KiB",
    ),
    "submodule": (lambda git: git.hostile(("160000", b"sub", "1" * 40)), "is a git submodule"),
    "mode": (lambda git: git.hostile(("104755", b"run", git.blob(b"x"))), "badFilemode"),
    "device-mode": (lambda git: git.hostile(("60000", b"sda", git.blob(b"x"))), "badFilemode"),
    "case": (lambda git: git.hostile(("100644", b"PLUGIN.py", git.blob(b"x"))), "differ in case"),
    "normal-form": (
        lambda git: git.hostile(
            ("100644", "\u00e9".encode(), git.blob(b"x")), ("100644", "e\u0301".encode(), git.blob(b"y"))
        ),
        "differ in case",
    ),
    "twice": (
        lambda git: git.hostile(("100644", b"plugin.py", git.blob(b"evil"))), "duplicateEntries",
    ),
    "control": (lambda git: git.hostile(("100644", b"a\x1b[31m", git.blob(b"x"))), "invisible character"),
    "bidi": (lambda git: git.hostile(("100644", "a\u202eb".encode(), git.blob(b"x"))), "invisible character"),
    "not-utf-8": (lambda git: git.hostile(("100644", b"n\xe9", git.blob(b"x"))), "is a name that is not UTF-8"),
    "long-name": (lambda git: git.hostile(("100644", b"n" * 300, git.blob(b"x"))), "more than 255 bytes"),
    "lfs-pointer": (
        lambda git: git.hostile(("100644", b"m.bin", git.blob(b"version https://git-lfs.github.com/spec/v1\n"))),
        "is a Git LFS pointer",
    ),
    "lfs-filter": (
        lambda git: git.hostile(("100644", b".gitattributes", git.blob(b"*.bin filter=lfs diff=lfs -text\n"))),
        "passes files through the filter lfs",
    ),
    "encoding": (
        lambda git: git.hostile(("100644", b".gitattributes", git.blob(b"*.py working-tree-encoding=UTF-16\n"))),
        "passes files through the filter UTF-16",
    ),
    "no-commit": (lambda git: None, "has no commit"),
    "bomb": (lambda git: git.hostile(("40000", b"bomb", _bomb(git))), "has more than 20,000 entries"),
    "deep": (lambda git: git.hostile(("40000", b"d", _nested(git, 40))), "is nested more than 32 deep"),
    "large": (lambda git: git.hostile(("100644", b"big", git.blob(bytes(65 * 1024 * 1024)))), "may have 64 MiB"),
}  # fmt: skip


def _bomb(git: Git) -> str:
    """A tree of 10^8 files in nine small objects."""
    tree = git.tree([("100644", b"%d" % number, git.blob(b"x")) for number in range(10)])
    for _ in range(7):
        tree = git.tree([("40000", b"%d" % number, tree) for number in range(10)])
    return tree


def _nested(git: Git, depth: int) -> str:
    tree = git.tree([("100644", b"x", git.blob(b"x"))])
    for _ in range(depth):
        tree = git.tree([("40000", b"d", tree)])
    return tree


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_no_tree_may_hold(kind: str, git: Git, refused: Refuse) -> None:
    make, words = HOSTILE[kind]
    make(git)
    began = time.monotonic()
    assert words in refused(git.path.as_uri())
    assert time.monotonic() - began < 30


def test_a_hostile_neighbour_of_the_chosen_plugin_is_refused_as_well(git: Git, refused: Refuse) -> None:
    good = git.tree([("100644", name.encode(), git.blob(content)) for name, content in sorted(plugin().items())])
    bad = git.tree([("120000", b"link", git.blob(b"/etc/passwd"))])
    git.commit_tree(git.tree([("40000", b"bad", bad), ("40000", b"good", good)]))
    assert "is a link that leads out" in refused(git.path.as_uri(), subdir="good")


def test_what_a_neighbour_may_have_and_a_plugin_may_not(git: Git, home: Home) -> None:
    """A submodule, and a filter, elsewhere in the repository are nobody's business."""
    good = git.tree([("100644", name.encode(), git.blob(content)) for name, content in sorted(plugin().items())])
    other = git.tree([("100644", b".gitattributes", git.blob(b"* filter=lfs\n")), ("160000", b"sub", "1" * 40)])
    git.commit_tree(git.tree([("40000", b"good", good), ("40000", b"other", other)]))
    assert put(home, git.path.as_uri(), subdir="good").row.name == "honest"


def test_nothing_that_a_repository_can_configure_is_run(git: Git, home: Home, tmp_path: Path) -> None:
    """Hooks, filters, a monitor, an upload hook, a lazy fetch: each would leave a file, and none does."""
    git.write({**plugin(), ".gitattributes": b"*.py text\n"})
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung-$$\nexit 1\n", encoding="utf-8")
    trap.chmod(0o755)
    for name in ("post-checkout", "pre-commit", "post-merge", "reference-transaction", "post-index-change"):
        (git.path / ".git" / "hooks").mkdir(exist_ok=True)
        (git.path / ".git" / "hooks" / name).write_bytes(trap.read_bytes())
        (git.path / ".git" / "hooks" / name).chmod(0o755)
    for key in (
        "core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "uploadpack.packObjectsHook",
        "filter.evil.smudge", "filter.evil.clean", "core.alternateRefsCommand", "diff.external", "gpg.program",
    ):  # fmt: skip
        git("config", key, str(trap))
    git("config", "core.hooksPath", str(git.path / ".git" / "hooks"))
    git("config", "extensions.partialClone", "origin")
    git("config", "core.repositoryFormatVersion", "1")
    git("config", "remote.origin.url", str(tmp_path / "nowhere"))
    git("config", "remote.origin.promisor", "true")
    git("config", "remote.origin.uploadpack", str(trap))
    for text in (git.path.as_uri(), f"{git.path}@main"):
        assert put(home, text, agreed=True).row.name == "honest"
    assert not list(tmp_path.glob("sprung-*"))


def test_the_settings_of_the_person_are_not_used(
    git: Git, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git.write(plugin())
    config = tmp_path / "gitconfig"
    config.write_text(f'[url "{tmp_path}/elsewhere/"]\n\tinsteadOf = {git.path.as_uri()}\n', encoding="utf-8")
    person = tmp_path / "person"
    person.mkdir()
    (person / ".gitconfig").write_bytes(config.read_bytes())
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.gitProxy")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "false")
    assert put(home, git.path.as_uri()).row.name == "honest"
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost/x.git", "git://localhost/x.git", "ftp://localhost/x.git", "ext::sh -c 'touch sprung'",
        "git+ext::sh", "fd::3", "https://user:secret@localhost/x.git", "https://token@localhost/x.git",
        "ssh://-oProxyCommand=touch/x", "file:///", "https:///x", "--upload-pack=touch sprung", "-x", "",
        f"https://localhost/x{ARCHIVE}", "https://[::1/x.git", "https://localhost/x?token=secret",
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_repository(text: str, refused: Refuse, tmp_path: Path) -> None:
    line = refused(text)
    assert "secret" not in line or "?" in text
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("revision", ["-x", "main:refs/heads/x", "+main", "a..b", "main^{commit}", "a b", "@{u}", "*"])
def test_what_is_no_revision(revision: str, git: Git, refused: Refuse) -> None:
    git.write(plugin())
    assert "is no name of a branch, tag or commit" in refused(f"{git.path.as_uri()}@{revision}")


def test_branches_tags_and_commits_are_what_they_were_when_they_were_installed(git: Git, home: Home) -> None:
    first = git.write(plugin(version="1"))
    git("tag", "v1")
    second = git.write(plugin(version="2"))
    git("branch", "next/one")
    third = git.write(plugin(version="3"))
    url = git.path.as_uri()
    for revision, commit, version in (
        ("v1", first, "1"), ("next/one", second, "2"), ("", third, "3"), ("main", third, "3"), (first, first, "1"),
        (second[:9], second, "2"),
    ):  # fmt: skip
        row = put(home, f"{url}@{revision}" if revision else url).row
        assert (row.provenance.revision, row.provenance.commit, row.version) == (revision, commit, version)
    git("reset", "--hard", first)
    git("reflog", "expire", "--expire=now", "--all")
    assert put(home, f"{url}@{second}").row.version == "2", "the branch still holds it"


@pytest.mark.parametrize("revision", ["nothing", "v9", "f" * 40, "abcdef12"])
def test_a_revision_that_is_not_there(revision: str, git: Git, refused: Refuse) -> None:
    git.write(plugin())
    assert f"has no branch, tag or commit '{revision}'".replace(", tag or commit", "") in refused(
        f"{git.path.as_uri()}@{revision}"
    ).replace(" or tag", "").replace(", tag or commit", "")


def test_a_repository_that_is_not_there(refused: Refuse, tmp_path: Path) -> None:
    assert "does not appear to be a git repository" in refused((tmp_path / "nowhere").as_uri())


def test_what_git_would_change_on_its_way_out_is_not_changed(git: Git, home: Home) -> None:
    """`export-subst`, `eol` and `ident` change files of a checkout; what is stored is what is installed."""
    code = SPEAKS + b"# $Id$ $Format:%H$\n"
    git.write({"plugin.toml": manifest(), "plugin.py": code, ".gitattributes": b"*.py ident export-subst eol=crlf\n"})
    row = put(home, git.path.as_uri()).row
    assert (row.place(home) / "plugin.py").read_bytes() == code


def test_a_bare_repository_and_a_folder_with_a_repository_in_it(git: Git, home: Home, tmp_path: Path) -> None:
    git.write(plugin(version="1"))
    bare = tmp_path / "bare.git"
    git("clone", "--quiet", "--bare", str(git.path), str(bare))
    assert put(home, bare).row.provenance.kind == "git"
    (git.path / "plugin.toml").write_bytes(manifest(version="2"))
    (git.path / "notes.txt").write_bytes(b"not committed")
    row = put(home, git.path, agreed=True).row
    assert (row.provenance.kind, row.version) == ("folder", "2")
    assert set(row.files) == {"plugin.py", "plugin.toml", "notes.txt"}


def test_a_git_that_hangs_is_ended_with_all_its_children(
    lived_in: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(lived_in.root)
    fake = tmp_path / "bin"
    fake.mkdir()
    for name in ("git", "ssh"):
        (fake / name).write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/child\nwait\n", encoding="utf-8")
        (fake / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:/usr/bin:/bin")
    monkeypatch.setattr(git_module, "GIT_DEADLINE_S", 1.0)
    with pytest.raises(GitError, match="git had not ended after 1 s"):
        put(lived_in, "https://localhost/x.git")
    _is_gone(int((tmp_path / "child").read_text(encoding="ascii")))
    assert everything(lived_in.root) == before
    monkeypatch.setattr(git_module, "GIT_DEADLINE_S", 60.0)
    called_off = threading.Event()
    threading.Timer(0.5, called_off.set).start()
    with pytest.raises(GitError, match="was called off"):
        install(lived_in, requested("https://localhost/x.git", tmp_path), agreed=True, hides={}, called_off=called_off)
    assert everything(lived_in.root) == before


def test_a_machine_without_git_says_so(refused: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    (empty / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(empty))
    assert "git is not here: install it, or install from a folder or an archive" in refused("https://localhost/x.git")


def test_a_repository_that_is_too_large_is_cut_off(git: Git, refused: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    git.write({**plugin(), "noise": random.Random(3).randbytes(3 * 1024 * 1024)})
    monkeypatch.setattr(git_module, "REPOSITORY_MAX_BYTES", 1024 * 1024)
    assert "is larger than 1 MiB" in refused(git.path.as_uri())


def test_entries_are_counted_before_links_are_read(git: Git, refused: Refuse) -> None:
    blob = git.blob(b"plugin.py")
    names = sorted(b"l%d" % number for number in range(ENTRIES_MAX))
    git.hostile(*(("120000", name, blob) for name in names))
    assert "has more than 20,000 entries" in refused(git.path.as_uri())


def _is_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        if state == "Z":  # dead; whoever adopted it has not looked yet
            return
        assert time.monotonic() < deadline, f"{pid} is still there"
        time.sleep(0.02)
