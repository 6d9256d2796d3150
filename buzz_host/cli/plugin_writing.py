"""The part of `buzz plugin` that is for authors: linking a folder, taking it out, starting a new one, checking one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from buzz_host.cli.asking import ask
from buzz_host.cli.endings import EXIT_MISTAKE
from buzz_host.cli.options import home_option, json_option
from buzz_host.cli.output import note, print_json

folder_type: Final = click.Path(path_type=Path)


@click.command()
@click.option("--link", "linked", is_flag=True, help="Use it in place: what is edited there is what runs.")
@click.argument("path", type=folder_type)
@json_option
@home_option
def install(linked: bool, path: Path, as_json: bool) -> None:
    """Add the plugin at PATH, a folder or a .py file, to this home."""
    if not linked:
        raise click.UsageError("only `install --link PATH` is there in this version: it uses the plugin in place")
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


@click.command()
@click.argument("name")
@json_option
@home_option
def remove(name: str, as_json: bool) -> None:
    """Take a plugin out of this home; its files are kept."""
    from buzz_host.services.calls import RemovePlugin
    from buzz_host.terminal import printable_line

    gone = ask(RemovePlugin(plugin=name))
    if as_json:
        print_json({"plugin": gone.name, "was_link": gone.was_link, "kept": str(gone.kept), "from": "the next turn"})
    else:
        click.echo(printable_line(gone.line))


@click.command()
@click.argument("name")
@click.option(
    "--dir", "parent", type=folder_type, default=Path(), metavar="D", help="Where its folder is made (else here)."
)
@json_option
@home_option
def new(name: str, parent: Path, as_json: bool) -> None:
    """Make a folder NAME with a plugin that works."""
    from buzz_host.plugins.scaffold import new_plugin
    from buzz_host.terminal import printable_line

    folder = new_plugin(name, parent)
    if as_json:
        print_json({"plugin": name, "path": str(folder)})
        return
    shown = printable_line(str(folder))
    click.echo(f"{shown}: plugin.toml and plugin.py are there; say what you want in plugin.py")
    click.echo(f"try it:   buzz preview --plugin {shown} 'Hello'")
    click.echo(f"check it: buzz plugin validate {shown}")
    click.echo(f"keep it:  buzz plugin install --link {shown}")


@click.command()
@click.argument("path", type=folder_type)
@json_option
@home_option
@click.pass_context
def validate(ctx: click.Context, path: Path, as_json: bool) -> None:
    """What is wrong with the plugin at PATH, without running it.

    The exit code is 2 where there is an error, 0 where there are warnings only.
    """
    from buzz_host.plugins.validate import validate as findings_of
    from buzz_host.terminal import printable_line

    findings = findings_of(path)
    for each in findings:
        if as_json:
            print_json({"level": each.level, "path": str(each.path), "line": each.line, "message": each.message})
        else:
            click.secho(printable_line(str(each)), fg="red" if each.level == "error" else "yellow")
    if not findings and not as_json:
        click.echo(printable_line(f"{path}: nothing is wrong, as far as can be seen without running it"))
    if any(each.level == "error" for each in findings):
        ctx.exit(EXIT_MISTAKE)


COMMANDS: Final = (install, remove, new, validate)
