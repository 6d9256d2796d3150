"""The report itself: every room can be asked, and a row that misses what is owed says so."""

from __future__ import annotations

import importlib

import pytest

from tests.benchmarks.__main__ import ROOMS, line, main
from tests.benchmarks.measuring import compare, paired_row, percentile


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_can_be_asked_for_its_rows(room: str) -> None:
    assert callable(importlib.import_module(f"tests.benchmarks.{room}").rows)


def test_the_median_of_the_ratios_counts() -> None:
    row = paired_row("x", [1.0, 20.0, 3.0], [1.0, 10.0, 1.0], peer_name="y", at_most=2)
    assert (row.ratio, row.missed, row.owed) == (2.0, False, "≤ 2×")
    assert paired_row("x", [2.1], [1.0], peer_name="y", at_most=2).missed
    assert not paired_row("x", [2.1], [1.0], peer_name="y", at_most=2, extra_s=0.2).missed
    assert not paired_row("x", [1.0], [45.0], peer_name="y", at_least=40).missed
    assert paired_row("x", [1.0], [39.0], peer_name="y", at_least=40).missed
    assert not paired_row("x", [1.0], [0.001], peer_name="y").missed


def test_percentiles() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([float(n) for n in range(100)], 99) == 99.0
    assert percentile([1.0], 99) == 1.0


def test_a_row_is_one_line_with_its_mark() -> None:
    shown = line(paired_row("turn text", [2e-3], [1e-6], peer_name="join", at_most=2, note="n"))
    assert shown.split() == [
        "turn", "text", "2", "ms", "2", "ms", "1", "µs", "1", "µs", "2000×", "≤", "2×", "✗", "MISSED",
        "beside", "join;", "n",
    ]  # fmt: skip
    assert "✓" in line(compare("x", lambda: 1, lambda: 2, peer_name="y", at_most=1e9, budget_s=0))


def test_an_unknown_room_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["nothing"])
    assert caught.value.code == 2
    assert "no room is called nothing" in capsys.readouterr().err
