"""`buzz harness doctor`: the proof that what plugins say arrives, on the programs that are here (HAR-06)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from buzz_host.cli.endings import EXIT_FAILED
from buzz_host.cli.options import home_option, home_path, json_option, plugin_option
from buzz_host.cli.output import print_json

if TYPE_CHECKING:
    from buzz_host.attach.canary import Arrival, Canary
    from buzz_host.services.examination import Arrived, Examination


@click.command()
@click.argument("names", metavar="[HARNESS]…", nargs=-1)
@click.option("--attached", is_flag=True, help="Your own program (claude), through the hook of `buzz attach`.")
@plugin_option
@json_option
@home_option
def doctor(names: tuple[str, ...], attached: bool, plugins: tuple[str, ...], as_json: bool) -> None:
    """Send a canary through each real program, and tell where in the request to the model it arrived.

    No model is called, and nothing of yours is touched. The exit code is 1 where it did not arrive, or where a program
    that is named is not here.
    """
    if attached:
        if names != ("claude",):
            raise click.UsageError("--attached looks at one program: buzz harness doctor claude --attached")
        _attached(as_json)
        return
    from buzz_host.services.calls import ListHarnesses
    from buzz_host.services.connect import connect
    from buzz_host.services.program_calls import ExamineHarness, ListPrograms

    failed = False
    with connect(home_path(), plugins) as services:
        services.ask(ListPrograms(named=names))  # a name that nobody knows is told before anything is started
        chosen = tuple(dict.fromkeys(names)) or tuple(each.id for each in services.ask(ListHarnesses()).views)
        for name in chosen:
            found = services.ask(ExamineHarness(harness=name))
            failed |= found.state == "fails" or (found.state == "not here" and bool(names))
            if as_json:
                print_json(_row(found))
            else:
                _draw_examination(found)
    if not chosen and not as_json:
        click.echo("no harness is here: pip install 'buzz-agents[claude]' brings the one for Claude Code")
    if failed:
        raise click.exceptions.Exit(EXIT_FAILED)


def _row(found: Examination) -> dict[str, Any]:
    import attrs

    row = attrs.asdict(found)
    return {**row, "path": str(found.path) if found.path is not None else None, "holds": found.state == "holds"}


def _draw_examination(found: Examination) -> None:
    from buzz_host.terminal import printable_line

    def line(words: str, **style: Any) -> None:
        click.secho(printable_line(words), **style)

    if found.state == "not here":
        line(f"- {found.title} ({found.harness}) is not here: {found.fault}")
        return
    good = found.state == "holds"
    version = f"  {found.version}" if found.version else ""
    line(f"{'✓' if good else '✗'} {found.title} ({found.harness}){version}", fg="green" if good else "red", bold=True)
    if found.path is not None:
        other = ", not the version that Buzz was tested with" if found.pinned is False else ""
        line(f"  program   {found.path}{other}")
    if found.fault:
        line(f"  fault     {found.fault}", fg="red")
    if found.arrived is not None:
        for words in _arrival(found.arrived):
            line(words)
    elif not found.carries_sections:
        line("  sections  none, as it declares: it builds its own prompt", fg="yellow")
    match found.tool:
        case "answered":
            line("  tools     a plugin's tool was called, and its answer reached the model")
        case "none":
            line("  tools     none, as it declares")
    told = "it does not say" if found.exposed is None else ", ".join(found.exposed) or "nothing"
    line(f"  exposed   of the host's environment: {told}")
    line(f"  time      {found.seconds:.1f} s, with its start and its end")


def _arrival(arrived: Arrived) -> list[str]:
    equal = "to the byte" if arrived.verbatim else "changed"
    where = "the last text of the newest user message" if arrived.last else "not the last text of the newest message"
    lines = [f"  sections  arrived {equal}: {where} (role {arrived.role}, {arrived.message} of {arrived.messages})"]
    if arrived.behind.strip():
        lines.append(f"  behind    the program itself adds: {' '.join(arrived.behind.split())}")
    return lines


def _attached(as_json: bool) -> None:
    import asyncio

    from buzz_host.attach.canary import sing

    canary = asyncio.run(sing(home_path()))
    if as_json:
        import attrs

        print_json(
            {
                "harness": "claude (attached)",
                "program": str(canary.program),
                "version": canary.version,
                "model": canary.model,
                "arrived": canary.arrival is not None,
                **(attrs.asdict(canary.arrival) if canary.arrival is not None else {}),
                "holds": canary.holds,
                "fault": canary.fault,
            }
        )
    else:
        _draw(canary)
    if not canary.holds:
        raise click.exceptions.Exit(EXIT_FAILED)


def _draw(canary: Canary) -> None:
    from buzz_host.terminal import printable_line

    click.echo(printable_line(f"program   {canary.program}  {canary.version}"))
    if canary.model:
        click.echo(printable_line(f"model     {canary.model}, played by a server of ours: no model was called"))
    if canary.arrival is None:
        click.secho(printable_line(f"arrived   no: {canary.fault}"), fg="red")
        return
    click.echo(printable_line(f"arrived   {_place(canary.arrival)}"))
    if canary.arrival.verbatim:
        click.secho("equal     to the byte with what the ledger says was handed over", fg="green")
    else:
        click.secho("equal     no: the program changed it", fg="red")
    click.echo("so it is  in print mode, with this model; another model may put it elsewhere (docs/attaching.md)")


def _place(arrival: Arrival) -> str:
    where = "behind" if arrival.behind_prompt else "before"
    wrapped = ", inside of a <system-reminder>" if arrival.wrapped else ""
    return (
        f"in a {arrival.role} message, {arrival.message} of {arrival.messages}, {where} what the person wrote{wrapped}"
    )
