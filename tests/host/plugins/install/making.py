"""Archives and repositories for these tests, honest and hostile, and a home whose every byte can be compared."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path

import attrs

from buzz_host.plugins.install.installing import Placed, Question, install
from buzz_host.plugins.install.requests import requested
from buzz_host.settings import Home

SPEAKS = b"""
inject = ("agents",)


def apply(ctx):
    ctx.agents.addInstructions(id="main", text="hello")
"""


def manifest(name: str = "honest", version: str = "1.0.0", more: str = "") -> bytes:
    return f'api = 1\nname = "{name}"\nversion = "{version}"\n{more}'.encode()


def plugin(name: str = "honest", version: str = "1.0.0", more: str = "") -> dict[str, bytes]:
    """The files of a plugin that works."""
    return {"plugin.toml": manifest(name, version, more), "plugin.py": SPEAKS}


@attrs.frozen
class Member:
    """One member of an archive that is to be made; `type` is a type of `tarfile`, in a zip its counterpart."""

    name: str
    content: bytes = b""
    type: bytes = tarfile.REGTYPE
    target: str = ""
    mode: int = 0o644


def members(files: Mapping[str, bytes]) -> list[Member]:
    return [Member(name, content) for name, content in files.items()]


def tar(path: Path, content: list[Member], *, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:  # type: ignore[call-overload]
        for each in content:
            info = tarfile.TarInfo(each.name)
            info.type, info.linkname, info.mode = each.type, each.target, each.mode
            info.size = len(each.content) if each.type == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(each.content))
    return path


_ZIP_KINDS = {
    tarfile.REGTYPE: stat.S_IFREG, tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK,
    tarfile.FIFOTYPE: stat.S_IFIFO, tarfile.CHRTYPE: stat.S_IFCHR,
}  # fmt: skip


def zipped(path: Path, content: list[Member], *, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for each in content:
            info = zipfile.ZipInfo("x")
            info.filename = each.name
            info.create_system = 3
            info.external_attr = (_ZIP_KINDS[each.type] | each.mode) << 16
            info.compress_type = compression
            archive.writestr(info, each.target.encode() if each.type == tarfile.SYMTYPE else each.content)
    return path


class Git:
    """A repository that is made for a test, by hand where git itself would refuse."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self("init", "--quiet", "--initial-branch=main")

    def __call__(self, *arguments: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            ["git", "-C", str(self.path), *arguments],
            input=stdin,
            capture_output=True,
            check=True,
            env={
                "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
                "GIT_COMMITTER_EMAIL": "a@b", "GIT_ALLOW_PROTOCOL": "file",
            },
        )  # fmt: skip
        return done.stdout.decode("utf-8", "replace").strip()

    def write(self, files: Mapping[str, bytes], message: str = "a change") -> str:
        """Commit exactly these files on top of what is there; the commit."""
        for name, content in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self("add", "--all", "--force")
        self("commit", "--quiet", "--allow-empty", "-m", message)
        return self("rev-parse", "HEAD")

    def blob(self, content: bytes) -> str:
        return self("hash-object", "-w", "--stdin", stdin=content)

    def tree(self, entries: list[tuple[str, bytes, str]]) -> str:
        """A tree object of (mode, name, object) as they stand, sorted or not."""
        raw = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(sha) for mode, name, sha in entries)
        return self("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=raw)

    def commit_tree(self, tree: str) -> str:
        commit = self("commit-tree", tree, "-m", "made by hand")
        self("update-ref", "refs/heads/main", commit)
        return commit

    def hostile(self, *entries: tuple[str, bytes, str]) -> str:
        """A commit with a plugin that works, and these entries beside it."""
        good = [("100644", name.encode(), self.blob(content)) for name, content in plugin().items()]
        return self.commit_tree(self.tree(sorted([*good, *entries], key=lambda each: each[1])))


def put(home: Home, text: str | Path, here: Path = Path("/"), *, subdir: str = "", agreed: bool = False) -> Placed:
    """Install, and be sure that nothing was asked."""
    outcome = asked(home, text, here, subdir=subdir, agreed=agreed)
    assert isinstance(outcome, Placed), outcome
    return outcome


def asked(
    home: Home, text: str | Path, here: Path = Path("/"), *, subdir: str = "", agreed: bool = False
) -> Placed | Question:
    return install(home, requested(str(text), here, subdir), agreed=agreed, hides={}, called_off=threading.Event())


def folder(parent: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """The files below `parent/name`."""
    for each, content in files.items():
        path = parent / name / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return parent / name


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    """Each path below `root`, with its mode and its bytes, or where it leads."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
        else:
            content = b""
        found[str(path.relative_to(root))] = (status.st_mode, content)
    return found
