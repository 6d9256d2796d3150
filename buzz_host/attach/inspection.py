"""What is attached where, and what is wrong with it: for `buzz attach status`, and for `buzz doctor` (AUT-03).

Everything is read from disk; no plugin is started. A settings file belongs to its owner, so what stands in it is looked
at anew each time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from buzz_author.errors import BuzzError
from buzz_author.names import folded
from buzz_host.attach.attaching import claude_folder, is_in_place
from buzz_host.attach.client import NoClient, find_bash, is_client
from buzz_host.attach.hook_entries import EVENT, HOOKS
from buzz_host.attach.json_text import JsonText
from buzz_host.attach.listener import listening
from buzz_host.attach.parts import units
from buzz_host.attach.registry import Attachment, Places, attachments
from buzz_host.attach.settings_file import SettingsFile
from buzz_host.attach.snapshots import current_snapshot
from buzz_host.attach.spool import waiting
from buzz_host.plugins.discovery import discover
from buzz_host.plugins.enablement import Enablement
from buzz_host.settings import Home

Level = Literal["problem", "warning"]
SHARED_SETTINGS: Final = ("settings.json", "settings.local.json")


@attrs.frozen
class Finding:
    """Something about an attachment that a person should know, as one line: what, where, and what to do."""

    level: Level
    about: str
    message: str


@attrs.frozen
class AttachmentStatus:
    """One attachment as it stands: whether the settings file still has our entries, whose sections it gets, and how
    many entries and characters the last set on disk has (None: there is no set yet)."""

    attachment: Attachment
    in_place: bool
    agent: str
    entries_used: int | None
    characters: int | None
    left_out: int


@attrs.frozen
class AttachStatus:
    """All attachments of a home; `host` is the process of the running host, None where none runs; `waiting` is how many
    notes of what was handed over without a host are not in the ledger yet."""

    attachments: tuple[AttachmentStatus, ...]
    host: int | None
    waiting: int


def status(home: Home) -> AttachStatus:
    """What is attached for `home`. Raises `BuzzError` for a registry or a buzz.toml that cannot be read."""
    default = Enablement(home).settings.default_agent
    rows = []
    for each in attachments(home):
        current = current_snapshot(home, each.id)
        rows.append(
            AttachmentStatus(
                each,
                is_in_place(home, each),
                each.agent or default,
                None if current is None else len(current.texts),
                None if current is None else sum(map(units, current.texts)),
                0 if current is None else sum(row.reason == "no-room" for row in current.left_out),
            )
        )
    return AttachStatus(tuple(rows), listening(home), waiting(home))


def findings(home: Home) -> tuple[Finding, ...]:
    """What is wrong, or worth knowing, with what is attached; nothing where nothing is. Never raises `BuzzError`."""
    try:
        found = status(home)
    except BuzzError as error:
        return (Finding("problem", str(Places(home).registry), str(error)),)
    if not found.attachments:
        return ()
    lines = [*_client(home), *_host(found)]
    for row in found.attachments:
        lines += _attachment(row)
        lines += _native(home, row)
    return tuple(lines)


def _client(home: Home) -> Iterator[Finding]:
    try:
        find_bash()
    except NoClient as error:
        yield Finding("problem", "bash", str(error))
    client = Places(home).client
    if not is_client(client):
        yield Finding("problem", str(client), f"{client} is missing or changed: `buzz attach claude` writes it anew")


def _host(found: AttachStatus) -> Iterator[Finding]:
    if found.host is None:
        yield Finding(
            "warning",
            "buzz serve",
            "no host runs, so attached sessions get the last set on disk: `buzz serve` gives them the current one",
        )
    if found.waiting:
        yield Finding(
            "warning",
            "the ledger",
            f"{found.waiting} notes of what was handed over without a host are not in the ledger yet: "
            "`buzz audit turns` brings them in",
        )


def _attachment(row: AttachmentStatus) -> Iterator[Finding]:
    each = row.attachment
    if not row.in_place:
        undo = "--user" if each.scope == "user" else f"--project {each.folder}"
        yield Finding(
            "problem",
            each.file,
            f"{each.file} no longer has our entries, or cannot be read: attach {each.where} again, or "
            f"`buzz detach {undo}`",
        )
    for read in _settings(Path(each.file)):
        if read.lenient:
            yield Finding("problem", each.file, f"{each.file} has comments, and Claude Code 2.1 loads no such file")
        if isinstance(read.value, dict) and read.value.get("disableAllHooks") is True:
            yield Finding("problem", each.file, f"{each.file} says `disableAllHooks`: the program runs no hook")
    if row.left_out:
        yield Finding(
            "warning",
            each.file,
            f"{row.left_out} sections do not fit into the {each.entries} entries of {each.where}: "
            f"`buzz attach claude --entries {each.entries + 1}` adds room",
        )


def _native(home: Home, row: AttachmentStatus) -> Iterator[Finding]:
    """The same plugin twice: through Buzz, and as a plugin, a skill or a hook of the program's own."""
    enablement = Enablement(home)
    enabled = {
        folded(source.id): source.id for source in discover(home).sources if enablement.enabled_for(source, row.agent)
    }
    for name, place in sorted(set(_native_names(home, row.attachment))):
        ours = enabled.get(folded(name))
        if ours is not None:
            yield Finding(
                "warning",
                place,
                f"plugin '{ours}' is there twice for {row.attachment.where}: through Buzz, and natively in {place}; "
                f"switch one off (`buzz plugin disable {ours}`)",
            )


def _native_names(home: Home, attachment: Attachment) -> Iterator[tuple[str, str]]:
    folders = []
    with contextlib.suppress(BuzzError):
        folders.append(claude_folder())
    if attachment.folder:
        folders.append(Path(attachment.folder) / ".claude")
    for folder in folders:
        for kind in ("skills", "plugins"):
            with contextlib.suppress(OSError):
                yield from ((each.name, str(each)) for each in (folder / kind).iterdir() if each.is_dir())
        for name in SHARED_SETTINGS:
            path = folder / name
            for read in _settings(path):
                yield from ((each, str(path)) for each in _named_in(read.value, str(Places(home).client)))


def _named_in(value: Any, ours: str) -> Iterator[str]:
    """The names of plugins in a settings file: those that are enabled, and what hooks run, `ours` apart."""
    if not isinstance(value, dict):
        return
    enabled = value.get("enabledPlugins")
    for name, on in enabled.items() if isinstance(enabled, dict) else ():
        if on:
            yield str(name).partition("@")[0]
    hooks = value.get(HOOKS)
    groups = hooks.get(EVENT) if isinstance(hooks, dict) else None
    for group in groups if isinstance(groups, list) else ():
        inner = group.get(HOOKS) if isinstance(group, dict) else None
        for hook in inner if isinstance(inner, list) else ():
            yield from _words_of(hook, ours)


def _words_of(hook: object, ours: str) -> Iterator[str]:
    """What a hook runs, as words that may be a plugin's name: the parts of the paths in its command."""
    if not isinstance(hook, dict):
        return
    command, arguments = hook.get("command"), hook.get("args")
    if isinstance(arguments, list) and ours in arguments:
        return
    for word in command.split() if isinstance(command, str) else ():
        path = Path(word.strip("'\""))
        yield from (path.stem, *path.parts)


def _settings(path: Path) -> Iterator[JsonText]:
    with contextlib.suppress(BuzzError):
        file = SettingsFile.read(path)
        if file.octets is not None:
            yield JsonText(file.text)
