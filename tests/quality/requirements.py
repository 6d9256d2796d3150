"""The table of requirements against the tests that name them: read, compared, and its column of tests written.

`python -m tests.quality.requirements --write` fills the column; states and mutations are written by people and
kept. The tests are asked of pytest itself, since only it knows which functions are tests and what marks them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import pytest

from tests.quality.tree import ROOT

TABLE = ROOT / "docs" / "requirements.md"
UNMARKED_FOLDERS = ("tests/quality/", "tests/benchmarks/")  # they judge the project, not a behaviour
ID_PATTERN = re.compile(r"[A-Z]{2,3}-[0-9]{2}")
STATE_PATTERN = re.compile(r"claimed|planned|part: \S.*")
COLUMNS = 5

Named = Mapping[str, Sequence[str]]  # requirement id -> the files whose tests name it; "" -> unmarked tests


@attrs.frozen
class Row:
    """One requirement as the table has it."""

    id: str
    about: str
    state: str
    tests: tuple[str, ...]
    mutation: str

    @property
    def holds(self) -> bool:
        """Whether this release claims the requirement, wholly or in part."""
        return self.state != "planned"

    def line(self) -> str:
        """The row as Markdown."""
        tests = ", ".join(f"`{file}`" for file in self.tests)
        return f"| {self.id} | {self.about} | {self.state} | {tests} | {self.mutation} |"


def parse_row(line: str) -> Row | None:
    """The row in one line of the page; None for every other line."""
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    if len(cells) != COLUMNS or not ID_PATTERN.fullmatch(cells[0]):
        return None
    return Row(cells[0], cells[1], cells[2], tuple(re.findall(r"`([^`]+)`", cells[3])), cells[4])


def read_rows(page: str) -> tuple[Row, ...]:
    return tuple(row for line in page.split("\n") if (row := parse_row(line)))


def rewritten(page: str, named: Named) -> str:
    """The page with its column of tests filled from what the tests name; nothing else is changed."""
    return "\n".join(
        attrs.evolve(row, tests=tuple(named.get(row.id, ()))).line() if (row := parse_row(line)) else line
        for line in page.split("\n")
    )


def problems(rows: Sequence[Row], named: Named) -> Iterator[str]:
    """Where table and tests are out of step, one line each."""
    ids = [row.id for row in rows]
    for doubled in sorted({id for id in ids if ids.count(id) > 1}):
        yield f"{doubled}: two rows"
    for unknown in sorted(set(named) - set(ids) - {""}):
        yield f"{unknown}: named by {', '.join(named[unknown])}, but the table has no such row"
    for unmarked in named.get("", ()):
        yield f"{unmarked}: names no requirement; mark it with @pytest.mark.req(…)"
    for row in rows:
        yield from _problems_of(row, tuple(named.get(row.id, ())))


def _problems_of(row: Row, files: tuple[str, ...]) -> Iterator[str]:
    if not STATE_PATTERN.fullmatch(row.state):
        yield f"{row.id}: state {row.state!r}; expected `claimed`, `planned` or `part: what is missing`"
    if row.holds and not files:
        yield f"{row.id}: {row.state}, but no test names it"
    if row.holds and not row.mutation:
        yield f"{row.id}: {row.state}, but no mutation was tried"
    if files and not row.holds:
        yield f"{row.id}: planned, but named by {', '.join(files)}"
    if row.tests != files:
        yield f"{row.id}: the column of tests is old; run python -m tests.quality.requirements --write"


class _Collector:
    """A pytest plugin that keeps which file names which requirement."""

    def __init__(self) -> None:
        self.named: dict[str, set[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            file = item.nodeid.partition("::")[0]
            ids = [id for marker in item.iter_markers("req") for id in marker.args]
            if not ids and not file.startswith(UNMARKED_FOLDERS):
                ids, file = [""], item.nodeid.partition("[")[0]
            for id in ids:
                self.named.setdefault(id, set()).add(file)


def collect() -> dict[str, list[str]]:
    """Which files' tests name which requirement. Raises SystemExit where a test file cannot be imported."""
    collector = _Collector()
    code = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", str(ROOT / "tests")], plugins=[collector])
    if code != pytest.ExitCode.OK:
        raise SystemExit("the tests cannot be collected; see above")
    return {id: sorted(files) for id, files in sorted(collector.named.items())}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.quality.requirements", description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true", help="fill the table's column of tests")
    choice.add_argument("--collect", type=Path, metavar="FILE", help="write what the tests name as JSON")
    chosen = parser.parse_args(arguments)
    named = collect()
    if chosen.collect:
        chosen.collect.write_text(json.dumps(named), encoding="utf-8")
        return 0
    page = rewritten(TABLE.read_text(encoding="utf-8"), named)
    TABLE.write_text(page, encoding="utf-8")
    left = list(problems(read_rows(page), named))
    print("\n".join(left) or "table and tests are in step")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
