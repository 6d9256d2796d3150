"""One row of the report: what was measured, what it was measured against, and what is owed.

A row is a value, so that every room can make rows in its own way and one place prints them.
"""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Row:
    """A measurement beside its peer from the same run. Times are seconds of one operation.

    `ratio` is the median of the ratios of neighbouring measurements (ours / peer), which a noisy machine disturbs less
    than a ratio of medians. `owed` is what DESIGN's table asks for, in words; `missed` whether this run does not reach
    it. A row without a peer has None there.
    """

    name: str
    ours_p50_s: float
    ours_p99_s: float
    peer: str = ""
    peer_p50_s: float | None = None
    peer_p99_s: float | None = None
    ratio: float | None = None
    owed: str = ""
    missed: bool = False
    note: str = ""
