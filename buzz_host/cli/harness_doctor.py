"""`buzz harness doctor`: the proof that what plugins say arrives, on the program that is here (HAR-06)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from buzz_host.cli.endings import EXIT_FAILED
from buzz_host.cli.options import home_option, home_path, json_option
from buzz_host.cli.output import print_json

if TYPE_CHECKING:
    from buzz_host.attach.canary import Arrival, Canary


@click.command()
@click.argument("name", type=click.Choice(["claude"]))
@click.option("--attached", is_flag=True, required=True, help="Your own program, through the hook of `buzz attach`.")
@json_option
@home_option
def doctor(name: str, attached: bool, as_json: bool) -> None:
    """Send a canary through your own program, and tell where in the request to the model it arrived.

    No model is called, and nothing of yours is touched. The exit code is 1 where it did not arrive.
    """
    from buzz_host.attach.canary import sing

    canary = asyncio.run(sing(home_path()))
    if as_json:
        import attrs

        print_json(
            {
                "harness": f"{name} (attached)",
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
