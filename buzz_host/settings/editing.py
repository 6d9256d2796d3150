"""Changing `buzz.toml` for a person: their comments, order and spacing stay, and nothing is ever lost.

An edit holds a lock that all processes share, reads what is there now, changes it, checks the result by the rules of
reading, and replaces the file in one step. So two edits at once both count, and a crash leaves the old file or the new.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING

from buzz_author.json_values import JsonValue
from buzz_host.settings.buzz_toml import FILE_NAME, Settings, SettingsError, read_text, wrong
from buzz_host.settings.files import locked, replace_file
from buzz_host.settings.home import Home
from buzz_host.settings.toml_words import KeyPath

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


class SettingsEdit:
    """What an edit may do. A key's path is a tuple, such as `("agents", "dev", "plugins_off")`; tables are made as
    they are needed."""

    def __init__(self, document: TOMLDocument) -> None:
        self._document = document

    def add(self, path: KeyPath, name: str) -> None:
        """Put `name` at the end of the list at `path`, unless it is in it."""
        names = self._list(path, make=True)
        if name not in names:
            names.append(name)

    def remove(self, path: KeyPath, name: str) -> None:
        """Take every `name` out of the list at `path`; nothing happens where it is not in it."""
        names = self._list(path, make=False)
        while name in names:
            names.remove(name)
            if not names and not _commented(names):
                # What we have emptied says nothing any more; a comment at it is the person's.
                self.drop(path)

    def put(self, path: KeyPath, value: JsonValue) -> None:
        """Set the value at `path`."""
        self._table(path[:-1], make=True)[path[-1]] = value

    def drop(self, path: KeyPath) -> None:
        """Remove the key or table at `path`; nothing happens where there is none."""
        self._table(path[:-1], make=False).pop(path[-1], None)

    def _list(self, path: KeyPath, *, make: bool) -> list[object]:
        table = self._table(path[:-1], make=make)
        if path[-1] not in table:
            fresh: list[object] = []
            if not make:
                return fresh
            table[path[-1]] = fresh
        names = table[path[-1]]
        if not isinstance(names, list):
            raise wrong(path, "a list of texts", names)
        return names

    def _table(self, path: KeyPath, *, make: bool) -> MutableMapping[str, object]:
        import tomlkit
        from tomlkit.items import InlineTable

        table: MutableMapping[str, object] = self._document
        for depth, key in enumerate(path):
            if key not in table:
                if not make:
                    return {}
                # A table within braces stays within them: TOML has no other place for it.
                inline = isinstance(table, InlineTable)
                table[key] = tomlkit.inline_table() if inline else tomlkit.table(is_super_table=depth < len(path) - 1)
            below = table[key]
            if not isinstance(below, MutableMapping):
                raise wrong(path[: depth + 1], "a table", below)
            table = below
        return table


def _commented(names: list[object]) -> bool:
    """Whether there is a comment in the list, or behind it."""
    from tomlkit.items import Array

    return isinstance(names, Array) and ("#" in names.as_string() or bool(names.trivia.comment))


def edit(home: Home, change: Callable[[SettingsEdit], None]) -> Settings:
    """Change `buzz.toml` of `home` by `change`, and give the settings that hold then.

    Durable when it returns; the file is not touched when nothing changed. Raises `SettingsError`, and leaves the file
    as it was, where it is broken already, would be broken by the change, is a link, or cannot be written.
    """
    import tomlkit

    home.writable_root()
    if home.config.is_symlink():
        # Writing through it would write outside of the home (SEC-03); replacing it would cut off the file it names.
        raise SettingsError(
            f"{home.config} is a link to {home.config.readlink()}: edit that file, or put a file in the link's place"
        )
    try:
        with locked(home.config):
            before = read_text(home)
            Settings.read(home)
            document = tomlkit.parse(before)
            change(SettingsEdit(document))
            after = tomlkit.dumps(document)
            settings = _checked(after)
            if after != before:
                replace_file(home.config, after.encode("utf-8"))
            return settings
    except OSError as error:
        raise SettingsError(
            f"{home.config}: could not be written ({error.strerror}); its old content is still there"
        ) from None


def _checked(text: str) -> Settings:
    try:
        return Settings.parse(text)
    except SettingsError as error:
        raise SettingsError(f"this change would break {FILE_NAME}, so it was not made: {error}") from None
