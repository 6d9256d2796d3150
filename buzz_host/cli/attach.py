"""`buzz attach` and `buzz detach`: people's own sessions, with the current sections on each prompt (AUT-03)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from buzz_host.cli.endings import EXIT_FAILED
from buzz_host.cli.options import home_option, home_path, json_option
from buzz_host.cli.output import note, print_json

if TYPE_CHECKING:
    from buzz_host.attach.attaching import Target
    from buzz_host.attach.inspection import AttachmentStatus, Finding
    from buzz_host.attach.registry import Attachment
    from buzz_host.settings import Home

ENTRIES_MAX = 8
project_option = click.option(
    "--project", type=click.Path(path_type=Path), metavar="DIR", help="The project's folder (else the current one)."
)
user_option = click.option("--user", is_flag=True, help="All projects of this person, not one.")


@click.group(no_args_is_help=True)
@home_option
def attach() -> None:
    """Let plugins speak in the Claude Code that you run yourself.

    A hook in its settings hands the current sections over with each prompt, also in sessions that run already.
    """


@attach.command()
@click.option("--agent", metavar="NAME", help="Whose sections (else the default agent of buzz.toml).")
@project_option
@user_option
@click.option(
    "--entries",
    type=click.IntRange(1, ENTRIES_MAX),
    help="How many hook entries share the sections, each of 10,000 characters at most (else 2).",
)
@json_option
@home_option
def claude(agent: str | None, project: Path | None, user: bool, entries: int | None, as_json: bool) -> None:
    """Attach your own Claude Code, in one project or everywhere.

    A project's entry goes into `.claude/settings.local.json`, which is not shared with a team; with --user it goes into
    your own settings. `buzz detach` takes out exactly what was put in.
    """
    from buzz_host.attach.attaching import attach as put_in
    from buzz_host.attach.listener import listening
    from buzz_host.attach.snapshots import write_snapshots
    from buzz_host.terminal import printable_line

    home, target = _home(), _target(project, user=user)
    made = put_in(home, target, agent=agent, entries=entries)
    host = listening(home)
    if host is None:
        asyncio.run(write_snapshots(home))
    if as_json:
        print_json(
            {
                **_row(made.attachment),
                "already": made.already,
                "warnings": list(made.warnings),
                "host": host,
                "from": "the next prompt",
            }
        )
        return
    for line in made.warnings:
        note(f"warning: {printable_line(line)}", fg="yellow")
    each = made.attachment
    was = "was attached already" if made.already else "is attached, from the next prompt"
    click.echo(printable_line(f"Claude Code {was}, for {_whose(each)}: {each.where}"))
    click.echo(printable_line(f"the entry  {each.file}"))
    click.echo(printable_line(f"undo it    buzz detach {_option(each)}"))
    if host is None:
        click.echo("no host    prompts get the set of now, from disk; `buzz serve` gives them the current one")


@attach.command()
@json_option
@home_option
def status(as_json: bool) -> None:
    """What is attached where, and what is wrong with it; exit code 1 where something is."""
    from buzz_host.attach.inspection import findings
    from buzz_host.attach.inspection import status as attach_status

    home = _home()
    found = attach_status(home)
    lines = findings(home)
    if as_json:
        for row in found.attachments:
            print_json({"event": "attachment", **_row(row.attachment), **_state(row)})
        for line in lines:
            print_json({"event": "finding", "level": line.level, "about": line.about, "message": line.message})
        print_json({"event": "status", "host": found.host, "waiting": found.waiting})
    else:
        _draw(found.attachments, found.host, found.waiting)
        _note(lines)
    if any(line.level == "problem" for line in lines):
        raise click.exceptions.Exit(EXIT_FAILED)


@click.command()
@click.argument("program", type=click.Choice(["claude"]), required=False, default="claude")
@project_option
@user_option
@json_option
@home_option
def detach(program: str, project: Path | None, user: bool, as_json: bool) -> None:
    """Take out of a settings file exactly what `buzz attach` put in.

    Where nobody else touched the file, it is the same to the byte; others' later changes stay.
    """
    from buzz_host.attach.attaching import detach as take_out
    from buzz_host.terminal import printable_line

    gone = take_out(_home(), _target(project, user=user))
    each = gone.attachment
    if as_json:
        print_json(
            {
                **_row(each),
                "program": program,
                "untouched": gone.untouched,
                "removed": [str(path) for path in gone.removed],
            }
        )
        return
    how = "our entries were gone already" if gone.untouched else "our entries are gone"
    click.echo(printable_line(f"detached: {each.where}; {how}: {each.file}"))
    for path in gone.removed:
        click.echo(printable_line(f"removed, since we had made it: {path}"))


def _home() -> Home:
    from buzz_host.settings import Home

    return Home.resolve(home_path())


def _target(project: Path | None, *, user: bool) -> Target:
    from buzz_host.attach.attaching import Target

    if user and project is not None:
        raise click.UsageError("give either --project or --user, not both")
    return Target.of(project, user=user)


def _row(each: Attachment) -> dict[str, Any]:
    return {
        "attachment": each.id,
        "scope": each.scope,
        "project": each.folder or None,
        "file": each.file,
        "agent": each.agent or None,
        "entries": each.entries,
    }


def _state(row: AttachmentStatus) -> dict[str, Any]:
    return {
        "in_place": row.in_place,
        "for_agent": row.agent,
        "entries_used": row.entries_used,
        "characters": row.characters,
        "left_out": row.left_out,
    }


def _whose(each: Attachment) -> str:
    return f"agent {each.agent}" if each.agent else "the default agent"


def _option(each: Attachment) -> str:
    from shlex import quote

    return "--user" if each.scope == "user" else f"--project {quote(each.folder)}"


def _draw(rows: tuple[AttachmentStatus, ...], host: int | None, waiting: int) -> None:
    from rich.text import Text

    from buzz_host.cli.drawing import Drawing

    if not rows:
        click.echo("nothing is attached: buzz attach claude")
        return
    Drawing().table(
        ("AGENT", "WHERE", "ENTRIES", "NOW", "FILE"),
        (
            (
                row.agent,
                row.attachment.where,
                str(row.attachment.entries),
                _now(row),
                Text(row.attachment.file) if row.in_place else Text(f"{row.attachment.file} (not in it)", "red"),
            )
            for row in rows
        ),
    )
    click.echo(f"host: process {host} answers" if host is not None else "host: none runs")
    if waiting:
        click.echo(f"not in the ledger yet: {waiting} notes of what was handed over without a host")


def _now(row: AttachmentStatus) -> str:
    if row.characters is None:
        return "no set yet"
    if not row.entries_used:
        return "nothing to say"
    return f"{row.characters:,} characters in {row.entries_used}"


def _note(lines: tuple[Finding, ...]) -> None:
    from buzz_host.terminal import printable_line

    for line in lines:
        note(f"{line.level}: {printable_line(line.message)}", fg="red" if line.level == "problem" else "yellow")
