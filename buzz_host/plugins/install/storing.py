"""The store, and the one moment in which what is installed changes (CAT-02).

Files are written into a folder of their own below `store/.staging`, made durable, moved to `store/<content hash>` in
one step, and are in use once `plugins.lock` names them, which is one more step. Killed anywhere on that way, a home has
the old plugin or the new one, whole; what lies about is swept up at the next start or installation.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from buzz_author.errors import BuzzError
from buzz_host.plugins.files import PluginFiles
from buzz_host.plugins.install.lockfile import InstalledPlugin, Lock, read_lock, write_lock
from buzz_host.settings import locked

if TYPE_CHECKING:
    from buzz_host.settings import Home

STAGING_NAME: Final = ".staging"
# Holds the flock of whoever changes what is installed: `store/.change.lock`.
_CHANGE_NAME: Final = ".change"
_FILE_MODE: Final = 0o444
_FOLDER_MODE: Final = 0o555
_HASH_CHARS: Final = 64


class StoreError(BuzzError):
    """The store cannot be written; what was installed before still is."""


@contextmanager
def staging(home: Home) -> Iterator[Path]:
    """An empty folder in the store for as long as the block lasts; whoever dies in it leaves it to the next sweep.

    A folder of the home that was made for it and holds nothing afterwards goes again. Raises `StoreError`, `HomeError`.
    """
    made = [each for each in (home.root, home.store, home.store / STAGING_NAME) if not each.exists()]
    home.writable_root()
    try:
        folder, descriptor = _own_folder(home)
    except OSError as error:
        raise StoreError(
            f"{home.store}: nothing can be written here ({error.strerror}); nothing was installed"
        ) from None
    try:
        yield folder
    finally:
        _destroy(folder)
        os.close(descriptor)
        for each in reversed(made):
            with suppress(OSError):
                each.rmdir()


@contextmanager
def changing(home: Home) -> Iterator[Change]:
    """Alone, among all processes, for changing what is installed. Waits for whoever does; sweeps first.

    An `OSError` in the block, such as a full disk, becomes `StoreError`. Raises `HomeError` where the home may not be
    written.
    """
    home.writable_root()
    try:
        with locked(home.folder(home.store) / _CHANGE_NAME):
            change = Change(home)
            change.sweep()
            yield change
    except OSError as error:
        raise StoreError(
            f"{error.filename or home.store}: cannot be written ({error.strerror}); what was installed before still is"
        ) from None


class Change:
    """What may be done while nobody else changes what is installed."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.lock: Lock = read_lock(home.lock)

    def store(self, files: PluginFiles, staged: Path) -> None:
        """Put the files into the store, read-only and durable, by way of the folder `staged`, which is in `staging`.

        What stands there under this hash already stays if it is whole, and is replaced if not.
        """
        place = self._home.store / files.content_hash
        there = place.exists() or place.is_symlink()
        if there and _same(place, files):
            return
        fresh = staged / "fresh"
        _write(fresh, files.files)
        if there:
            _make_removable(place)
            place.rename(staged / "damaged")
        fresh.rename(place)
        place.chmod(_FOLDER_MODE)
        _sync(place)
        _sync(self._home.store)

    def put(self, row: InstalledPlugin) -> None:
        """From now on `row` is installed under its name: this is the moment."""
        self._write({**self.lock, row.name: row})

    def drop(self, name: str) -> None:
        """From now on nothing is installed under `name`; its files are swept."""
        self._write({each: row for each, row in self.lock.items() if each != name})
        self.sweep()

    def sweep(self) -> None:
        """Take away what nobody names: folders of the store that are in no row, and staging of those who died."""
        kept = {each for row in self.lock.values() for each in (row.content_hash, row.previous)}
        for entry in list(os.scandir(self._home.store)):
            if len(entry.name) == _HASH_CHARS and entry.name not in kept:
                _destroy(Path(entry.path))
        with suppress(FileNotFoundError):
            for entry in list(os.scandir(self._home.store / STAGING_NAME)):
                _sweep_staging(Path(entry.path))

    def _write(self, plugins: Mapping[str, InstalledPlugin]) -> None:
        write_lock(self._home, MappingProxyType(dict(plugins)))
        self.lock = MappingProxyType(dict(plugins))


def sweep(home: Home) -> None:
    """What an installation that was killed left behind goes; nothing is made where nothing was ever installed. Never
    raises: a home that cannot be written has nothing to sweep."""
    if home.store.is_dir():
        with suppress(BuzzError), changing(home):
            pass


def _own_folder(home: Home) -> tuple[Path, int]:
    """A fresh folder, and the descriptor that holds its flock: as long as it is held, its maker lives."""
    while True:
        folder = home.folder(home.store / STAGING_NAME) / secrets.token_hex(8)
        try:
            folder.mkdir(mode=0o700)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # another installer, or its sweep, took it away between two steps
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:  # nobody swept it before it was held
                return folder, descriptor
        except BlockingIOError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _sweep_staging(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        folder.unlink(missing_ok=True)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _destroy(folder)
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files below the fresh `folder`, each and each folder on the disk before this returns."""
    folder.mkdir(mode=0o700)
    folders = {folder}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folders.update(each for each in path.parents if each.is_relative_to(folder))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), _FILE_MODE)
            os.fsync(file.fileno())
    for each in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        _sync(each)
        if each != folder:  # moving a folder needs the right to write it
            each.chmod(_FOLDER_MODE)


def _same(place: Path, files: PluginFiles) -> bool:
    """Whether exactly these files stand at `place`, and nothing else."""
    there: set[str] = set()
    for folder, folders, names in os.walk(place, followlinks=False):
        for name in (*folders, *names):
            path = Path(folder) / name
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            relative = path.relative_to(place).as_posix()
            if not stat.S_ISREG(mode) or relative not in files.files or path.read_bytes() != files.files[relative]:
                return False
            there.add(relative)
    return place.is_dir() and not place.is_symlink() and there == set(files.files)


def _destroy(path: Path) -> None:
    """Take a folder away, read-only ones in it too; what cannot go stays for the next sweep."""
    if path.is_symlink() or not path.is_dir():
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return
    _make_removable(path)
    shutil.rmtree(path, ignore_errors=True)


def _make_removable(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        return
    with suppress(OSError):
        path.chmod(0o700)
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                _make_removable(Path(entry.path))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
