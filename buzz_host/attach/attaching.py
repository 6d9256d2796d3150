"""Attaching and detaching: the settings file, the registry, the client and the last set on disk, together.

A project is attached in `.claude/settings.local.json`, never in the `settings.json` that a team shares: the entry names
a program in this person's home, which is nobody else's (AUT-03).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_host.agents.catalogue import AgentCatalogue
from buzz_host.attach.client import write_client
from buzz_host.attach.hook_entries import holds, insert, remove
from buzz_host.attach.json_text import JsonText, JsonTextError
from buzz_host.attach.registry import (
    DEFAULT_ENTRIES,
    Attachment,
    Places,
    attachments,
    entries_of,
    identifier,
    keep,
    registry_lock,
)
from buzz_host.attach.settings_file import SettingsFile, SettingsFileError
from buzz_host.attach.snapshots import drop_snapshots
from buzz_host.settings import Home, replace_file

CONFIG_VARIABLE: Final = "CLAUDE_CONFIG_DIR"
PROJECT_SETTINGS: Final = Path(".claude", "settings.local.json")
USER_SETTINGS: Final = "settings.json"


class NotAttached(BuzzError, LookupError):
    """There is nothing to detach."""


@attrs.frozen
class Target:
    """What is attached or detached: the settings file, and the project it is for (None: all projects of the person)."""

    file: Path
    project: Path | None

    @classmethod
    def of(cls, project: Path | None, *, user: bool) -> Target:
        """The target of a command: the person's own settings, or `project` (else the folder we are in).

        Raises `BuzzError` for a project that is no folder, or whose name cannot be written on one line.
        """
        if user:
            folder = claude_folder()
            return cls(folder / USER_SETTINGS, None)
        try:
            place = (project or Path()).expanduser().resolve(strict=True)
        except (OSError, RuntimeError):
            raise BuzzError(f"{project or 'this folder'}: there is no such folder") from None
        if not place.is_dir():
            raise BuzzError(f"{place}: is no folder: name the project's folder")
        if not str(place).isprintable():
            raise BuzzError(f"{str(place)!a}: a folder whose name has control characters cannot be attached")
        return cls(place / PROJECT_SETTINGS, place)


@attrs.frozen
class Attached:
    """What came of attaching. `already`: nothing had to be changed. `warnings` are lines for people."""

    attachment: Attachment
    already: bool
    warnings: tuple[str, ...] = ()


@attrs.frozen
class Detached:
    """What came of detaching. `untouched`: the entries were gone already; `removed` are the file and folders that we
    had made, and that are gone again."""

    attachment: Attachment
    untouched: bool
    removed: tuple[Path, ...] = ()


def claude_folder() -> Path:
    """Where Claude Code keeps the person's own settings. Raises `BuzzError` for an account without a home folder."""
    named = os.environ.get(CONFIG_VARIABLE)
    try:
        return Path(named).expanduser().absolute() if named else Path.home() / ".claude"
    except RuntimeError:
        raise BuzzError(f"this account has no home folder: set HOME, or {CONFIG_VARIABLE}") from None


def attach(home: Home, target: Target, *, agent: str | None = None, entries: int | None = None) -> Attached:
    """Put our hook entries into the settings file of `target`, or bring those that are there up to date.

    `agent` is whose sections are handed over (None: as before, else the default agent of each moment); `entries` is how
    many hook entries share them (None: as before, else 2). Raises `BuzzError`, and changes nothing, where the file
    cannot be edited safely, the agent is not there, or the client cannot run here.
    """
    if agent is not None:
        agent = AgentCatalogue.load(home).get(agent).name
    with registry_lock(home):
        known = {each.id: each for each in attachments(home)}
        old = known.get(identifier(target.file))
        write_client(home)
        wanted = Attachment(
            id=identifier(target.file),
            scope="user" if target.project is None else "project",
            folder="" if target.project is None else str(target.project),
            file=str(target.file),
            agent=agent if agent is not None else old.agent if old else "",
            entries=entries or (old.entries if old else DEFAULT_ENTRIES),
            inserted=old.inserted if old else "",
            made=old.made if old else "none",
            made_file=old.made_file if old else False,
            made_folders=old.made_folders if old else (),
        )
        file = SettingsFile.read(target.file)
        text, made = _planned(home, file, wanted, old)
        others = tuple(each for each in known.values() if each.id != made.id)
        # First what has to be undone, then what has to be undone is done: whatever is cut off, detaching is exact.
        keep(home, (*others, made))
        if text is not None:
            try:
                file.replace(text)
            except BuzzError:
                keep(home, tuple(known.values()))
                raise
        write_speakers(home, attachments(home))
    return Attached(made, already=text is None and made == old, warnings=_warnings(made))


def detach(home: Home, target: Target) -> Detached:
    """Take out of the settings file of `target` exactly what was put in.

    The file is the same to the byte where nobody else touched it, and gone where we made it. Raises `NotAttached`, and
    `BuzzError` where the file cannot be edited.
    """
    with registry_lock(home):
        known = attachments(home)
        old = next((each for each in known if each.id == identifier(target.file)), None)
        if old is None:
            raise NotAttached(_not_attached(target, known))
        untouched, removed = _take_out(home, old)
        keep(home, tuple(each for each in known if each.id != old.id))
        write_speakers(home, attachments(home))
        drop_snapshots(home, old.id)
    return Detached(old, untouched, removed)


def write_speakers(home: Home, attached: tuple[Attachment, ...]) -> None:
    """Write for the client which attachment is meant for which folder: those whose settings file has our entries now.

    Under `registry_lock`.
    """
    lines = [f"{each.id}\t{each.folder}\n" for each in attached if is_in_place(home, each)]
    content = "".join(lines).encode("utf-8", "surrogateescape")
    path = Places(home).speakers
    if not path.exists() or path.read_bytes() != content:
        replace_file(path, content, durable=False)


def is_in_place(home: Home, attachment: Attachment) -> bool:
    """Whether the settings file still has exactly our entries, and the program can read it as far as can be seen."""
    try:
        return holds(SettingsFile.read(Path(attachment.file)).text, entries_of(home, attachment))
    except BuzzError:
        return False


def _planned(
    home: Home, file: SettingsFile, wanted: Attachment, old: Attachment | None
) -> tuple[str | None, Attachment]:
    """The text that the settings file gets (None: it stays), and what the registry is to say of it."""
    entries = entries_of(home, wanted)
    with _named(file):
        if file.octets is None:
            inserted = insert("", entries)
        elif holds(file.text, entries):
            return None, wanted
        else:
            before = entries_of(home, old or wanted)
            text = remove(file.text, before, old.inserted if old else None, old.made if old else "none")
            inserted = insert(text, entries)
    fresh = file.octets is None
    return inserted.text, attrs.evolve(
        wanted,
        inserted=inserted.inserted,
        made=inserted.made,
        made_file=fresh or wanted.made_file,
        made_folders=tuple(map(str, file.missing_folders)) if fresh else wanted.made_folders,
    )


def _take_out(home: Home, old: Attachment) -> tuple[bool, tuple[Path, ...]]:
    file = SettingsFile.read(Path(old.file))
    if file.octets is None:
        return True, _remove_folders(old)
    with _named(file):
        text = file.text
        after = remove(text, entries_of(home, old), old.inserted, old.made)
        empty = JsonText(after).value == {} and not JsonText(after).has_comments
    if after == text:
        return True, ()
    if old.made_file and empty:
        file.delete()
        return False, (file.path, *_remove_folders(old))
    file.replace(after)
    return False, ()


def _remove_folders(old: Attachment) -> tuple[Path, ...]:
    """Remove the folders that we made, innermost first, as far as nobody has put anything into them."""
    removed = []
    for each in reversed(old.made_folders):
        try:
            Path(each).rmdir()
        except OSError:
            break
        removed.append(Path(each))
    return tuple(removed)


@contextmanager
def _named(file: SettingsFile) -> Iterator[None]:
    """What is wrong in the text is told with the file's name."""
    try:
        yield
    except JsonTextError as error:
        raise SettingsFileError(f"{file.path}: {error}; nothing was changed") from None


def _warnings(made: Attachment) -> tuple[str, ...]:
    read = JsonText(SettingsFile.read(Path(made.file)).text)
    lines = []
    if read.lenient:
        what = "comments" if read.has_comments else "a comma behind a last value"
        lines.append(
            f"{made.file} has {what}: Claude Code 2.1 does not load such a file, so nothing in it holds, our entries "
            "included; `buzz harness doctor claude --attached` shows what yours does with its hooks"
        )
    if read.value.get("disableAllHooks") is True:
        lines.append(f"{made.file} says `disableAllHooks`: the program runs no hook, ours included")
    return tuple(lines)


def _not_attached(target: Target, known: tuple[Attachment, ...]) -> str:
    what = f"project {target.project}" if target.project is not None else "the person's own settings"
    if not known:
        return f"{what}: nothing is attached here or anywhere else"
    others = "; ".join("--user" if each.scope == "user" else f"--project {each.folder}" for each in known)
    return f"{what}: nothing is attached here; attached are: {others}"
