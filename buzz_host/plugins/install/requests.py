"""What a person typed after `buzz plugin install`: a path or a repository, a revision, a folder in it.

Taken apart by its form and by what is on the disk, before anything is fetched. What is kept of it goes into the lock
and is shown, so it never has a password in it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from buzz_author.errors import BuzzError
from buzz_host.plugins.install.archives import SUFFIXES
from buzz_host.plugins.install.git import PROTOCOLS
from buzz_host.plugins.install.lockfile import Provenance
from buzz_host.plugins.install.repositories import check_revision
from buzz_host.plugins.sources import one_line

_URL: Final = re.compile(r"(?:git\+)?[A-Za-z][A-Za-z0-9+.-]*:(?://|:)")
_SCP: Final = re.compile(r"(?P<user>[A-Za-z0-9._-]+)@(?P<host>[A-Za-z0-9.-]+):(?P<path>[^/:\s][^\s]*|/[^/\s][^\s]*)")
_SUBDIRECTORY: Final = "subdirectory="


class SourceError(BuzzError):
    """What was named is nothing that a plugin can be installed from."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def requested(text: str, here: Path, subdir: str = "") -> Provenance:
    """What `text` names, seen from the folder `here`; `commit` is not known yet.

    `PATH`, `PATH@REV`, `https://…`, `ssh://…`, `file:///…`, `git+https://…`, `user@host:path`, each with `@REV` and
    `#FOLDER` (or `#subdirectory=FOLDER`) behind it if wanted. Raises `SourceError` or `GitError`.
    """
    if _URL.match(text) or _SCP.fullmatch(text):
        text, folder = _without_folder(text, subdir)
        url, revision = _repository(text)
        return Provenance("git", url, check_revision(revision) if revision else "", subdir=folder)
    path = _absolute(text, here)
    if not os.path.lexists(path):
        text, subdir = _without_folder(text, subdir)
        path = _absolute(text, here)
    if os.path.lexists(path):
        return _on_disk(path, _plain_folder(subdir))
    before, revision = _split(text)
    if revision and (local := _absolute(before, here)).is_dir():
        return Provenance("git", local.as_uri(), check_revision(revision), subdir=_plain_folder(subdir))
    raise SourceError(
        f"{text}: there is no such file or folder; plugins are installed from a folder, a .py file, an archive "
        f"({', '.join(SUFFIXES)}) or a git repository (https://…, ssh://…, file:///…)"
    )


def _on_disk(path: Path, subdir: str) -> Provenance:
    if path.is_dir():
        if all((path / each).exists() for each in ("HEAD", "objects", "refs")):
            return Provenance("git", path.as_uri(), subdir=subdir)
        return Provenance("folder", str(path), subdir=subdir)
    if not path.is_file():
        raise SourceError(f"{path}: is neither file nor folder")
    if path.suffix == ".py":
        if subdir:
            raise SourceError(f"{path}: is a single file, and has no folder {subdir}")
        return Provenance("file", str(path))
    if path.name.lower().endswith(SUFFIXES):
        return Provenance("archive", str(path), subdir=subdir)
    raise SourceError(f"{path}: is no plugin: give a folder, a .py file, or an archive ({', '.join(SUFFIXES)})")


def _repository(text: str) -> tuple[str, str]:
    """The URL in `text` as it is given to git, and the revision behind it."""
    text = text.removeprefix("git+")
    if scp := _SCP.fullmatch(text):
        path, revision = _split(scp["path"])
        return f"{scp['user']}@{scp['host']}:{path}", revision
    try:
        parts = urlsplit(text)
        host, password = parts.hostname, parts.password
    except ValueError as error:
        raise SourceError(f"{text}: is no URL ({error})") from None
    if parts.scheme.lower() not in PROTOCOLS:
        raise SourceError(
            f"{parts.scheme}: repositories are fetched by {', '.join(PROTOCOLS)} only: anything else could be read or "
            "changed on its way, or would run a program"
        )
    if password is not None or (parts.scheme.lower() == "https" and parts.username is not None):
        # Not repeated in the message: it has the secret in it.
        raise SourceError(
            f"{parts.scheme}://{host}: leave user and password out of the URL: it is kept and shown; use ssh instead"
        )
    if parts.query or (not host and parts.scheme.lower() != "file") or (host or "").startswith("-"):
        raise SourceError(f"{text}: is no address of a repository")
    path, revision = _split(parts.path)
    if not path.strip("/"):
        raise SourceError(f"{text}: is no address of a repository")
    if path.lower().endswith(SUFFIXES):
        raise SourceError(f"{text}: archives are not fetched: download it, look at it, and install the file")
    return f"{parts.scheme.lower()}://{parts.netloc}{path}", revision


def _split(path: str) -> tuple[str, str]:
    """A path and the revision behind its last `@`; one that begins a name (`/@scope/plugin`) is part of the path."""
    before, at, revision = path.rpartition("@")
    return (before, revision) if at and before and not before.endswith("/") else (path, "")


def _without_folder(text: str, subdir: str) -> tuple[str, str]:
    before, hash_sign, fragment = text.partition("#")
    fragment = fragment.removeprefix(_SUBDIRECTORY)
    if not hash_sign:
        return text, _plain_folder(subdir)
    if subdir and _plain_folder(subdir) != _plain_folder(fragment):
        raise SourceError(f"{text}: names the folder {fragment}, and --subdir names {subdir}: give one of them")
    return before, _plain_folder(fragment)


def _plain_folder(subdir: str) -> str:
    parts = [part for part in subdir.split("/") if part not in ("", ".")]
    if ".." in parts or subdir.startswith("/") or "\\" in subdir or not subdir.isprintable():
        raise SourceError(f"{subdir}: give a folder below the top of what is installed")
    return "/".join(parts)


def _absolute(text: str, here: Path) -> Path:
    if not text or "\0" in text:
        raise SourceError("what is to be installed? give a folder, a .py file, an archive or a git repository")
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        path = Path(text)
    return Path(os.path.abspath(here / path))  # noqa: PTH100 - `..` goes by the text, links stay as they are
