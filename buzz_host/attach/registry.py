"""Which settings files carry our entries, for which agent, and what exactly was put into each of them.

Kept in the home (`attach/attachments.json`), because only what is remembered here can be taken out again to the byte.
The id of an attachment follows from its settings file alone, so attaching twice is the same attachment (AUT-03).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

import attrs
import cattrs

from buzz_author.errors import BuzzError
from buzz_host.attach.hook_entries import HookEntries, Made
from buzz_host.sessions.roster import ATTACHED
from buzz_host.settings import Home, locked, replace_file

VERSION: Final = 1
ID_CHARACTERS: Final = 12
DEFAULT_ENTRIES: Final = 2
ENTRIES_MAX: Final = 8
HARNESS: Final = f"claude{ATTACHED}"

Scope = Literal["project", "user"]


class RegistryError(BuzzError):
    """`attachments.json` cannot be used."""


@attrs.frozen
class Attachment:
    """One settings file that carries our entries.

    `folder` is the project (empty for `user`: all projects of the person), `agent` the agent whose sections are handed
    over (empty: the default agent of buzz.toml, whichever that is then). `inserted`, `made`, `made_file` and
    `made_folders` are what has to be undone.
    """

    id: str
    scope: Scope
    folder: str
    file: str
    agent: str
    entries: int
    inserted: str
    made: Made
    made_file: bool = False
    made_folders: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """For whom it is attached, in words."""
        return f"project {self.folder}" if self.scope == "project" else "all projects of this person"


@attrs.frozen
class Places:
    """The files of this room in a home; nothing is made before it is needed."""

    home: Home

    @property
    def folder(self) -> Path:
        """`attach/`, where everything of this room lies."""
        return self.home.root / "attach"

    @property
    def registry(self) -> Path:
        """The attachments there are."""
        return self.folder / "attachments.json"

    @property
    def client(self) -> Path:
        """The program that the hooks run."""
        return self.folder / "client"

    @property
    def endpoint(self) -> Path:
        """Where the running host listens, and its token; there only while it runs."""
        return self.folder / "endpoint"

    @property
    def speakers(self) -> Path:
        """For the client: which attachment is meant for which folder."""
        return self.folder / "speakers"

    @property
    def spool(self) -> Path:
        """What was handed over while no host ran, until it stands in the ledger."""
        return self.folder / "spool"

    def snapshots(self, attachment: str) -> Path:
        """The snapshots of one attachment."""
        return self.folder / attachment


@attrs.frozen
class _File:
    v: int
    attachments: tuple[Attachment, ...]


_converter: Final = cattrs.Converter(forbid_extra_keys=True)


def attachments(home: Home) -> tuple[Attachment, ...]:
    """The attachments of `home`, by file. Raises `RegistryError` for a registry that cannot be read."""
    path = Places(home).registry
    try:
        octets = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise RegistryError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        read = json.loads(octets)
        if isinstance(read, dict) and read.get("v") != VERSION:
            raise RegistryError(f"{path}: another version of Buzz wrote it; use that one, or detach there first")
        return _converter.structure(read, _File).attachments
    except RegistryError:
        raise
    except Exception as error:  # cattrs raises groups of whatever its hooks raise
        raise RegistryError(
            f"{path}: is damaged ({type(error).__name__}): move it away, then attach again; the entries are found anew"
        ) from None


@contextmanager
def registry_lock(home: Home) -> Iterator[None]:
    """Keep other processes from attaching and detaching. Raises `HomeError` where the home may not be written, and
    `RegistryError` for what the disk refuses in the block."""
    home.writable_root()
    places = Places(home)
    home.folder(places.folder)
    try:
        with locked(places.registry):
            yield
    except OSError as error:
        raise RegistryError(
            f"{error.filename or places.folder}: cannot be written ({error.strerror}): put that right and do it again"
        ) from None


def keep(home: Home, kept: tuple[Attachment, ...]) -> None:
    """Write the registry, and the file from which the client reads who speaks where; under `registry_lock`."""
    places = Places(home)
    ordered = tuple(sorted(kept, key=lambda each: each.file))
    content = json.dumps(_converter.unstructure(_File(VERSION, ordered)), indent=1, ensure_ascii=False)
    replace_file(places.registry, content.encode("utf-8") + b"\n")


def identifier(file: Path) -> str:
    """The id of the attachment in the settings file at `file`."""
    return sha256(str(file).encode("utf-8", "surrogateescape")).hexdigest()[:ID_CHARACTERS]


def entries_of(home: Home, attachment: Attachment) -> HookEntries:
    """The hook entries that `attachment` has in its settings file."""
    return HookEntries(str(Places(home).client), attachment.id, attachment.entries)
