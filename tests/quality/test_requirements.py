"""The table of requirements and the tests say the same, both ways; and the comparison itself finds each fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import attrs
import pytest

from tests.quality.requirements import TABLE, Row, parse_row, problems, read_rows, rewritten
from tests.quality.tree import ROOT

GOOD = Row("INS-01", "a thing", "claimed", ("tests/a.py",), "the check")


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the tests of this tree name, collected in a process of its own."""
    answer = tmp_path_factory.mktemp("collected") / "named.json"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.quality.requirements", "--collect", str(answer)],
        cwd=ROOT, env=environment, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    collected: dict[str, list[str]] = json.loads(answer.read_text(encoding="utf-8"))
    return collected


def test_table_and_tests_are_in_step(named: dict[str, list[str]]) -> None:
    rows = read_rows(TABLE.read_text(encoding="utf-8"))
    assert len(rows) > 100
    assert "\n".join(problems(rows, named)) == ""


def test_a_good_row_has_no_problem() -> None:
    assert list(problems([GOOD], {"INS-01": ["tests/a.py"]})) == []


@pytest.mark.parametrize(
    ("rows", "named", "expected"),
    [
        ([GOOD], {}, "no test names it"),
        ([attrs.evolve(GOOD, state="planned")], {"INS-01": ["tests/a.py"]}, "planned, but named by tests/a.py"),
        ([attrs.evolve(GOOD, state="part")], {"INS-01": ["tests/a.py"]}, "expected `claimed`"),
        ([attrs.evolve(GOOD, mutation="")], {"INS-01": ["tests/a.py"]}, "no mutation was tried"),
        ([GOOD], {"INS-01": ["tests/b.py"]}, "the column of tests is old"),
        ([GOOD], {"INS-01": ["tests/a.py"], "INS-99": ["tests/a.py"]}, "no such row"),
        ([GOOD], {"INS-01": ["tests/a.py"], "": ["tests/a.py::test_x"]}, "tests/a.py::test_x: names no requirement"),
        ([GOOD, GOOD], {"INS-01": ["tests/a.py"]}, "two rows"),
    ],
)
def test_each_fault_is_found(rows: list[Row], named: dict[str, list[str]], expected: str) -> None:
    assert any(expected in problem for problem in problems(rows, named))


def test_writing_fills_the_column_of_tests_and_keeps_the_rest() -> None:
    page = "# Title\n\n" + attrs.evolve(GOOD, about=r"this \| that", tests=()).line() + "\nend\n"
    written = rewritten(page, {"INS-01": ["tests/a.py", "tests/b.py"]})
    assert written == page.replace("|  |", "| `tests/a.py`, `tests/b.py` |")
    assert rewritten(written, {}) == page
    row = parse_row(written.split("\n")[2])
    assert row
    assert row.tests == ("tests/a.py", "tests/b.py")
