"""`buzz preview`: the exact text that the next turn would carry on stdout, and why it is so on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from buzz_host.cli.options import agent_option, harness_option, home_option, home_path, json_option, plugin_option

if TYPE_CHECKING:
    from buzz_host.sessions.turn_text import Preview


@click.command()
@click.argument("text")
@agent_option
@harness_option
@plugin_option
@click.option(
    "--trigger",
    type=click.Choice(["message", "steer"]),
    default="message",
    show_default=True,
    help="What wakes the agent: a message, or one steered into a running turn.",
)
@json_option
@home_option
def preview(
    text: str,
    agent: str | None,
    harness: str | None,
    plugins: tuple[str, ...],
    trigger: Literal["message", "steer"],
    as_json: bool,
) -> None:
    """The exact text that the next turn would carry with the message TEXT (- reads it from standard input).

    No program is started and nothing is recorded. The text alone goes to stdout, to the byte, with one line end; what
    was left out and why, faults, and the bytes of each plugin go to stderr. With --json, all of it is one object.
    """
    from buzz_host.cli.messages import message_from
    from buzz_host.services.connect import connect, here
    from buzz_host.services.preview_call import PreviewTurn, WarnOfTurn

    call = PreviewTurn(message=message_from(text), agent=agent, harness=harness, trigger=trigger, here=here())
    with connect(home_path(), plugins) as services:
        made = services.ask(call)
        warnings = services.ask(WarnOfTurn(agent=agent))
    if as_json:
        from buzz_host.cli.output import print_json

        print_json(made.as_json())
    else:
        _print(made)
    if warnings:
        from buzz_host.cli.summary import note_warnings

        note_warnings(warnings)


def _print(made: Preview) -> None:
    from buzz_host.cli.output import is_terminal, note, write_bytes
    from buzz_host.cli.summary import note_turn
    from buzz_host.terminal import printable

    # A file gets the text to the byte; a terminal gets it safe to look at.
    text = printable(made.text) if is_terminal() else made.text
    write_bytes(f"{text}\n".encode())
    if is_terminal():
        note("")
    note_turn(made)
