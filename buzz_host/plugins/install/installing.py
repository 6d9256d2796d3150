"""Installing, upgrading and removing: fetch, judge, ask where something of the person's would change, write (CAT-02).

Everything is judged before the first byte of a plugin is written, and everything that could be refused is refused
before that too. What happens in the host once a plugin is there is not decided here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from buzz_author.errors import BuzzError
from buzz_author.names import folded
from buzz_host.plugins.install.checking import Checked, check
from buzz_host.plugins.install.fetching import Fetched, fetch
from buzz_host.plugins.install.integrity import differences
from buzz_host.plugins.install.listing import Refused
from buzz_host.plugins.install.lockfile import InstalledPlugin, Lock, NotInstalled, Provenance, installed, read_lock
from buzz_host.plugins.install.storing import Change, StoreError, changing, staging
from buzz_host.plugins.linking import entries_named

if TYPE_CHECKING:
    from buzz_host.settings import Home


class InTheWay(BuzzError):
    """Something of that name is there, and comes before what would be installed."""


@attrs.frozen
class Question:
    """What a person must agree to before a plugin is put in its place."""

    plugin: str
    text: str


@attrs.frozen
class Placed:
    """A plugin that is in its place now. `before` is what was installed under its name; `status` says what was done:
    `unchanged` where its content was there already, `repaired` where it was there and damaged."""

    row: InstalledPlugin
    checked: Checked
    before: InstalledPlugin | None
    status: Literal["installed", "upgraded", "unchanged", "repaired"]


def install(
    home: Home,
    wanted: Provenance,
    *,
    agreed: bool,
    hides: Mapping[str, str],
    called_off: threading.Event,
    only: str | None = None,
) -> Placed | Question:
    """Install what `wanted` names, or ask.

    `hides` says, by folded name, which plugins there are that an installed one would take the place of, and where they
    are from; `only` is the name that it must have. Blocks; setting `called_off` ends a git that runs. Raises
    `Refused`, `CarriesNothing`, `InTheWay`, `StoreError` or another `BuzzError`: nothing is changed then.
    """
    checked = check(_fetched(home, wanted, called_off))
    source = checked.source
    if only is not None and source.id != only:
        raise Refused(f"{wanted}: holds the plugin '{source.id}' now, and no '{only}': nothing was changed")
    question = _may_be_placed(home, read_lock(home.lock), checked, hides)
    if question is not None and not agreed:
        return question
    if called_off.is_set():
        raise StoreError(f"plugin '{source.id}' was not installed: it was called off")
    with staging(home) as staged, changing(home) as change:
        question = _may_be_placed(home, change.lock, checked, hides)
        if question is not None and not agreed:
            return question
        return _placed(home, change, checked, staged)


def put_back(home: Home, failed: InstalledPlugin, before: InstalledPlugin) -> bool:
    """Go back to `before`, which `failed` replaced; False where somebody else has changed it meanwhile, or the old
    files are not whole. Raises `StoreError`."""
    with changing(home) as change:
        now = change.lock.get(failed.name)
        if now != failed or differences(home, before):
            return False
        change.put(before)
        return True


def uninstall(home: Home, name: str) -> InstalledPlugin:
    """Take the installed plugin called `name` out; what it keeps in `data/` stays. Gives what it was.

    Raises `NotInstalled`, `StoreError`.
    """
    installed(read_lock(home.lock), name)  # before anything is made in a home where it is not
    with changing(home) as change:
        row = installed(change.lock, name)
        change.drop(row.name)
        return row


def _fetched(home: Home, wanted: Provenance, called_off: threading.Event) -> Fetched:
    if wanted.kind != "git":
        return fetch(wanted, Path(), called_off)
    try:
        with staging(home) as workplace:
            return fetch(wanted, workplace, called_off)
    except OSError as error:
        raise StoreError(
            f"{error.filename or home.store}: cannot be written ({error.strerror}); nothing was installed"
        ) from None


def _may_be_placed(home: Home, lock: Lock, checked: Checked, hides: Mapping[str, str]) -> Question | None:
    """What is to be asked before the plugin is put in its place. Raises `InTheWay` where it cannot be at all."""
    source = checked.source
    for each in entries_named(home.plugins, source.id):
        what = f"a link to {each.readlink()}" if each.is_symlink() else "dropped in"
        raise InTheWay(
            f"{each} ({what}) comes before an installed plugin of that name: take it out first with: "
            f"buzz plugin remove {source.id}"
        )
    try:
        before = installed(lock, source.id)
    except NotInstalled:
        hidden = hides.get(folded(source.id))
        if hidden is None:
            return None
        return Question(source.id, f"plugin '{source.id}' takes the place of {hidden}: install it?")
    if before.name != source.id:
        raise InTheWay(
            f"plugin '{before.name}' is installed, and '{source.id}' differs from it in '_' and '-' only: remove it "
            f"first with: buzz plugin remove {before.name}"
        )
    old, new = before.provenance, checked.fetched.provenance
    if (old.kind, old.location, old.subdir) == (new.kind, new.location, new.subdir):
        return None
    return Question(
        source.id,
        f"plugin '{source.id}' {before.version} is installed from {old}: replace it by {source.version} from {new}?",
    )


def _placed(home: Home, change: Change, checked: Checked, staged: Path) -> Placed:
    source, before = checked.source, change.lock.get(checked.source.id)
    same = before is not None and before.content_hash == source.content_hash
    whole = before is not None and not differences(home, before)
    row = InstalledPlugin(
        name=source.id,
        version=source.version,
        form=source.form,
        provenance=checked.fetched.provenance,
        content_hash=source.content_hash,
        files=checked.file_hashes,
        installed_at=before.installed_at if before is not None and same else datetime.now(UTC).replace(microsecond=0),
        previous=_previous(before, same),
    )
    if before is None:
        status: Literal["installed", "upgraded", "unchanged", "repaired"] = "installed"
    elif same:
        status = "unchanged" if whole else "repaired"
    else:
        status = "upgraded"
    if not (same and whole):
        change.store(checked.files, staged)
    if row != before or status == "repaired":  # written anew, the lock tells a running host to look again
        change.put(row)
    return Placed(row, checked, before, status)


def _previous(before: InstalledPlugin | None, same: bool) -> str:
    if before is None:
        return ""
    return before.previous if same else before.content_hash
