"""`buzz run --harness all`: one text through each harness that is here, side by side.

The answers come as each program gives them; what is printed stands in the order of the harnesses, once all are there.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from buzz_author.errors import BuzzError
from buzz_host.cli.endings import EXIT_FAILED, EXIT_INTERRUPTED, Ending
from buzz_host.cli.options import home_path
from buzz_host.cli.output import note, print_json
from buzz_host.cli.wording import counted, cut, shortened
from buzz_host.services.calls import ListHarnesses
from buzz_host.services.connect import HostGone, connect
from buzz_host.services.side_by_side import Side, identical, side_by_side, sides_json
from buzz_host.terminal import printable_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from buzz_host.services.conversation import Opener
    from buzz_host.services.session_calls import OpenSession
    from buzz_host.sessions.turn_text import Event

SHA256_SHOWN_CHARACTERS: Final = 12


def run_all(opening: OpenSession, message: str, plugins: tuple[str, ...], *, as_json: bool) -> None:
    """The command, once its options are read. Exit code 1 when one failed, or plugins' parts differ."""
    for option, given in (("--resume", opening.resume), ("--record", opening.record)):
        if given is not None:
            raise BuzzError(f"{option} is about one session: name one harness instead of 'all'")
    with tempfile.TemporaryDirectory(prefix="buzz-all-", ignore_cleanup_errors=True) as folder:
        try:
            with connect(home_path(), plugins) as services:
                here = [each for each in services.ask(ListHarnesses()).views if each.probe.fault is None]
                if not here:
                    raise BuzzError("no harness is installed: `buzz harness list` says what is missing")
                openings = [
                    attrs.evolve(
                        opening,
                        harness=each.id,
                        record=str(Path(folder) / f"{each.id}.jsonl") if opening.rehearse else None,
                        answers=False,
                    )
                    for each in here
                ]
                sides = services.converse(lambda opener: _taken(opener, openings, message, as_json=as_json))
        except HostGone as gone:
            raise Ending(EXIT_FAILED, str(gone)) from None
        except KeyboardInterrupt:
            raise Ending(EXIT_INTERRUPTED) from None
    if as_json:
        print_json(sides_json(sides))
    else:
        _draw(sides, {each.id: f"{each.title} {each.probe.version or ''}".strip() for each in here})
    if not identical(sides) or not all(each.completed for each in sides):
        raise Ending(EXIT_FAILED)


async def _taken(opener: Opener, openings: Sequence[OpenSession], message: str, *, as_json: bool) -> tuple[Side, ...]:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            with suppress(RuntimeError, ValueError):  # not on the main thread
                loop.add_signal_handler(number, task.cancel)

    def tell(harness: str, event: Event) -> None:
        if as_json:
            print_json(event.as_json())

    def done(side: Side) -> None:
        if not as_json:
            note(f"{printable_line(side.harness)}: {side.status or 'no turn'}", dim=True)

    return await side_by_side(opener, openings, message, tell, done)


def _draw(sides: Sequence[Side], titles: dict[str, str]) -> None:
    from rich.text import Text

    from buzz_host.cli.drawing import RULE_COLUMNS, Drawing

    drawing = Drawing(RULE_COLUMNS)

    def row(label: str, value: str, style: str = "") -> None:
        drawing.lines(Text.assemble((f"{label:<8}", "dim"), (value, style)))

    for side in sides:
        drawing.rule(f"{side.harness}: {titles[side.harness]}")
        if side.reply:
            drawing.text(side.reply)
        if side.fault is not None:
            row("failed", cut(side.fault), "red")
        if side.turn is not None:
            row(
                "plugins",
                f"{counted(side.plugin_bytes, 'byte')}  sha256 {side.plugin_sha256[:SHA256_SHOWN_CHARACTERS]}…",
            )
        if side.arrived is False and side.turn is not None:
            row("model", "did not get the text as it was sent", "red")
        for place, added in (("before", side.before), ("behind", side.behind)):
            if added:
                row(
                    "added",
                    f"{place} it, {counted(len(added.encode('utf-8', 'replace')), 'byte')}: {cut(added.strip())}",
                )
        if side.turn is not None:
            row("see it", f"buzz audit show {shortened(side.turn)}")
    drawing.rule("side by side")
    failed = [each.harness for each in sides if not each.completed]
    same = identical(sides)
    mark = ("✓ ", "green") if same else ("✗ ", "red")
    said = "are identical" if same else "differ, or are not all there"
    spoken = f"{counted(len(sides), 'plugin part')} {said}"
    if same and not sides[0].plugin_part:
        spoken += ": no plugin spoke"
    drawing.lines(Text.assemble(mark, spoken))
    answered = len(sides) - len(failed)
    mark = ("✗ ", "red") if failed else ("✓ ", "green")
    words = f"; failed: {', '.join(map(printable_line, failed))}" if failed else ""
    drawing.lines(Text.assemble(mark, f"{answered} of {len(sides)} harnesses answered{words}"))
