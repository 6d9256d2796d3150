"""`plugins.lock`: which plugins are installed, from where, and the hash of each of their files (CAT-02).

It stands in the home, outside of what it describes, and is replaced in one step: that replacement is the moment in
which a plugin is installed, upgraded or removed. Reading it trusts nothing in it that becomes a path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

import attrs

from buzz_author.errors import BuzzError, InvalidName
from buzz_author.names import check_name, folded
from buzz_host.plugins.sources import Form, Installation
from buzz_host.settings import replace_file

if TYPE_CHECKING:
    from buzz_host.settings import Home

LOCK_VERSION: Final = 1
# 4,096 files of 100 plugins; more is no file that Buzz wrote.
LOCK_MAX_BYTES: Final = 128 * 1024 * 1024
SourceKind = Literal["folder", "file", "archive", "git"]
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class LockFileError(BuzzError):
    """`plugins.lock` cannot be read or written, or is none."""


class NotInstalled(BuzzError, LookupError):
    """No installed plugin is called so."""


@attrs.frozen
class Provenance:
    """Where a plugin was installed from. `location` is an absolute path or a URL, never with credentials; `revision`
    is what the person asked for (empty: the newest), `commit` what that was then; `subdir` is the folder or file in
    it."""

    kind: SourceKind
    location: str
    revision: str = ""
    commit: str = ""
    subdir: str = ""

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{self.location}{revision}{f'#{self.subdir}' if self.subdir else ''}"


@attrs.frozen
class InstalledPlugin:
    """One row of the lock. `files` has the SHA-256 of each file by its path; `content_hash`, the one over all of them,
    is the name of its folder in the store. `previous` is the folder of the version before it, kept for going back."""

    name: str
    version: str
    form: Form
    provenance: Provenance
    content_hash: str
    files: Mapping[str, str] = attrs.field(repr=False)
    installed_at: datetime
    previous: str = ""

    def place(self, home: Home) -> Path:
        """Its folder in the store."""
        return home.store / self.content_hash

    def installation(self, home: Home) -> Installation:
        """What discovery says of it."""
        return Installation(home.lock, str(self.provenance), self.provenance.commit, self.installed_at)


Lock = Mapping[str, InstalledPlugin]
NOTHING_INSTALLED: Final[Lock] = MappingProxyType({})


def read_lock(path: Path) -> Lock:
    """The installed plugins by their names, sorted. No file: none. Raises `LockFileError` for anything that Buzz did
    not write."""
    try:
        with path.open("rb") as file:
            content = file.read(LOCK_MAX_BYTES + 1)
    except FileNotFoundError:
        return NOTHING_INSTALLED
    except OSError as error:
        raise LockFileError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > LOCK_MAX_BYTES:
        raise LockFileError(f"{path}: has more than {LOCK_MAX_BYTES // 1024**2} MiB, so Buzz did not write it")
    try:
        said = json.loads(content)
        if said["v"] != LOCK_VERSION:
            raise LockFileError(f"{path}: v: expected {LOCK_VERSION}: it was written by another version of Buzz")
        rows = [_row(name, row) for name, row in said["plugins"].items()]
    except LockFileError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidName) as error:
        raise LockFileError(
            f"{path}: is damaged ({type(error).__name__}: {error}): no installed plugin is used; put back a backup of "
            "it, or move it away and install again"
        ) from None
    return MappingProxyType({row.name: row for row in sorted(rows, key=lambda row: row.name)})


def write_lock(home: Home, plugins: Lock) -> None:
    """Replace the lock, in one step, durably. The lock between processes must be held.

    Raises `OSError`; the old lock then still stands.
    """
    rows = {name: _written(row) for name, row in sorted(plugins.items())}
    text = json.dumps({"v": LOCK_VERSION, "plugins": rows}, indent=1, ensure_ascii=True)
    replace_file(home.lock, f"{text}\n".encode("ascii"))


def installed(plugins: Lock, name: str) -> InstalledPlugin:
    """The installed plugin called `name`, where `_` and `-` are the same. Raises `NotInstalled`."""
    for row in plugins.values():
        if folded(row.name) == folded(name):
            return row
    there = f"the installed plugins are: {', '.join(plugins)}" if plugins else "nothing is installed"
    raise NotInstalled(f"no installed plugin is called '{name}'; {there}")


def _written(row: InstalledPlugin) -> dict[str, object]:
    fields = attrs.asdict(row, recurse=False)
    del fields["name"]
    return {
        **fields,
        "provenance": attrs.asdict(row.provenance),
        "files": dict(row.files),
        "installed_at": row.installed_at.isoformat(),
    }


def _row(name: str, said: Mapping[str, Any]) -> InstalledPlugin:
    files = {_text(path): _hash(digest) for path, digest in said["files"].items()}
    origin = said["provenance"]
    return InstalledPlugin(
        name=check_name(name, "plugin"),
        version=_text(said["version"]),
        form=cast("Form", _one_of(said["form"], ("folder", "file"))),
        provenance=Provenance(
            cast("SourceKind", _one_of(origin["kind"], get_args(SourceKind))),
            *(_text(origin[key]) for key in ("location", "revision", "commit", "subdir")),
        ),
        content_hash=_hash(said["content_hash"]),
        files=MappingProxyType(files),
        installed_at=datetime.fromisoformat(said["installed_at"]),
        previous=_hash(said["previous"]) if said["previous"] else "",
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {type(value).__name__}")
    return value


def _hash(value: object) -> str:
    if not _SHA256.fullmatch(_text(value)):
        raise ValueError(f"expected a SHA-256, found {ascii(value)[:80]}")
    return str(value)


def _one_of(value: object, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"expected one of {', '.join(known)}, found {ascii(value)[:80]}")
    return str(value)
