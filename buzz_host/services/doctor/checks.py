"""One check as a value, and what keeps a check from doing harm: it may neither raise nor last.

A check runs on a thread of its own. One that is out of time is told as such and left to itself: it only reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final, Literal

import attrs

from buzz_author.errors import BuzzError, describe

Level = Literal["ok", "note", "problem"]
# Loading the plugins may take 2 s, ending them 10 s, and asking each harness 10 s.
CHECK_DEADLINE_S: Final = 30.0


@attrs.frozen
class Check:
    """One thing that was looked at, as one line: what, where, and for a note or a problem what to do.

    A `problem` keeps something from working or from being safe; a `note` is worth knowing.
    """

    area: str
    level: Level
    line: str


def ok(area: str, line: str) -> Check:
    """It is as it should be."""
    return Check(area, "ok", _one_line(line))


def note(area: str, line: str) -> Check:
    """It works, and is worth knowing."""
    return Check(area, "note", _one_line(line))


def problem(area: str, line: str) -> Check:
    """It has to be put right."""
    return Check(area, "problem", _one_line(line))


def bounded(
    area: str, look: Callable[[], Iterable[Check]], *, deadline_s: float | None = CHECK_DEADLINE_S
) -> list[Check]:
    """What `look` finds, within `deadline_s` (None: however long it takes). Never raises: a fault is a check as well,
    beside what was found until then."""
    told: SimpleQueue[Check | None] = SimpleQueue()

    def run() -> None:
        try:
            for each in look():
                told.put(each)
        except BuzzError as error:
            told.put(problem(area, str(error)))
        except BaseException as error:
            told.put(problem(area, f"could not be looked at to the end: {describe(error)}"))
        finally:
            told.put(None)

    threading.Thread(target=run, name=f"buzz-doctor-{area}", daemon=True).start()
    until = None if deadline_s is None else monotonic() + deadline_s
    found: list[Check] = []
    while True:
        try:
            each = told.get(timeout=None if until is None else max(0.0, until - monotonic()))
        except Empty:
            found.append(problem(area, f"could not be looked at to the end within {deadline_s:g} s"))
            return found
        if each is None:
            return found
        found.append(each)


def _one_line(text: str) -> str:
    return " ".join(text.split())
