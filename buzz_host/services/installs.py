"""Installing and upgrading in a running host: put the plugin in its place, start it, and say what of it was carried.

What a plugin registers is known only once it runs, so the report is taken from the host that composes the turns. A new
version that does not start where the old one ran is taken back: nobody loses a plugin to an upgrade (CAT-01, CAT-02).
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import attrs

from buzz_author.errors import BuzzError
from buzz_author.names import folded
from buzz_host.plugins.contributions import NOTES
from buzz_host.plugins.discovery import discover
from buzz_host.plugins.install.checking import CarriesNothing, NotCarried
from buzz_host.plugins.install.installing import Placed, Question, install, put_back, uninstall
from buzz_host.plugins.install.integrity import Difference, differences
from buzz_host.plugins.install.lockfile import InstalledPlugin, Provenance, installed, read_lock
from buzz_host.plugins.install.requests import requested
from buzz_host.plugins.install.storing import staging
from buzz_host.plugins.linking import entries_named
from buzz_host.plugins.linking import remove as take_out
from buzz_host.services.plugins import ContributedText, plugin_view
from buzz_host.turns.snapshot import Standing

if TYPE_CHECKING:
    from buzz_host.services.host import Host
    from buzz_host.settings import Home

# Loading and `apply` have 10 s each; what is not there then is reported as it stands.
REPORT_WAIT_S: Final = 20.0

Outcome = Literal["installed", "upgraded", "unchanged", "repaired", "taken back", "asks", "not installed"]


@attrs.frozen
class InstallReport:
    """What an installation or upgrade did.

    `status`: `asks` where nothing was done before the person agrees to `question`; `not installed` where this version
    of Buzz carries nothing of the plugin; `taken back` where the new version did not start and the old one is in use
    again. `standing` and `detail` are what the next turn makes of it. What was carried: `instructions`, `notes` that
    wait for a turn, `harnesses`; `not_carried` is what it brings or asks for besides.
    """

    status: Outcome
    plugin: str
    version: str = ""
    before: str = ""
    source: str = ""
    commit: str = ""
    content_hash: str = ""
    question: str = ""
    standing: Standing | None = None
    detail: str = ""
    instructions: tuple[ContributedText, ...] = ()
    notes: int = 0
    harnesses: tuple[str, ...] = ()
    not_carried: tuple[NotCarried, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def carried(self) -> bool:
        """Whether anything of it is carried now."""
        return bool(self.instructions or self.notes or self.harnesses)

    @property
    def succeeded(self) -> bool:
        """Whether it is there and of use: it carries something, or it is switched off, so that nothing is expected."""
        return self.status not in ("asks", "not installed", "taken back") and (self.carried or self.standing == "off")


@attrs.frozen
class PluginCheck:
    """One installed plugin held against the lock: `differences` is empty where each byte is what was installed."""

    plugin: str
    version: str
    content_hash: str
    files: int
    differences: tuple[Difference, ...]


@attrs.frozen
class Removal:
    """A plugin that was taken out. `kept` is where its files are now, None where it was installed: they are gone from
    the store. `data` is what it keeps in the home, None where it keeps nothing."""

    name: str
    was_link: bool
    kept: Path | None
    data: Path | None
    line: str


@attrs.frozen
class KeptData:
    """What a plugin keeps in the home: the folder, and how much is in it; None and zeros where there is nothing."""

    plugin: str
    place: Path | None
    files: int = 0
    bytes: int = 0


async def install_plugin(host: Host, text: str, here: Path, subdir: str, *, agreed: bool) -> InstallReport:
    """Install what `text` names, seen from the folder `here`, and report it.

    `agreed` answers every question with yes. Raises `BuzzError` where nothing can be installed: nothing is changed.
    """
    return await _install(host, requested(text, here, subdir), agreed=agreed, only=None)


async def upgrade_plugin(host: Host, name: str) -> InstallReport:
    """Install the newest version of an installed plugin from where it came, and report it; what it keeps stays.

    Raises `BuzzError` where there is none, or none of that name any more: nothing is changed.
    """
    row = installed(read_lock(host.home.lock), name)
    wanted = attrs.evolve(row.provenance, commit="")
    return await _install(host, wanted, agreed=True, only=row.name)


def installed_names(home: Home) -> tuple[str, ...]:
    """The names of the installed plugins, sorted. Raises `LockFileError`."""
    return tuple(read_lock(home.lock))


def check_installed(home: Home, name: str | None) -> tuple[PluginCheck, ...]:
    """Hold each installed plugin, or the one called `name`, against the lock.

    Raises `NotInstalled`, `LockFileError`.
    """
    lock = read_lock(home.lock)
    rows: Sequence[InstalledPlugin] = tuple(lock.values()) if name is None else (installed(lock, name),)
    return tuple(
        PluginCheck(row.name, row.version, row.content_hash, len(row.files), differences(home, row)) for row in rows
    )


def remove_plugin(home: Home, name: str) -> Removal:
    """Take a plugin out of the home: one that is linked or dropped in, else one that is installed. What it keeps in
    `data/` stays. Raises `LinkError` or `BuzzError` where there is none."""
    lock = read_lock(home.lock)
    is_installed = any(folded(each) == folded(name) for each in lock)
    if entries_named(home.plugins, name) or not is_installed:
        gone = take_out(home, name)
        data = kept_data(home, gone.name).place
        line = gone.line
        if is_installed:
            line += "; the installed plugin of that name is in use now"
        return Removal(gone.name, gone.was_link, gone.kept, data, line)
    row = uninstall(home, name)
    data = kept_data(home, row.name).place
    what = f"plugin '{row.name}' {row.version}".rstrip() + " is removed"
    line = f"{what}; what it keeps stays in {data}" if data is not None else f"{what}; it kept nothing"
    return Removal(row.name, False, None, data, line)


def kept_data(home: Home, name: str) -> KeptData:
    """What the plugin called `name` keeps in the home."""
    for place in _folders(home.data):
        if folded(place.name) == folded(name):
            files = [each for each in place.rglob("*") if each.is_file() and not each.is_symlink()]
            return KeptData(place.name, place, len(files), sum(each.lstat().st_size for each in files))
    return KeptData(name, None)


async def purge_data(host: Host, name: str) -> KeptData:
    """Delete what a plugin that is not there any more keeps in the home; gives what that was.

    Raises `BuzzError` where the plugin is still there, or its folder cannot be taken away.
    """
    await host.plugins.refresh()
    for source in host.plugins.found.sources:
        if folded(source.id) == folded(name):
            raise BuzzError(f"plugin '{source.id}' is still there ({source.where}): what it keeps was not deleted")
    await host.plugins.settle(REPORT_WAIT_S)  # what it still does at its end is done before its folder goes
    return await asyncio.to_thread(_purged, host.home, name)


def _purged(home: Home, name: str) -> KeptData:
    kept = kept_data(home, name)
    if kept.place is not None:
        with staging(home) as staged:  # out of its place in one step; a kill leaves the rest to the next sweep
            try:
                kept.place.rename(staged / "purged")
            except OSError as error:
                raise BuzzError(f"{kept.place}: cannot be taken away ({error.strerror})") from None
            shutil.rmtree(staged / "purged", ignore_errors=True)
    return kept


async def _install(host: Host, wanted: Provenance, *, agreed: bool, only: str | None) -> InstallReport:
    await host.plugins.refresh()
    called_off = threading.Event()
    hides = await asyncio.to_thread(_hidden_by_installed, host)
    work = asyncio.to_thread(install, host.home, wanted, agreed=agreed, hides=hides, called_off=called_off, only=only)
    try:
        placed = await work
    except CarriesNothing as nothing:
        return InstallReport(
            "not installed", nothing.plugin, source=str(wanted), detail=str(nothing), not_carried=nothing.not_carried
        )
    except asyncio.CancelledError:
        called_off.set()
        raise
    if isinstance(placed, Question):
        return InstallReport("asks", placed.plugin, source=str(wanted), question=placed.text)
    ran = placed.before is not None and _standing(host, placed.row.name) == "active"
    await host.plugins.refresh()
    host.plugins.retry(placed.row.name)  # where it has failed at this very revision: who installs it, tries again
    await host.plugins.settle(REPORT_WAIT_S)
    report = _report(host, placed)
    before = placed.before if ran and placed.status == "upgraded" and report.standing == "failed" else None
    if before is not None and await asyncio.to_thread(put_back, host.home, placed.row, before):
        await host.plugins.refresh()
        await host.plugins.settle(REPORT_WAIT_S)
        return attrs.evolve(report, status="taken back", standing=_standing(host, placed.row.name))
    return report


def _hidden_by_installed(host: Host) -> dict[str, str]:
    """The plugins that an installed one would take the place of: those that come behind it in precedence."""
    sources = discover(host.home).sources
    behind = [each for each in sources if each.origin in ("entry point", "shipped")]
    return {folded(each.id): f"{each.where} ({each.origin})" for each in behind}


def _standing(host: Host, name: str) -> Standing:
    return plugin_view(host, name).standing


def _report(host: Host, placed: Placed) -> InstallReport:
    row, checked = placed.row, placed.checked
    view = plugin_view(host, row.name)
    why = view.detail or "; ".join(f"{each.phase}: {each.message}" for each in view.faults)
    return InstallReport(
        status=placed.status,
        plugin=row.name,
        version=row.version,
        before=placed.before.version if placed.before is not None else "",
        source=str(row.provenance),
        commit=row.provenance.commit,
        content_hash=row.content_hash,
        standing=view.standing,
        detail=why,
        instructions=view.instructions,
        notes=sum(each.plugin == row.name for each in host.plugins.contributions.snapshot(NOTES)),
        harnesses=view.harnesses,
        not_carried=checked.not_carried,
        warnings=checked.warnings,
    )


def _folders(parent: Path) -> list[Path]:
    try:
        return [each for each in parent.iterdir() if each.is_dir() and not each.is_symlink()]
    except OSError:
        return []
