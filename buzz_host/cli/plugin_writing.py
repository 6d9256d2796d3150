"""The part of `buzz plugin` that is for authors: starting a new plugin, and checking one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click

from buzz_host.cli.endings import EXIT_MISTAKE
from buzz_host.cli.options import home_option, json_option
from buzz_host.cli.output import print_json

folder_type: Final = click.Path(path_type=Path)


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
    quoted = shlex.quote(shown)
    click.echo(f"{shown}: plugin.toml and plugin.py are there; say what you want in plugin.py")
    click.echo(f"try it:   buzz preview --plugin {quoted} 'Hello'")
    click.echo(f"check it: buzz plugin validate {quoted}")
    click.echo(f"keep it:  buzz plugin install --link {quoted}")


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


COMMANDS: Final = (new, validate)
