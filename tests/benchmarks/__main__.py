"""`python -m tests.benchmarks [ROOM …]`: the speed that we owe, each row beside its peer of the same run.

It is a report: it ends with 0 whatever it found, and marks each row that misses what is owed. `--json` prints one
object a row.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator, Sequence

import attrs

from tests.benchmarks.row import Row

# Each is a module of this folder with `rows()`, an iterable of `Row`; a new room is named here.
ROOMS = ("attach", "author", "cli", "ledger", "turns")
NAME_COLUMNS = 48


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(ROOMS)}; all without any")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.rooms) - set(ROOMS))
    if unknown:
        parser.error(f"no room is called {', '.join(unknown)}; there are: {', '.join(ROOMS)}")
    missed = 0
    if not chosen.json:
        print(f"{'':{NAME_COLUMNS}} {'p50':>9} {'p99':>9} {'peer p50':>9} {'peer p99':>9} {'ratio':>8}  owed")
    for room in chosen.rooms or ROOMS:
        if not chosen.json:
            print(f"-- {room}", flush=True)
        for row in _rows(room):
            missed += row.missed
            print(json.dumps(attrs.asdict(row), ensure_ascii=False) if chosen.json else line(row), flush=True)
    if not chosen.json:
        print(f"\n{missed} missed." if missed else "\nNothing is missed.")
    return 0


def _rows(room: str) -> Iterator[Row]:
    rows: Iterator[Row] = importlib.import_module(f"tests.benchmarks.{room}").rows()
    return rows


def line(row: Row) -> str:
    """A row as it is printed."""
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}×" if row.ratio < 100 else f"{row.ratio:.0f}×"
    owed = f"{row.owed}{'  ✗ MISSED' if row.missed else '  ✓'}" if row.owed else ""
    beside = "; ".join(part for part in (row.peer and f"beside {row.peer}", row.note) if part)
    return (
        f"{row.name:{NAME_COLUMNS}} {_time(row.ours_p50_s):>9} {_time(row.ours_p99_s):>9} "
        f"{_time(row.peer_p50_s):>9} {_time(row.peer_p99_s):>9} {ratio:>8}  {owed:<20} {beside}"
    ).rstrip()


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
