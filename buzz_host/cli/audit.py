"""`buzz audit`: what agents were told, by which plugin, and what came back; whether the ledger is whole (AUD-02)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from buzz_host.cli.asking import ask
from buzz_host.cli.attached import bring_in_notes
from buzz_host.cli.endings import EXIT_FAILED, Ending
from buzz_host.cli.options import home_option, home_path, json_option
from buzz_host.cli.output import note, print_json

if TYPE_CHECKING:
    from buzz_host.ledger.search import Find
    from buzz_host.ledger.verify import Break
    from buzz_host.ledger.views import PluginRow

TURNS_SHOWN = 50
FINDS_SHOWN = 20
limit_option = click.option(
    "--limit", type=click.IntRange(min=1), default=TURNS_SHOWN, show_default=True, help="How many turns at most."
)
only_agent = click.option("--agent", metavar="NAME", help="Only turns of this agent.")


@click.group(no_args_is_help=True)
@home_option
def audit() -> None:
    """What each agent was told on each turn, by which plugin, read back from the ledger.

    The beginning of a turn's or a session's id is enough, where it is the only one.
    """
    bring_in_notes()


@audit.command()
@only_agent
@click.option("--session", metavar="ID", help="Only turns of this session.")
@limit_option
@json_option
@home_option
def turns(agent: str | None, session: str | None, limit: int, as_json: bool) -> None:
    """The turns, newest first."""
    from buzz_host.services.calls import AuditTurns

    rows = ask(AuditTurns(agent=agent, session=session, limit=limit))
    if as_json:
        from buzz_host.services.audit import row_json

        for row in rows:
            print_json(row_json(row))
        _end_where(row.changed for row in rows)
        return
    from rich.text import Text

    from buzz_host.cli.drawing import Drawing
    from buzz_host.cli.transcript import STATUS_STYLES
    from buzz_host.cli.wording import shortened

    if not rows:
        click.echo("no turns")
        return
    Drawing().table(
        ("TURN", "SENT", "AGENT", "HARNESS", "KIND", "STATUS", "SESSION", "PLUGINS"),
        (
            (
                shortened(row.turn),
                row.at[:19].replace("T", " "),
                row.agent,
                row.harness,
                row.kind,
                Text(row.status, STATUS_STYLES.get(row.status, "yellow"))
                if not row.changed
                else Text(f"{row.status}, CHANGED since it was recorded", "bold red"),
                shortened(row.session),
                ", ".join(row.plugins),
            )
            for row in rows
        ),
    )
    _end_where(row.changed for row in rows)


@audit.command()
@click.argument("turn")
@json_option
@home_option
def show(turn: str, as_json: bool) -> None:
    """One turn: every section that was sent and who said it, what was left out, what came back.

    With --json, the event `turn_started` again, from disk, with how it ended. Exit code 1 where something of it is not
    as it was recorded: that is said, and never shown.
    """
    from buzz_host.services.audit import all_changed, turn_json
    from buzz_host.services.calls import AuditTurn

    found = ask(AuditTurn(turn=turn))
    if as_json:
        print_json(turn_json(found))
        _end_where(all_changed(found))
        return
    from buzz_host.cli.drawing import Drawing, Palette
    from buzz_host.cli.transcript import draw_labels, draw_turn

    drawing = Drawing()
    draw_labels(drawing, found)
    drawing.lines("")
    draw_turn(drawing, found, Palette())
    _end_where(all_changed(found))


@audit.command()
@click.argument("turn")
@json_option
@home_option
def why(turn: str, as_json: bool) -> None:
    """For each plugin, whether its instructions were part of a turn, and if not, why."""
    from buzz_host.services.audit import verdicts
    from buzz_host.services.calls import AuditTurn

    found = ask(AuditTurn(turn=turn))
    rows = verdicts(found)
    if as_json:
        from buzz_host.services.audit import verdict_json

        for row in rows:
            print_json(verdict_json(row))
        _end_where(found.changed)
        return
    from rich.text import Text

    from buzz_host.cli.drawing import Drawing, Palette
    from buzz_host.cli.transcript import draw_changed
    from buzz_host.cli.wording import contribution, counted, reason_in_words
    from buzz_host.terminal import printable_line

    palette, drawing = Palette(), Drawing()
    draw_changed(drawing, found.changed)
    if not rows:
        click.echo("no plugin had instructions for this turn")
    width = max((len(contribution(row.plugin, row.id)) for row in rows), default=0)
    for row in rows:
        name = printable_line(contribution(row.plugin, row.id))
        drawing.lines(
            Text.assemble(
                ("✓ ", "green") if row.admitted else ("✗ ", "red"),
                (f"{name:<{width}}", palette.of(row.plugin)),
                f"  admitted, {counted(row.bytes or 0, 'byte')}, sha256 {row.sha256 or 'lost'}"
                if row.admitted
                else f"  left out: {reason_in_words(row.reason or '', row.detail)}",
                ("  its text was changed since" if row.changed else "", "bold red"),
            )
        )
    _end_where(found.changed)


@audit.command()
@click.argument("name")
@only_agent
@limit_option
@json_option
@home_option
def plugin(name: str, agent: str | None, limit: int, as_json: bool) -> None:
    """What one plugin told which agent, turn by turn, newest first; or why it did not."""
    from buzz_host.services.calls import AuditPlugin

    rows = ask(AuditPlugin(plugin=name, agent=agent, limit=limit))
    if as_json:
        from buzz_host.services.audit import plugin_json

        for row in rows:
            print_json(plugin_json(row))
    else:
        _draw_plugin(rows)
    _end_where(row.changed for row in rows)


@audit.command()
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--limit", type=click.IntRange(min=1), default=FINDS_SHOWN, show_default=True, help="How many texts at most."
)
@json_option
@home_option
def search(words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Every text that holds all of WORDS, in any script: what was sent, answered, called or left out.

    A "phrase in quotes" matches as it stands, and word* what begins with it. Each text is listed once, with the newest
    turn that holds it; exit code 1 where there is none.
    """
    from buzz_host.services.calls import SearchAudit, UnsearchedEntries

    finds = ask(SearchAudit(words=" ".join(words), limit=limit))
    if as_json:
        from buzz_host.services.audit import find_json

        for find in finds:
            print_json(find_json(find))
    else:
        _draw_finds(finds)
    if left := ask(UnsearchedEntries()):
        note(
            f"warning: {left:,} entries of the ledger were not searched: they are not indexed, as this home cannot "
            "be written",
            fg="yellow",
        )
    if not finds:
        raise Ending(EXIT_FAILED)
    _end_where(find.changed for find in finds)


@audit.command()
@click.option("--head", metavar="HASH", help="A head noted earlier: the chain must still hold it.")
@json_option
@home_option
@click.pass_context
def verify(ctx: click.Context, head: str | None, as_json: bool) -> None:
    """Compute every hash of the ledger again; exit code 1 where something was changed, with each place.

    Where entries are missing or changed, what hangs on them is broken too: those places are counted, and told with
    --json. Without --head this proves that nothing was changed apart; with it, that nothing was written anew since.
    """

    def report(found: Break) -> None:
        if as_json:
            print_json(
                {
                    "event": "break",
                    "seq": found.seq,
                    "what": found.what,
                    "expected": found.expected,
                    "found": found.found,
                    "follows": found.follows,
                }
            )
        elif not found.follows:
            from buzz_host.terminal import printable_line

            click.echo(printable_line(str(found)))

    from buzz_host.services.calls import VerifyLedger
    from buzz_host.services.connect import connect

    with connect(home_path()) as services:
        result = services.follow(VerifyLedger(head=head), report)
    if as_json:
        print_json(
            {
                "event": "verified",
                "entries": result.entries,
                "head": result.head,
                "breaks": result.breaks,
                "follows": result.follows,
            }
        )
    else:
        from buzz_host.cli.wording import counted

        entries = "1 entry" if result.entries == 1 else f"{result.entries:,} entries"
        verdict = "whole" if not result.breaks else f"broken in {counted(result.breaks, 'place')}"
        if result.follows:
            verdict += f", and in {result.follows:,} more that follow from that"
        click.echo(f"the ledger is {verdict}: {entries}, head {result.head or 'none'}")
    if result.breaks:
        ctx.exit(EXIT_FAILED)


def _end_where(changed: Iterable[object]) -> None:
    """End with the exit code of a failure where anything is changed, as what was asked for could not be shown."""
    if any(changed):
        raise Ending(EXIT_FAILED)


def _draw_finds(finds: tuple[Find, ...]) -> None:
    from rich.text import Text

    from buzz_host.cli.drawing import Drawing, Palette
    from buzz_host.cli.transcript import CHANGED
    from buzz_host.cli.wording import contribution, shortened
    from buzz_host.terminal import printable_line

    if not finds:
        click.echo("no text holds all of these words")
        return
    drawing, palette = Drawing(), Palette()
    for find in finds:
        who = contribution(find.plugin, find.id) if find.plugin else find.tag or ""
        often = f", {find.uses} times since {find.first_at[:19].replace('T', ' ')}" if find.uses > 1 else ""
        style = palette.of(find.plugin) if find.plugin else "bold"
        drawing.lines(
            Text.assemble(
                (f"{find.role} {printable_line(who)}".strip(), style),
                (f"  turn {shortened(find.turn)}, {find.at[:19].replace('T', ' ')}{often}", "dim"),
            )
        )
        drawing.text(CHANGED if find.snippet is None else find.snippet, bar=style)


def _draw_plugin(rows: tuple[PluginRow, ...]) -> None:
    from rich.text import Text

    from buzz_host.cli.drawing import Drawing, Palette
    from buzz_host.cli.transcript import draw_changed, draw_faults, draw_left_out, lost_in_words
    from buzz_host.cli.wording import contribution, counted, shortened
    from buzz_host.terminal import printable_line

    drawing, palette = Drawing(), Palette()
    for each in rows:
        row = each.row
        drawing.rule(f"{row.at[:19].replace('T', ' ')}  {row.agent} on {row.harness}  turn {shortened(row.turn)}")
        draw_changed(drawing, each.changed)
        for section in each.told:
            style = palette.of(section.plugin)
            name = printable_line(contribution(section.plugin or "", section.id))
            drawing.lines(Text.assemble((f"told {name}", style), (f"  {counted(section.bytes, 'byte')}", "dim")))
            drawing.text(lost_in_words(section.changed) if section.body is None else section.body, bar=style)
        draw_left_out(drawing, each.left_out, palette)
        draw_faults(drawing, each.faults, palette)
