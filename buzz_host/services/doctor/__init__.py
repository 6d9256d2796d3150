"""`doctor`: looks at the whole installation, changes nothing, and says in plain words what to put right (OPS-01).

Each area is looked at by itself, within a time of its own: whatever is broken, the others are told all the same. A
face above the services may bring areas of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from buzz_author.errors import BuzzError
from buzz_host.services.doctor.checks import Check, Level, bounded, note, ok, problem
from buzz_host.settings import Home

__all__ = ["Area", "Check", "Level", "examine", "note", "ok", "problem"]

Area: TypeAlias = "tuple[str, Callable[[Home], Iterable[Check]]]"
"""An area by its name, and what looks at it."""


def examine(path: Path | None, *, full: bool = False, further: Sequence[Area] = ()) -> Iterator[Check]:
    """Every check, area by area, of the home at `path` (`$BUZZ_HOME`, else `~/.buzz`). Never raises.

    `full` goes through the whole ledger, however long that takes; else its newest entries are looked at. `further` are
    areas of other faces.
    """
    from buzz_host.services.doctor.database import database_checks
    from buzz_host.services.doctor.homes import home_checks
    from buzz_host.services.doctor.installation import installation_checks
    from buzz_host.services.doctor.leftovers import host_checks, leftover_checks
    from buzz_host.services.doctor.plugins import plugin_checks
    from buzz_host.services.doctor.written import agent_checks, settings_checks

    yield from bounded("installation", installation_checks)
    try:
        home = Home.resolve(path)
    except BuzzError as error:
        yield problem("home", str(error))
        yield note("home", "what is in a home could not be looked at: there is none that can be used")
        return
    areas: list[Area] = [
        ("home", home_checks),
        ("settings", settings_checks),
        ("agents", agent_checks),
        ("host", host_checks),
        ("plugins", plugin_checks),
    ]
    for area, look in areas:
        yield from bounded(area, lambda look=look: look(home))  # type: ignore[misc]
    yield from bounded("ledger", lambda: database_checks(home, full=full), deadline_s=None if full else 20.0)
    for area, look in (("leftovers", leftover_checks), *further):
        yield from bounded(area, lambda look=look: look(home))  # type: ignore[misc]
