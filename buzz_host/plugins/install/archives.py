"""Archives: `.zip`, `.tar`, `.tar.gz` and `.tgz`, listed first, and read into memory afterwards (CAT-02).

`extractall` and its filters are not used: they have been got round again and again, all by way of what they had
written to the disk before. Here nothing is written, a link is an entry like any other, and every stream is bounded.
"""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from buzz_host.plugins.install.listing import Entry, EntryKind, Listing, Refused

SUFFIXES: Final = (".zip", ".tar.gz", ".tgz", ".tar")
ARCHIVE_MAX_BYTES: Final = 256 * 1024 * 1024
UNPACKED_MAX_BYTES: Final = 256 * 1024 * 1024
# What is packed tighter than this is no plugin; below the floor it is too small to hurt.
RATIO_MAX: Final = 200
RATIO_FLOOR_BYTES: Final = 16 * 1024 * 1024
_TARGET_MAX_BYTES: Final = 4096
_ENCRYPTED_FLAG: Final = 0x1
_UTF8_FLAG: Final = 0x800
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What the standard library raises for a damaged archive.
_DAMAGED: Final = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, EOFError, UnicodeError, ValueError,
    NotImplementedError, RuntimeError, OverflowError, struct.error,
)  # fmt: skip


class Archive:
    """One archive: its listing, and the bytes of its files. Raises `Refused` when it is made, or read."""

    def __init__(self, path: Path) -> None:
        self.label = path.name
        self._path = path
        self._zip = path.name.lower().endswith(".zip")
        size = path.stat().st_size
        if size > ARCHIVE_MAX_BYTES:
            raise Refused(f"{path}: an archive may have {ARCHIVE_MAX_BYTES // 1024**2} MiB at most")
        self._unpacked_max = min(UNPACKED_MAX_BYTES, max(RATIO_FLOOR_BYTES, RATIO_MAX * size))
        self.listing = Listing(self.label)
        with self._damage_told():
            self._list_zip() if self._zip else self._list_tar()
        self.listing.close()

    def read(self, wanted: Mapping[str, Entry]) -> dict[str, bytes]:
        """The bytes of each of the entries, by the names that `wanted` gives them."""
        names: dict[str, list[str]] = {}
        for name, entry in wanted.items():
            names.setdefault(entry.path, []).append(name)
        found: dict[str, bytes] = {}
        with self._damage_told():
            for path, content in self._read_zip(names) if self._zip else self._read_tar(names):
                for name in names[path]:
                    found[name] = content
        if missing := sorted(wanted.keys() - found.keys()):
            raise Refused(f"{self.label}: {missing[0]}: was listed, and is not there")
        return found

    @contextmanager
    def _damage_told(self) -> Iterator[None]:
        try:
            yield
        except (Refused, FileNotFoundError):
            raise
        except OSError as error:  # the disk's, or a seek to where a damaged archive points
            raise Refused(f"{self.label}: is damaged, or cannot be read ({error.strerror or error})") from None
        except _DAMAGED as error:
            raise Refused(f"{self.label}: is damaged, or no archive of its kind ({error})") from None

    # .zip: the directory at its end says all names and sizes; each is held against what is really there.

    def _list_zip(self) -> None:
        packed = unpacked = 0
        with zipfile.ZipFile(self._path) as archive:
            for each in archive.infolist():
                packed += each.compress_size
                unpacked += each.file_size
                self._must_not_be_a_bomb(unpacked)
                self._list_zipped(archive, each)
        if packed > self._path.stat().st_size:
            raise Refused(f"{self.label}: its files overlap, so it unpacks to more than it holds")

    def _list_zipped(self, archive: zipfile.ZipFile, each: zipfile.ZipInfo) -> None:
        name = each.orig_filename
        if not each.flag_bits & _UTF8_FLAG and not name.isascii():
            raise Refused(f"{self.label}: {name}: is a name that is not UTF-8")
        if each.flag_bits & _ENCRYPTED_FLAG:
            raise Refused(f"{self.label}: {name}: is encrypted")
        if each.compress_type not in _METHODS:
            raise Refused(f"{self.label}: {name}: is packed in a way that Buzz does not read: use stored or deflate")
        mode = each.external_attr >> 16
        kind: EntryKind
        match stat.S_IFMT(mode):
            case 0 | stat.S_IFREG:
                kind = "folder" if name.endswith("/") else "file"
            case stat.S_IFDIR:
                kind = "folder"
            case stat.S_IFLNK:
                kind = "link"
            case _:
                raise Refused(f"{self.label}: {name}: is neither file nor folder")
        target = ""
        if kind == "link":
            target = _unzipped(archive, each, _TARGET_MAX_BYTES).decode("utf-8")
        self.listing.add(name, kind, size=each.file_size, target=target, mode=mode)

    def _read_zip(self, wanted: Mapping[str, object]) -> Iterator[tuple[str, bytes]]:
        with zipfile.ZipFile(self._path) as archive:
            for each in archive.infolist():
                path = _plain(each.orig_filename)
                if path in wanted and not each.is_dir():
                    yield path, _unzipped(archive, each, each.file_size)

    # .tar: only reading it whole tells what is in it.

    def _list_tar(self) -> None:
        for member, _ in self._members():
            kind: EntryKind
            if member.isreg() and not member.issparse():
                kind = "file"
            elif member.isdir():
                kind = "folder"
            elif member.issym() or member.islnk():
                kind = "link"
            else:
                raise Refused(f"{self.label}: {member.name}: is neither file nor folder")
            self.listing.add(
                member.name,
                kind,
                size=member.size if kind == "file" else 0,
                target=member.linkname,
                hard=member.islnk(),
                mode=member.mode,
            )

    def _read_tar(self, wanted: Mapping[str, object]) -> Iterator[tuple[str, bytes]]:
        for member, archive in self._members():
            path = _plain(member.name)
            if path in wanted and member.isreg():
                file = archive.extractfile(member)
                if file is not None:
                    yield path, file.read()

    def _members(self) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
        with self._path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            stream = _Bounded(gzip.GzipFile(fileobj=file) if packed else file, self)
            with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
                for member in archive:
                    yield member, archive
            while stream.read(io.DEFAULT_BUFFER_SIZE):  # to the end, where the checksum is
                pass

    def _must_not_be_a_bomb(self, unpacked_bytes: int) -> None:
        if unpacked_bytes > self._unpacked_max:
            raise Refused(
                f"{self.label}: unpacks to more than {self._unpacked_max // 1024**2} MiB, which is no plugin's size"
            )


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Bounded(io.RawIOBase):
    """A stream that refuses to become longer than its archive may."""

    def __init__(self, stream: _Readable, archive: Archive) -> None:
        self._stream = stream
        self._archive = archive
        self._read = 0

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(size)
        self._read += len(chunk)
        self._archive._must_not_be_a_bomb(self._read)
        return chunk


def _unzipped(archive: zipfile.ZipFile, each: zipfile.ZipInfo, most_bytes: int) -> bytes:
    with archive.open(each) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes or len(content) != each.file_size:
        raise Refused(f"{each.orig_filename}: is not of the size that the archive says")
    return content


def _plain(name: str) -> str:
    return "/".join(part for part in name.split("/") if part not in ("", "."))
