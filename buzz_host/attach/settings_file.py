"""Replacing a settings file of somebody else's program: whole or not at all, and as it was in everything but content.

The mode, the owner and a link to the file stay; a file that changed while we looked at it is not overwritten. What
cannot be done safely is one line, and nothing is touched (AUT-03).
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

import attrs

from buzz_author.errors import BuzzError

SETTINGS_MAX_BYTES: Final = 4 * 1024 * 1024
_NEW_FILE_MODE: Final = 0o644  # as the program itself makes it
_WRITABLE: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class SettingsFileError(BuzzError):
    """A settings file cannot be read, or cannot be edited safely; the file is as it was."""


@attrs.frozen
class SettingsFile:
    """A settings file as it was read. `path` is what was asked for, `place` where its content lies (behind links);
    `octets` is None where there is no such file."""

    path: Path
    place: Path
    octets: bytes | None

    @classmethod
    def read(cls, path: Path) -> SettingsFile:
        """The file at `path`. Raises `SettingsFileError` for what is no readable file, or more than 4 MiB."""
        try:
            place = path.resolve(strict=True)
        except FileNotFoundError:
            if path.is_symlink():
                raise SettingsFileError(f"{path}: is a link to nothing: mend or remove the link first") from None
            return cls(path, path.parent.resolve() / path.name, None)
        except (OSError, RuntimeError) as error:
            raise SettingsFileError(f"{path}: cannot be read ({_reason(error)})") from None
        try:
            status = place.stat()
            if not stat.S_ISREG(status.st_mode):
                raise SettingsFileError(f"{path}: is no file")
            if status.st_size > SETTINGS_MAX_BYTES:
                raise SettingsFileError(f"{path}: has {status.st_size:,} bytes, which is no settings file")
            return cls(path, place, place.read_bytes())
        except OSError as error:
            raise SettingsFileError(f"{path}: cannot be read ({_reason(error)})") from None

    @property
    def text(self) -> str:
        """Its text; empty where there is no file. Raises `SettingsFileError` for what is no UTF-8."""
        try:
            return (self.octets or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise SettingsFileError(f"{self.path}: is not UTF-8 (byte {error.start}): save it as UTF-8") from None

    @property
    def missing_folders(self) -> tuple[Path, ...]:
        """The folders that would have to be made for the file, outermost first."""
        missing: list[Path] = []
        folder = self.place.parent
        while not folder.is_dir() and folder != folder.parent:
            missing.append(folder)
            folder = folder.parent
        return tuple(reversed(missing))

    def replace(self, text: str) -> None:
        """Put `text` in its place, on disk when this returns; folders that are missing are made.

        Raises `SettingsFileError`, and leaves everything as it was, where the file is read-only, its folder may not be
        written, or its content has changed since it was read.
        """
        made: list[Path] = []
        try:
            self._must_be_writable()
            for folder in self.missing_folders:
                folder.mkdir()
                made.append(folder)
            self._put(text.encode("utf-8"))
        except (OSError, SettingsFileError) as error:
            for folder in reversed(made):
                folder.rmdir()
            if isinstance(error, SettingsFileError):
                raise
            raise SettingsFileError(
                f"{self.path}: could not be written ({_reason(error)}); nothing was changed"
            ) from None

    def delete(self) -> None:
        """Remove the file. Raises `SettingsFileError`."""
        try:
            self._must_be_unchanged()
            self.place.unlink(missing_ok=True)
            _sync_folder(self.place.parent)
        except OSError as error:
            raise SettingsFileError(f"{self.path}: could not be removed ({_reason(error)})") from None

    def _put(self, octets: bytes) -> None:
        descriptor, fresh = tempfile.mkstemp(prefix=f".{self.place.name}.", suffix=".buzz", dir=self.place.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(octets)
                self._take_over(descriptor)
                file.flush()
                os.fsync(descriptor)
            self._must_be_unchanged()
            Path(fresh).replace(self.place)
        except BaseException:
            Path(fresh).unlink(missing_ok=True)
            raise
        _sync_folder(self.place.parent)

    def _take_over(self, descriptor: int) -> None:
        """Give the new file the mode and the owner of the old one."""
        if self.octets is None:
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(descriptor, _NEW_FILE_MODE & ~umask)
            return
        status = self.place.stat()
        own = os.fstat(descriptor)
        if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))

    def _must_be_writable(self) -> None:
        # Judged by the mode as well: replacing a file asks nobody whether the file itself may be written.
        if self.octets is None:
            return
        if not self.place.stat().st_mode & _WRITABLE or not os.access(self.place, os.W_OK):
            raise SettingsFileError(
                f"{self.path}: is read-only; make it writable first (chmod u+w), nothing was changed"
            )

    def _must_be_unchanged(self) -> None:
        if SettingsFile.read(self.path).octets != self.octets:
            raise SettingsFileError(f"{self.path}: was changed by somebody else just now: try again")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
