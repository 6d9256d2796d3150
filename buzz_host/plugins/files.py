"""The files of a plugin as bytes in memory, and the one hash over them.

What is hashed is what is loaded: the loader compiles these very bytes and never goes back to the disk. Covers links
that lead out of the folder, devices and pipes, and bounds number and size. It does not protect against a plugin that
reads other files once it runs: plugins in the host are trusted code.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs

from buzz_author.errors import BuzzError

FILES_MAX: Final = 4096
TOTAL_MAX_BYTES: Final = 64 * 1024 * 1024
DEPTH_MAX: Final = 32

# What tools leave beside a plugin that is being worked on. None of it is content, and none of it can be imported.
NOT_CONTENT: Final = frozenset(
    {
        "__pycache__", ".git", ".hg", ".svn", ".venv", "venv", "node_modules", ".mypy_cache", ".ruff_cache",
        ".pytest_cache", ".hypothesis", ".tox", ".idea", ".vscode", ".DS_Store",
    }
)  # fmt: skip
_NOT_CONTENT_SUFFIXES: Final = (".pyc", ".pyo", ".swp", ".swo", "~")


class PluginFilesError(BuzzError):
    """The files of a plugin cannot be read, or are not what a plugin may consist of."""


@attrs.frozen
class PluginFiles:
    """The files below `root`, by their path with `/`, sorted; `content_hash` is SHA-256 over paths and bytes."""

    root: Path
    files: Mapping[str, bytes] = attrs.field(repr=False)
    content_hash: str


def is_content(name: str) -> bool:
    """Whether a file or folder of that name belongs to a plugin; what tools leave beside it does not."""
    return name not in NOT_CONTENT and not name.endswith(_NOT_CONTENT_SUFFIXES)


def read_folder(root: Path) -> PluginFiles:
    """All files of the folder `root`.

    Raises `PluginFilesError` for a file that cannot be read, a link out of the folder, something that is neither file
    nor folder, more than `FILES_MAX` files or `TOTAL_MAX_BYTES` bytes; `FileNotFoundError` when the folder is gone.
    """
    real_root = root.resolve(strict=True)
    if not real_root.is_dir():
        raise PluginFilesError(f"{root}: expected a folder, found a file")
    files: dict[str, bytes] = {}
    total = 0
    for name, path in _walk(root, "", real_root, (real_root,)):
        files[name] = _read(path, TOTAL_MAX_BYTES - total)
        total += len(files[name])
        if len(files) > FILES_MAX:
            raise PluginFilesError(f"{root}: a plugin may have {FILES_MAX} files at most: move the rest elsewhere")
    return hashed(root, files)


def read_file(path: Path) -> PluginFiles:
    """The single file at `path`. Raises as `read_folder` does."""
    return hashed(path.parent, {path.name: _read(path, TOTAL_MAX_BYTES)})


def hashed(root: Path, files: Mapping[str, bytes]) -> PluginFiles:
    """The files with their hash; they stand, or are to stand, below `root`."""
    ordered = {name: files[name] for name in sorted(files, key=os.fsencode)}
    digest = sha256(b"buzz plugin 1\n")
    for name, content in ordered.items():
        encoded = os.fsencode(name)
        digest.update(b"%d %d\n" % (len(encoded), len(content)))
        digest.update(encoded)
        digest.update(content)
    return PluginFiles(root, ordered, digest.hexdigest())


def _walk(folder: Path, prefix: str, real_root: Path, above: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    if len(above) > DEPTH_MAX:
        raise PluginFilesError(f"{folder}: the folders of a plugin are nested {DEPTH_MAX} deep at most")
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: os.fsencode(entry.name))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise PluginFilesError(f"{folder}: cannot be read ({error.strerror})") from None
    for entry in entries:
        if not is_content(entry.name):
            continue
        path = folder / entry.name
        real = path
        if entry.is_symlink():
            real = _link_target(path, real_root)
        if path.is_dir():
            real = path.resolve()
            if real in above:
                raise PluginFilesError(f"{path}: this link leads back to a folder that it is in")
            yield from _walk(path, f"{prefix}{entry.name}/", real_root, (*above, real))
        else:
            yield f"{prefix}{entry.name}", path


def _link_target(path: Path, real_root: Path) -> Path:
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise PluginFilesError(f"{path}: this link leads nowhere") from None
    if not real.is_relative_to(real_root):
        raise PluginFilesError(f"{path}: this link leads out of the plugin's folder: copy the file into it instead")
    return real


def _read(path: Path, most_bytes: int) -> bytes:
    try:
        # O_NONBLOCK: opening a named pipe must not wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = "neither file nor folder" if error.errno == errno.ENXIO else f"cannot be read ({error.strerror})"
        raise PluginFilesError(f"{path}: {reason}") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PluginFilesError(f"{path}: neither file nor folder")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise PluginFilesError(f"{path}: a plugin may have {TOTAL_MAX_BYTES // 1024 // 1024} MiB at most")
    return content
