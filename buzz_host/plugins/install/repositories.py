"""Git repositories, fetched bare and read object by object: nothing is ever checked out (CAT-02).

So no hook, filter, submodule, attribute or link of a repository can do anything: its tree is listed, judged, and the
bytes of the files are taken as they are stored.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import attrs

from buzz_host.plugins.install.git import Git, GitError
from buzz_host.plugins.install.listing import ENTRIES_MAX, Entry, EntryKind, Listing, Refused

_TARGET_MAX_BYTES: Final = 4096
_ATTRIBUTES_MAX_BYTES: Final = 256 * 1024
_REVISION: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}", re.ASCII)
_COMMIT: Final = re.compile(r"[0-9a-f]{4,40}", re.ASCII)
_KINDS: Final[Mapping[str, EntryKind]] = {
    "100644": "file", "100755": "file", "100664": "file", "120000": "link", "160000": "submodule",
}  # fmt: skip
# An attribute that makes a working tree differ from what is stored.
_FILTERING: Final = re.compile(rb"^[^#\n]*\s(?:filter|working-tree-encoding)=(\S+)", re.MULTILINE)


def check_revision(revision: str) -> str:
    """`revision` itself, if it may name a branch, a tag or a commit. Raises `GitError`."""
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise GitError(f"{ascii(revision)[1:-1]}: is no name of a branch, tag or commit")
    return revision


@attrs.frozen
class _Row:
    path: str
    kind: EntryKind
    sha: str
    size: int


class Repository:
    """The tree of one commit of the repository at `url`: its listing, and the bytes of its files.

    `revision` is a branch, a tag or a commit (empty: what the repository has checked out); `folder` an empty folder
    for what is fetched. Raises `GitError`, or `Refused` for what is in it.
    """

    def __init__(self, url: str, revision: str, folder: Path, called_off: threading.Event) -> None:
        self._git = Git(folder, url, called_off)
        self.commit = self._fetched(url, revision)
        self.label = f"{url.rstrip('/').rpartition('/')[2]}@{self.commit[:12]}"
        self._sha: dict[str, str] = {}
        self.listing = Listing(self.label)
        self._list()
        self.listing.close()

    def read(self, wanted: Mapping[str, Entry]) -> dict[str, bytes]:
        """The bytes of each of the entries, by the names that `wanted` gives them. Raises `Refused` where an attribute
        says that what is stored is not what is meant."""
        paths = {entry.path for entry in wanted.values()}
        self._must_have_no_filter(paths)
        contents = self._blobs(sorted(paths), None)
        return {name: contents[entry.path] for name, entry in wanted.items()}

    def _must_have_no_filter(self, paths: set[str]) -> None:
        folders = {path.rpartition("/")[0] for path in paths}
        above = {"/".join(each.split("/")[:depth]) for each in folders for depth in range(each.count("/") + 2)}
        attributes = [f"{each}/.gitattributes".removeprefix("/") for each in sorted(above)]
        there = [each for each in attributes if each in self._sha]
        for path, content in self._blobs(there, _ATTRIBUTES_MAX_BYTES).items():
            if match := _FILTERING.search(content):
                raise Refused(
                    f"{self.label}: {path}: passes files through the filter {match[1].decode('utf-8', 'replace')}, and "
                    "Buzz runs no filter of a repository (Git LFS is one)"
                )

    def _fetched(self, url: str, revision: str) -> str:
        """Fetch what `revision` names, with as little history as the other side allows; its commit."""
        fetch = ("fetch", "--quiet", "--no-tags", "--no-auto-gc")
        try:
            self._git.run(*fetch, "--depth=1", "--end-of-options", url, revision or "HEAD")
            return self._git.run("rev-parse", "--verify", "FETCH_HEAD^{commit}").strip()
        except GitError as error:
            if not _COMMIT.fullmatch(revision):
                if "remote ref" in str(error):
                    what = f"has no branch or tag '{revision}'" if revision else "has no commit"
                    raise GitError(f"{url}: {what}") from None
                raise
        # A commit by its number: not every server hands out one that nothing points to, so take all, and look.
        self._git.run(*fetch, "--end-of-options", url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        try:
            return self._git.run("rev-parse", "--verify", f"{revision}^{{commit}}").strip()
        except GitError:
            raise GitError(f"{url}: has no branch, tag or commit '{revision}'") from None

    def _list(self) -> None:
        rows = list(self._rows())
        self._sha = {row.path: row.sha for row in rows}
        links = [row for row in rows if row.kind == "link"]
        targets = self._blobs([row.path for row in links], _TARGET_MAX_BYTES)
        for row in rows:
            target = os.fsdecode(targets[row.path]) if row.kind == "link" else ""
            self.listing.add(row.path, row.kind, size=row.size, target=target)

    def _rows(self) -> Iterator[_Row]:
        count = 0
        pending = b""
        command = ("ls-tree", "-r", "-z", "-l", "--full-tree", self.commit)
        # Taken as it comes: a small tree that names itself again and again has a listing without end.
        with closing(self._git.stream(*command)) as stream:
            for chunk in stream:
                *records, pending = (pending + chunk).split(b"\0")
                for record in records:
                    count += 1
                    if count > ENTRIES_MAX:
                        raise Refused(f"{self.label}: has more than {ENTRIES_MAX:,} entries")
                    yield self._row(record)

    def _row(self, record: bytes) -> _Row:
        head, _, name = record.partition(b"\t")
        mode, _, sha, size = head.decode("ascii").split()
        path = os.fsdecode(name)
        kind = _KINDS.get(mode)
        if kind is None:
            raise Refused(f"{self.label}: {path}: is neither file nor folder (mode {mode})")
        if any(part.lower() == ".git" for part in path.split("/")):
            raise Refused(f"{self.label}: {path}: is git's own, and no part of a tree")
        return _Row(path, kind, sha, int(size) if size != "-" else 0)

    def _blobs(self, paths: Sequence[str], most_bytes: int | None) -> dict[str, bytes]:
        """The stored bytes of each of the paths. All are asked for through a file: two pipes that are both full would
        stand still."""
        if not paths:
            return {}
        asked = self._git.folder / "asked"
        asked.write_text("".join(f"{self._sha[path]}\n" for path in paths), encoding="ascii")
        found: dict[str, bytes] = {}
        with asked.open("rb") as file, closing(self._git.stream("cat-file", "--batch", stdin=file)) as stream:
            answers = _Answers(stream)
            for path in paths:
                head = answers.line().split()
                if len(head) != 3 or head[1] != b"blob":
                    raise GitError(f"{self.label}: {path}: cannot be read from the repository")
                if most_bytes is not None and int(head[2]) > most_bytes:
                    raise Refused(f"{self.label}: {path}: has more than {most_bytes // 1024} KiB")
                found[path] = answers.octets(int(head[2]))
                answers.octets(1)
        return found


class _Answers:
    """What `git cat-file --batch` answers, taken piece by piece."""

    def __init__(self, stream: Iterator[bytes]) -> None:
        self._stream = stream
        self._held = bytearray()

    def line(self) -> bytes:
        while (end := self._held.find(b"\n")) < 0:
            self._more()
        found = bytes(self._held[:end])
        del self._held[: end + 1]
        return found

    def octets(self, count: int) -> bytes:
        while len(self._held) < count:
            self._more()
        found = bytes(self._held[:count])
        del self._held[:count]
        return found

    def _more(self) -> None:
        try:
            self._held += next(self._stream)
        except StopIteration:
            raise GitError("git ended before it had answered") from None
