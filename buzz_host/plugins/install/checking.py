"""Judging the files of one plugin before they are written: what it is, what it hides, what of it is carried.

All of it is decided from the bytes in memory, without running any. What a plugin registers when it runs is known only
then; what its manifest asks for and this version of Buzz does not do is known here, and said.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_author.names import check_name
from buzz_host.plugins.candidates import CODE_NAME, described_file, described_folder
from buzz_host.plugins.files import PluginFiles, hashed
from buzz_host.plugins.install.fetching import Fetched
from buzz_host.plugins.install.listing import Refused
from buzz_host.plugins.sources import MANIFEST_NAME, PluginSource

# Controls save tab and line ends, what turns the direction of writing, tag characters, and two or more characters in a
# row that show nothing: one joins letters and emoji, a run of them holds a message.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
    "|[\u200b-\u200d\u2060-\u2064\ufeff]{2,}|\u200b|\ufeff"
)
# The flags of England, Scotland, Wales and others are written with tag characters.
_FLAG: Final = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
# What a manifest can ask for, and what this version does with it.
_NOT_DONE: Final[Mapping[str, str]] = {
    "env": "no variables are set for it",
    "grants": "nothing is granted and nothing withheld: it runs with full trust",
    "needs": "nothing is granted and nothing withheld: it runs with full trust",
}


@attrs.frozen
class NotCarried:
    """Something that a plugin brings or asks for, and that this version of Buzz does nothing with yet."""

    what: str
    detail: str

    def __str__(self) -> str:
        return f"{self.what}: not carried yet ({self.detail})"


@attrs.frozen
class Checked:
    """A plugin that may be installed. `source` says what it is; its path is where it comes from."""

    fetched: Fetched
    files: PluginFiles
    source: PluginSource
    not_carried: tuple[NotCarried, ...]
    warnings: tuple[str, ...]

    @property
    def file_hashes(self) -> dict[str, str]:
        """The SHA-256 of each file."""
        return {name: sha256(content).hexdigest() for name, content in self.files.files.items()}


class CarriesNothing(BuzzError):
    """A plugin of which this version of Buzz carries nothing at all; `not_carried` says what it would bring."""

    def __init__(self, message: str, plugin: str, not_carried: tuple[NotCarried, ...]) -> None:
        super().__init__(message)
        self.plugin = plugin
        self.not_carried = not_carried


def check(fetched: Fetched) -> Checked:
    """The plugin that was fetched.

    Raises `Refused` for what must not be, `CarriesNothing`, and `NoPluginError`, `ManifestError` or `InvalidName` for
    what is no plugin.
    """
    files = hashed(fetched.root, fetched.files)
    if fetched.file:
        name = fetched.file.removesuffix(".py")
        check_name(name, f"{fetched.root / fetched.file}: plugin")
        source = described_file(files, fetched.root / fetched.file, name, "installed")
        _must_hide_nothing(source, {})
        return Checked(fetched, files, source, (), ())
    table = _table(files)
    not_carried = tuple(_not_carried(table, files))
    named = table.get("name")
    if table.get("isolation") == "process" and isinstance(named, str):
        raise CarriesNothing(
            f"plugin '{named}' asks for isolation = \"process\", and this version of Buzz will not run it with less "
            "protection than that",
            check_name(named, "plugin"),
            not_carried,
        )
    if not_carried and CODE_NAME not in files.files and isinstance(named, str):
        what = ", ".join(each.what for each in not_carried)
        raise CarriesNothing(
            f"plugin '{named}' has no {CODE_NAME}, and nothing else of it is carried yet ({what})",
            check_name(named, "plugin"),
            not_carried,
        )
    source, warnings = described_folder(files, fetched.root, named if isinstance(named, str) else "", "installed")
    _must_hide_nothing(source, table)
    _must_be_what_it_says(table, files)
    shown = tuple(each for each in warnings if ": hooks: " not in each)  # said among what is not carried
    return Checked(fetched, files, source, not_carried, shown)


def _table(files: PluginFiles) -> Mapping[str, object]:
    """The manifest as it stands; empty where it is broken, which reading it properly says."""
    try:
        return tomllib.loads(files.files[MANIFEST_NAME].decode("utf-8-sig"))
    except (KeyError, ValueError, RecursionError):
        return {}


def _not_carried(table: Mapping[str, object], files: PluginFiles) -> Iterator[NotCarried]:
    hooks = table.get("hooks")
    if isinstance(hooks, dict) and hooks:
        yield NotCarried("hooks", f"{', '.join(sorted(map(str, hooks)))}: no hook is run")
    if table.get("isolation") == "process":
        yield NotCarried('isolation = "process"', "plugins run in the host only")
    requires = table.get("requires")
    if isinstance(requires, list) and requires:
        named = [str(each.get("binary", "?")) for each in requires if isinstance(each, dict)]
        yield NotCarried("requires", f"{', '.join(named)}: nobody looks whether it is here")
    for key, detail in _NOT_DONE.items():
        if table.get(key):
            yield NotCarried(key, detail)
    requirements = files.files.get("requirements.txt", b"").decode("utf-8", "replace").splitlines()
    if any(line.strip() and not line.strip().startswith("#") for line in requirements):
        yield NotCarried("requirements.txt", "no packages are installed for it: install them where Buzz runs")
    for folder, noun in (("skills", "skills"), ("hooks", "hook scripts")):
        count = sum(name.startswith(f"{folder}/") for name in files.files)
        if count and not (folder == "hooks" and hooks):
            yield NotCarried(noun, f"{count} files in {folder}/")
    for name in (".mcp.json", "mcp.json"):
        if name in files.files:
            yield NotCarried("tools", f"{name}: no server of it is started")


def _must_be_what_it_says(table: Mapping[str, object], files: PluginFiles) -> None:
    """Hold the files against the `[integrity]` of the manifest, where it has one."""
    integrity = table.get("integrity")
    for name, digest in (integrity if isinstance(integrity, dict) else {}).items():
        if name not in files.files:
            raise Refused(f"{files.root / MANIFEST_NAME}: integrity: names {name}, and there is no such file")
        if sha256(files.files[name]).hexdigest() != str(digest).lower().removeprefix("sha256:"):
            raise Refused(f"{files.root / name}: is not the file that the [integrity] of its {MANIFEST_NAME} names")


def _must_hide_nothing(source: PluginSource, table: Mapping[str, object]) -> None:
    """Refuse a plugin that says something about itself which a reader would not see."""
    said = {"version": source.version, "description": source.description, "author": source.author, "name": source.title}
    for key, text in (*said.items(), *_texts("", table)):
        if match := _HIDDEN.search(_FLAG.sub("", text)):
            raise Refused(
                f"{source.where}: {key}: has an invisible character (U+{ord(match[0][0]):04X}), which could hide words "
                "from you"
            )


def _texts(key: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _texts(f"{key}.{name}" if key else str(name), str(name))
            yield from _texts(f"{key}.{name}" if key else str(name), each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(key, each)
