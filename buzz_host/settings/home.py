"""The home folder: one place for all that Buzz keeps for a person (OPS-02).

Paths are known without touching the disk; a folder is made when something is first put into it, readable by its
owner alone. A name that would lead out of the home is refused here, for every room (SEC-03).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_host.settings.filesystems import network_file_system

HOME_VARIABLE: Final = "BUZZ_HOME"
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600


class HomeError(BuzzError):
    """The home folder cannot be used: it is a file, or may not be written."""


@attrs.frozen
class Home:
    """The folder `root` and the paths in it. Use `Home.resolve()`; nothing is made before `folder` is asked for it."""

    root: Path

    @classmethod
    def resolve(cls, path: Path | None = None) -> Home:
        """The home at `path`, else at `$BUZZ_HOME`, else `~/.buzz`; made absolute, links left as they are.

        Raises `HomeError` where that path leads to something that is no folder.
        """
        named = os.environ.get(HOME_VARIABLE, "")
        chosen = path if path is not None else Path(named) if named else Path("~/.buzz")
        try:
            root = chosen.expanduser().absolute()
            str(root).encode("utf-8")
        except RuntimeError:
            raise HomeError(f"{chosen}: this account has no home folder; set {HOME_VARIABLE} to a folder") from None
        except FileNotFoundError:
            raise HomeError(
                f"{chosen}: is relative, and the folder that this command runs in is gone: give the whole path"
            ) from None
        except UnicodeEncodeError:
            # The programs that we drive cannot name such a folder, and would write elsewhere.
            raise HomeError(f"{chosen}: the path of a home must be UTF-8: name another folder") from None
        home = cls(root)
        home._must_be_a_folder(root)
        return home

    @property
    def config(self) -> Path:
        """`buzz.toml`: what the person decided."""
        return self.root / "buzz.toml"

    @property
    def database(self) -> Path:
        """`state.db`: everything that Buzz remembers."""
        return self.root / "state.db"

    @property
    def head(self) -> Path:
        """`ledger.head`: the mirror of the newest entry of the ledger, outside of the database."""
        return self.root / "ledger.head"

    @property
    def agents(self) -> Path:
        """`agents/`: the person's own agent files."""
        return self.root / "agents"

    @property
    def skills(self) -> Path:
        """`skills/`: the person's own skills, drafts in `_drafts/`."""
        return self.root / "skills"

    @property
    def plugins(self) -> Path:
        """`plugins/`: what the person dropped in or linked; live, unlocked."""
        return self.root / "plugins"

    @property
    def store(self) -> Path:
        """`store/`: installed code by content hash; locked."""
        return self.root / "store"

    @property
    def lock(self) -> Path:
        """`plugins.lock`: what is in the store, with the hash of each file."""
        return self.root / "plugins.lock"

    @property
    def data(self) -> Path:
        """`data/<plugin>/`: the HOME of each plugin, apart from its code."""
        return self.root / "data"

    @property
    def harnesses(self) -> Path:
        """`harnesses/`: programs that `buzz harness install` fetched, and their own folders."""
        return self.root / "harnesses"

    @property
    def logs(self) -> Path:
        """`logs/`."""
        return self.root / "logs"

    def folder(self, path: Path | None = None) -> Path:
        """The folder `path` inside the home (None: the home itself), made with mode 0700 where it is missing.

        Raises `HomeError` for a path that is outside of the home (SEC-03), is a file, or cannot be made.
        """
        inside = self.root if path is None else self._inside(path)
        missing = [inside]
        while missing[-1] != self.root:
            missing.append(missing[-1].parent)
        for each in reversed(missing):
            self._must_be_a_folder(each)
            try:
                each.mkdir(mode=FOLDER_MODE, parents=each == self.root, exist_ok=True)
            except OSError as error:
                raise self._unusable(each, error) from None
        return inside

    def writable_root(self) -> Path:
        """The home itself, made where it is missing; raises `HomeError` where nothing may be written into it, or where
        a network file system would not hold the locks that keep what is written (DESIGN 6)."""
        root = self.folder()
        kind = network_file_system(root)
        if kind is not None:
            raise HomeError(
                f"{root}: is on a network file system ({kind}), whose locks do not hold: set {HOME_VARIABLE} to a "
                "folder on a local disk"
            )
        if not os.access(root, os.W_OK | os.X_OK):
            if os.statvfs(root).f_flag & os.ST_RDONLY:
                raise HomeError(
                    f"{root}: is on a file system that is mounted read-only: mount it for writing, or set "
                    f"{HOME_VARIABLE} to another folder"
                )
            raise HomeError(f"{root}: this folder may not be written: change its owner or mode, or set {HOME_VARIABLE}")
        return root

    def _inside(self, path: Path) -> Path:
        below = self.root / path
        if ".." in below.parts or not below.is_relative_to(self.root):
            raise HomeError(f"{path} is outside of the home {self.root}: nothing is written there")
        return below

    def _must_be_a_folder(self, path: Path) -> None:
        try:
            blocked = (path.exists() or path.is_symlink()) and not path.is_dir()
        except OSError as error:
            raise self._unusable(path, error) from None
        if blocked:
            raise HomeError(f"{path}: a folder is needed here, and this is none: move it away, or set {HOME_VARIABLE}")

    def _unusable(self, path: Path, error: OSError) -> HomeError:
        return HomeError(f"{path}: the folder cannot be used ({error.strerror}): set {HOME_VARIABLE} to another one")
