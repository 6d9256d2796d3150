"""`buzz doctor`: the whole installation, each thing that was looked at on one line (OPS-01)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from buzz_host.cli.endings import EXIT_FAILED
from buzz_host.cli.options import home_option, home_path, json_option
from buzz_host.cli.output import print_json

if TYPE_CHECKING:
    from buzz_host.services.doctor import Check
    from buzz_host.settings import Home

MARKS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "problem": ("✗", "red")}
AREA_COLUMNS = 12


@click.command()
@click.option("--full", is_flag=True, help="Go through the whole ledger, however long that takes.")
@json_option
@home_option
def doctor(full: bool, as_json: bool) -> None:
    """Look at the whole installation: what is as it should be, what is worth knowing, what to put right.

    Nothing is changed. The exit code is 1 where there is a problem.
    """
    from buzz_host.services.doctor import examine

    counts = {"ok": 0, "note": 0, "problem": 0}
    for check in examine(home_path(), full=full, further=[("attached", _attached)]):
        counts[check.level] += 1
        if as_json:
            print_json({"event": "check", "area": check.area, "level": check.level, "message": check.line})
        else:
            _draw(check)
    if as_json:
        print_json({"event": "examined", "problems": counts["problem"], "notes": counts["note"]})
    else:
        from buzz_host.cli.wording import counted

        click.echo(f"{counted(counts['problem'], 'problem')}, {counted(counts['note'], 'note')}")
    if counts["problem"]:
        raise click.exceptions.Exit(EXIT_FAILED)


def _attached(home: Home) -> Iterator[Check]:
    from buzz_host.attach import findings
    from buzz_host.services.doctor import note, ok, problem

    found = False
    for each in findings(home):
        found = True
        yield (problem if each.level == "problem" else note)("attached", each.message)
    if not found:
        yield ok("attached", "nothing to say about attached sessions: `buzz attach status` lists them")


def _draw(check: Check) -> None:
    from buzz_host.terminal import printable_line

    mark, colour = MARKS[check.level]
    click.echo(f"{click.style(mark, fg=colour)} {check.area:<{AREA_COLUMNS}}  {printable_line(check.line)}")
