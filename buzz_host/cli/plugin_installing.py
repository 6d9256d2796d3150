"""The part of `buzz plugin` that installs: install, upgrade, verify, remove. What is asked, is asked before anything is
done; `--yes` answers it beforehand, and without a terminal nothing is taken for a yes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from buzz_host.cli.asking import ask
from buzz_host.cli.endings import EXIT_FAILED, EXIT_MISTAKE, Ending
from buzz_host.cli.options import home_option, json_option
from buzz_host.cli.output import note, print_json

if TYPE_CHECKING:
    from buzz_host.services.installs import InstallReport, Removal

yes_option: Final = click.option("--yes", is_flag=True, help="Answer every question with yes.")
SHORT_HASH_CHARACTERS: Final = 12


@click.command()
@click.argument("source", metavar="PATH|GIT[@REV]")
@click.option("--subdir", default="", metavar="FOLDER", help="The plugin's folder in it, where it holds several.")
@click.option("--link", "linked", is_flag=True, help="Use it in place: what is edited there is what runs.")
@yes_option
@json_option
@home_option
@click.pass_context
def install(ctx: click.Context, source: str, subdir: str, linked: bool, yes: bool, as_json: bool) -> None:
    """Install a plugin: a folder, a .py file, an archive, or a git repository.

    The exit code is 1 where nothing of it is carried.
    """
    if linked:
        if subdir:
            raise click.UsageError("--link uses a folder in place: name the plugin's own folder instead of --subdir")
        _link(Path(source), as_json)
        return
    from buzz_host.services.connect import here
    from buzz_host.services.install_calls import InstallPlugin

    call = InstallPlugin(source=source, here=here(), subdir=subdir, agreed=yes)
    report = ask(call)
    if report.status == "asks":
        _must_agree(report.question)
        report = ask(InstallPlugin(source=source, here=call.here, subdir=subdir, agreed=True))
    _tell(report, as_json)
    if not report.succeeded:
        ctx.exit(EXIT_FAILED)


@click.command()
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Every installed plugin.")
@json_option
@home_option
@click.pass_context
def upgrade(ctx: click.Context, name: str | None, everything: bool, as_json: bool) -> None:
    """Install the newest version of a plugin from where it came; what it keeps stays.

    A new version that does not start is taken back. The exit code is 1 where one was not upgraded.
    """
    from buzz_author.errors import BuzzError
    from buzz_host.services.install_calls import InstalledNames, UpgradePlugin
    from buzz_host.terminal import printable_line

    if (name is None) is not everything:
        raise click.UsageError("name one plugin, or give --all")
    if name is not None:
        report = ask(UpgradePlugin(plugin=name))
        _tell(report, as_json)
        failed = not report.succeeded
    else:
        failed = False
        names = ask(InstalledNames())
        if not names and not as_json:
            click.echo("nothing is installed")
        for each in names:
            try:
                report = ask(UpgradePlugin(plugin=each))
            except BuzzError as error:  # the others are upgraded all the same
                failed = True
                if as_json:
                    print_json({"plugin": each, "status": "failed", "detail": str(error)})
                else:
                    note(printable_line(f"plugin '{each}' was not upgraded: {error}"), fg="red")
                continue
            _tell(report, as_json)
            failed = failed or not report.succeeded
    if failed:
        ctx.exit(EXIT_FAILED)


@click.command()
@click.argument("name", required=False)
@json_option
@home_option
@click.pass_context
def verify(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """Hold every file of the installed plugins, or of one, against what was installed.

    The exit code is 1 where one differs, is missing or was added.
    """
    from buzz_host.services.install_calls import VerifyPlugins
    from buzz_host.terminal import printable_line

    checks = ask(VerifyPlugins(plugin=name))
    for each in checks:
        if as_json:
            print_json(
                {
                    "plugin": each.plugin,
                    "version": each.version,
                    "content_hash": each.content_hash,
                    "files": each.files,
                    "whole": not each.differences,
                    "differences": [{"file": one.file, "kind": one.kind} for one in each.differences],
                }
            )
            continue
        named = f"{each.plugin} {each.version}".rstrip()
        short = each.content_hash[:SHORT_HASH_CHARACTERS]
        if not each.differences:
            click.echo(printable_line(f"{named}: whole, {_count(each.files, 'file')}, {short}…"))
        for one in each.differences:
            click.secho(printable_line(f"{named}: {one}"), fg="red")
    if not checks and not as_json:
        click.echo("nothing is installed")
    if any(each.differences for each in checks):
        ctx.exit(EXIT_FAILED)


@click.command()
@click.argument("name")
@click.option("--purge", is_flag=True, help="Delete what it keeps in the home as well.")
@yes_option
@json_option
@home_option
def remove(name: str, purge: bool, yes: bool, as_json: bool) -> None:
    """Take a plugin out of this home; what it keeps there stays."""
    from buzz_host.services.install_calls import PurgeData, RemovePlugin, ShowKeptData
    from buzz_host.terminal import printable_line

    if purge and not yes:
        kept = ask(ShowKeptData(plugin=name))
        if kept.place is not None:
            amount = f"{_count(kept.files, 'file')}, {kept.bytes:,} bytes"
            _must_agree(f"remove plugin '{kept.plugin}', and delete all that it keeps in {kept.place} ({amount})?")
    gone = ask(RemovePlugin(plugin=name))
    if purge and gone.data is not None:
        ask(PurgeData(plugin=gone.name))
    if as_json:
        print_json(_removal_row(gone, purge))
        return
    line = gone.line
    if purge and gone.data is not None:
        line = f"{line.partition('; what it keeps')[0]}; what it kept in {gone.data} is deleted"
    click.echo(printable_line(line))


def _removal_row(gone: Removal, purge: bool) -> dict[str, Any]:
    return {
        "plugin": gone.name,
        "was_link": gone.was_link,
        "kept": None if gone.kept is None else str(gone.kept),
        "data": None if gone.data is None or purge else str(gone.data),
        "from": "the next turn",
    }


def _link(path: Path, as_json: bool) -> None:
    from buzz_host.services.calls import LinkPlugin
    from buzz_host.services.connect import from_here
    from buzz_host.terminal import printable_line

    made = ask(LinkPlugin(path=from_here(path)))
    if as_json:
        print_json(
            {
                "plugin": made.source.id,
                "link": str(made.link),
                "path": made.source.where,
                "already": made.already,
                "warnings": list(made.warnings),
                "from": "the next turn",
            }
        )
        return
    for line in made.warnings:
        note(f"warning: {printable_line(line)}", fg="yellow")
    was = "was linked already" if made.already else "is linked, from the next turn"
    click.echo(printable_line(f"plugin '{made.source.id}' {was}: {made.link} -> {made.source.where}"))


def _must_agree(question: str) -> None:
    """Ask the person; ends the command unless they say yes."""
    from buzz_host.terminal import printable_line

    shown = printable_line(question)
    if not sys.stdin.isatty():
        raise Ending(EXIT_MISTAKE, f"{shown} nobody is here to ask: give --yes if so")
    if not click.confirm(shown, err=True):
        raise Ending(EXIT_FAILED, "nothing was changed")


def _tell(report: InstallReport, as_json: bool) -> None:
    if as_json:
        print_json(_report_row(report))
        return
    from buzz_host.terminal import printable_line

    for line in report.warnings:
        note(f"warning: {printable_line(line)}", fg="yellow")
    click.echo(printable_line(_headline(report)))
    if report.status not in ("not installed", "taken back"):
        for line in _carried_lines(report):
            click.echo(f"  {printable_line(line)}")
    for each in report.not_carried:
        click.echo(f"  {printable_line(str(each))}")


def _headline(report: InstallReport) -> str:
    plugin = f"plugin '{report.plugin}'"
    current = f"{plugin} {report.version}".rstrip()  # a single file need not say which version it is
    source = f"from {report.source}" + (f" ({report.commit[:SHORT_HASH_CHARACTERS]})" if report.commit else "")
    match report.status:
        case "upgraded":
            return f"{plugin} {report.before or '?'} → {report.version or '?'}, {source}"
        case "unchanged":
            return f"{current} is the newest {source}: nothing was changed"
        case "repaired":
            return f"{current} was damaged, and is whole again, {source}"
        case "not installed":
            return f"{report.detail}: it was not installed"
        case "taken back":
            return f"{current} does not start, so {report.before or 'the old one'} is in use again: {report.detail}"
        case _:
            return f"{current} is installed, {source}"


def _carried_lines(report: InstallReport) -> list[str]:
    match report.standing:
        case "off":
            return [f"it is off: {report.detail}; buzz plugin enable {report.plugin}"]
        case "failed":
            again = f"buzz plugin upgrade {report.plugin} tries again, buzz plugin remove {report.plugin} takes it out"
            return [
                f"nothing of it is carried: it does not start: {report.detail}",
                f"it stays installed; {again}",
            ]
        case "starting":
            return [f"nothing of it is carried yet: {report.detail}"]
    if not report.carried:
        return [
            "nothing of it is carried: it started, and registered nothing",
            f"it stays installed; buzz plugin remove {report.plugin} takes it out",
        ]
    lines = []
    if report.instructions:
        size = sum(each.bytes for each in report.instructions)
        guarded = sum(each.guarded for each in report.instructions)
        asks = f", {guarded} of them with a `when`" if guarded else ""
        lines.append(f"instructions: {len(report.instructions)}, {size:,} bytes a turn at most{asks}")
    if report.notes:
        lines.append(f"notes: {report.notes} for the next turns")
    lines += [f"harness: {each}" for each in report.harnesses]
    return [*lines, "it is on, from the next turn"]


def _report_row(report: InstallReport) -> dict[str, Any]:
    return {
        "plugin": report.plugin,
        "status": report.status,
        "version": report.version,
        "before": report.before,
        "source": report.source,
        "commit": report.commit,
        "content_hash": report.content_hash,
        "standing": report.standing,
        "detail": report.detail,
        "carried": {
            "instructions": [
                {"id": each.id, "bytes": each.bytes, "guarded": each.guarded} for each in report.instructions
            ],
            "notes": report.notes,
            "harnesses": list(report.harnesses),
        },
        "not_carried": [{"what": each.what, "detail": each.detail} for each in report.not_carried],
        "warnings": list(report.warnings),
        "from": "the next turn",
    }


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


COMMANDS: Final = (install, upgrade, verify, remove)
