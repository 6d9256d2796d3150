"""A plugin that was found: where it stands, what it says of itself, and the hash of its content.

Nothing of a plugin is executed to make one of these. The revision of a plugin is its content hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

import attrs

from buzz_author.errors import BuzzError, PluginFault
from buzz_author.json_values import JsonObject

Origin = Literal["--plugin", "dropped in", "linked", "installed", "entry point", "shipped"]
Form = Literal["folder", "file", "module"]

MANIFEST_NAME: Final = "plugin.toml"
NO_DEFAULTS: Final[JsonObject] = MappingProxyType({})


def one_line(text: str) -> str:
    """`text` on one line that can be shown and stored: paths may hold anything, and messages hold paths."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else ascii(each)[1:-1] for each in text])


class PluginPathError(BuzzError):
    """A path that a person named is missing, or is no plugin."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


@attrs.frozen
class SettingRule:
    """One `[config.<key>]` of `plugin.toml`: the type that a setting must have, and what it is for."""

    type: Literal["string", "number", "boolean"] | None = None
    description: str = ""


def fits(value: object, type_name: str | None) -> bool:
    """Whether a setting's value is of the type that its rule names; any value where it names none."""
    match type_name:
        case "string":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case _:
            return True


def named_type(type_name: str | None) -> str:
    """The type of a rule, for messages."""
    return {"string": "a text", "number": "a number", "boolean": "true or false"}.get(type_name or "", "a value")


@attrs.frozen
class Installation:
    """What the lock says of an installed plugin: the file `lock` itself, the `source` that was installed, with the
    `commit` where it was a git repository, and when."""

    lock: Path
    source: str
    commit: str
    installed_at: datetime


@attrs.frozen
class PluginSource:
    """One plugin, found but not loaded.

    `form` says how it is loaded: a folder, a single file, or a module by its import path (`import_path`, with the
    object in it after a colon). `defaults` are the settings that its `plugin.toml` gives, `setting_rules` what it says
    of them. `installation` is there for an installed one: its bytes are held against the lock at each load.
    """

    id: str
    origin: Origin
    form: Form
    content_hash: str
    path: Path | None = None
    import_path: str | None = None
    title: str = ""
    version: str = ""
    description: str = ""
    author: str = ""
    enabled_by_default: bool = True
    isolation: Literal["host", "process"] = "host"
    plugin_depends: tuple[str, ...] = ()
    defaults: JsonObject = NO_DEFAULTS
    setting_rules: Mapping[str, SettingRule] = attrs.field(factory=lambda: MappingProxyType({}))
    installation: Installation | None = None

    @property
    def where(self) -> str:
        """Its place, for people: a path, or the import path of a module."""
        return str(self.path) if self.form != "module" else str(self.import_path)


@attrs.frozen
class Discovery:
    """What a scan found: one source for each id, sorted; a fault for each that cannot be one; warnings as lines."""

    sources: tuple[PluginSource, ...] = ()
    faults: tuple[PluginFault, ...] = ()
    warnings: tuple[str, ...] = ()
