"""What other verbs do for attached sessions: keep the sets on disk as they are now, bring notes into the ledger.

Both cost one look at a folder where nothing is attached. A running host does the first by itself.
"""

from __future__ import annotations

import os

from buzz_host.cli.options import home_path
from buzz_host.cli.output import note

_FOLDER = "attach"
_REGISTRY = "attachments.json"
_SPOOL = "spool"


def keep_sets() -> None:
    """Write the last sets anew, after a verb that may have changed them; a fault is a line beside the output."""
    root = _root()
    if root is None or not os.path.exists(os.path.join(root, _FOLDER, _REGISTRY)):  # noqa: PTH110, PTH118 - no pathlib
        return
    import asyncio

    from buzz_author.errors import BuzzError
    from buzz_host.attach.listener import listening
    from buzz_host.attach.snapshots import write_snapshots
    from buzz_host.settings import Home

    try:
        home = Home.resolve(home_path())
        if listening(home) is None:
            asyncio.run(write_snapshots(home))
    except (BuzzError, OSError) as error:
        _say(f"attached sessions still get the set of before: {error}")


def bring_in_notes() -> None:
    """Bring into the ledger what was handed over while no host ran; a fault is a line beside the output."""
    root = _root()
    try:
        if root is None or not os.listdir(os.path.join(root, _FOLDER, _SPOOL)):  # noqa: PTH118, PTH208 - no pathlib
            return
    except OSError:
        return
    from buzz_author.errors import BuzzError
    from buzz_host.attach.spool import bring_in
    from buzz_host.settings import Home

    try:
        bring_in(Home.resolve(home_path()))
    except (BuzzError, OSError) as error:
        _say(f"what was handed over while no host ran is not in the ledger yet: {error}")


def _root() -> str | None:
    path = home_path()
    named = str(path) if path is not None else os.environ.get("BUZZ_HOME") or "~/.buzz"
    root = os.path.expanduser(named)  # noqa: PTH111 - no pathlib
    return root if not root.startswith("~") else None


def _say(line: str) -> None:
    from buzz_host.terminal import printable_line

    note(f"warning: {printable_line(line)}", fg="yellow")
