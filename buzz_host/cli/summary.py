"""What stands beside a turn on stderr, in a few lines: who speaks with how many bytes, what was left out, what failed.

Shared by `preview` and `run`, which print the text and the reply on stdout. Plain click, no rich: a preview is quick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from buzz_host.cli.output import note
from buzz_host.cli.wording import contribution, counted, cut, reason_in_words
from buzz_host.terminal import printable_line

if TYPE_CHECKING:
    from buzz_host.sessions.turn_text import TurnText


def note_turn(turn: TurnText) -> None:
    """The rows of one turn, or preview, on stderr."""
    size = len(turn.text.encode("utf-8", "replace"))
    whom = f"{printable_line(turn.agent)} on {printable_line(turn.harness)}"
    note(f"{turn.kind} to {whom}: {counted(size, 'byte')}{_by_plugin(turn)}", dim=True)
    for row in turn.left_out:
        name = printable_line(contribution(row.plugin, row.id))
        note(f"left out {name}: {reason_in_words(row.reason, row.detail)}", fg="yellow")
    told = {(row.plugin, row.detail) for row in turn.left_out}
    for fault in turn.faults:
        if (fault.plugin, fault.message) in told:
            continue  # the row above says it already
        note(
            f"fault of {printable_line(fault.plugin)} in {printable_line(fault.phase)}: {cut(fault.message)}", fg="red"
        )


def note_warnings(warnings: Iterable[str]) -> None:
    """What is odd in the files that a turn depends on, on stderr."""
    for line in warnings:
        note(f"warning: {cut(line)}", fg="yellow")


def _by_plugin(turn: TurnText) -> str:
    sizes: Counter[str] = Counter()
    for each in turn.sections:
        if each.plugin is not None:
            sizes[each.plugin] += each.bytes
    if not sizes:
        return ", no plugin speaks"
    return ", of which " + ", ".join(f"{printable_line(plugin)} {size:,}" for plugin, size in sorted(sizes.items()))
