"""Measuring two things beside each other on a machine that other people use as well.

Ours and the peer take turns (ABAB), so that a neighbour who wakes up slows down both; what counts is the median of the
ratios of neighbouring pairs.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.benchmarks.row import Row

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_AT_LEAST_S = 0.002
ROW_BUDGET_S = 0.5
PAIRS_AT_LEAST = 5  # of what takes longer than that
PAIRS_AT_MOST = 400
PAIRS_OF_PROGRAMS = 15

Work = Callable[[], object]


def compare(
    name: str,
    ours: Work,
    peer: Work,
    *,
    peer_name: str,
    at_most: float | None = None,
    at_least: float | None = None,
    extra_s: float = 0.0,
    budget_s: float = ROW_BUDGET_S,
    note: str = "",
) -> Row:
    """The row of `ours` against `peer`. `at_most` bounds ours / peer, `at_least` peer / ours (how many times faster);
    `extra_s` seconds of ours are allowed on top of the ratio."""
    ours(), peer()  # warm
    number_ours, number_peer = _calls_in_a_sample(ours), _calls_in_a_sample(peer)
    ours_s: list[float] = []
    peer_s: list[float] = []
    end = time.perf_counter() + budget_s
    while len(ours_s) < PAIRS_AT_LEAST or (time.perf_counter() < end and len(ours_s) < PAIRS_AT_MOST):
        ours_s.append(_sample(ours, number_ours))
        peer_s.append(_sample(peer, number_peer))
    return paired_row(
        name, ours_s, peer_s, peer_name=peer_name, at_most=at_most, at_least=at_least, extra_s=extra_s, note=note
    )


def paired_row(
    name: str,
    ours_s: Sequence[float],
    peer_s: Sequence[float],
    *,
    peer_name: str,
    at_most: float | None = None,
    at_least: float | None = None,
    extra_s: float = 0.0,
    note: str = "",
) -> Row:
    """The row of measurements that were taken in turns, in seconds of one operation."""
    allowed = statistics.median((o - extra_s) / p for o, p in zip(ours_s, peer_s, strict=True))
    ratio = statistics.median(o / p for o, p in zip(ours_s, peer_s, strict=True))
    owed = ""
    missed = False
    if at_most is not None:
        owed = f"≤ {at_most:g}×" + (f" + {extra_s * 1e3:g} ms" if extra_s else "")
        missed = allowed > at_most
    if at_least is not None:
        owed = f"≥ {at_least:g}× faster"
        missed = missed or 1 / ratio < at_least
    return Row(
        name=name,
        ours_p50_s=percentile(ours_s, 50),
        ours_p99_s=percentile(ours_s, 99),
        peer=peer_name,
        peer_p50_s=percentile(peer_s, 50),
        peer_p99_s=percentile(peer_s, 99),
        ratio=ratio,
        owed=owed,
        missed=missed,
        note=note,
    )


def growth(
    name: str, work_of: Callable[[int], Work], small: int, *, factor: int, at_most: float, note: str = ""
) -> Row:
    """The row of `factor` times the work against the work itself: linear is a ratio of `factor`."""
    return compare(
        name,
        work_of(small * factor),
        work_of(small),
        peer_name=f"the same with {small:,} instead of {small * factor:,}",
        at_most=at_most,
        note=note,
    )


def compare_programs(
    name: str,
    ours: Sequence[str],
    peer: Sequence[str],
    *,
    peer_name: str,
    at_most: float | None = None,
    pairs: int = PAIRS_OF_PROGRAMS,
    note: str = "",
) -> Row:
    """The row of two whole processes, each given as arguments for this Python."""
    ours_s, peer_s = [], []
    for arguments in (ours, peer):
        _process_s(arguments)  # warm the caches of the file system
    for _ in range(pairs):
        ours_s.append(_process_s(ours))
        peer_s.append(_process_s(peer))
    return paired_row(name, ours_s, peer_s, peer_name=peer_name, at_most=at_most, note=note)


def percentile(samples: Sequence[float], per_cent: int) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, len(ordered) * per_cent // 100)]


def _process_s(arguments: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _calls_in_a_sample(work: Work) -> int:
    number = 1
    while (took := _sample(work, number) * number) < SAMPLE_AT_LEAST_S:
        number *= max(2, min(100, int(SAMPLE_AT_LEAST_S / max(took, 1e-7))))
    return number


def _sample(work: Work, number: int) -> float:
    """Seconds of one call, over `number` calls, the garbage collector held off."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        started = time.perf_counter()
        for _ in range(number):
            work()
        return (time.perf_counter() - started) / number
    finally:
        if was_on:
            gc.enable()
