"""`buzz harness`: the programs that can run an agent's turns (HAR-06, TRN-03)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from buzz_host.cli.asking import ask
from buzz_host.cli.harness_doctor import doctor
from buzz_host.cli.harness_install import COMMANDS
from buzz_host.cli.options import home_option, json_option, plugin_option
from buzz_host.cli.output import note, print_json

if TYPE_CHECKING:
    from buzz_host.services.harnesses import HarnessView


@click.group(no_args_is_help=True)
@home_option
def harness() -> None:
    """The programs that can run an agent's turns."""


for command in (doctor, *COMMANDS):
    harness.add_command(command)


@harness.command("list")
@plugin_option
@json_option
@home_option
def list_harnesses(plugins: tuple[str, ...], as_json: bool) -> None:
    """Which programs are here, at which version, and what they carry."""
    from buzz_host.services.calls import ListHarnesses

    found = ask(ListHarnesses(), plugins)
    if as_json:
        for view in found.views:
            print_json(_row(view))
        return
    _draw(found.views)
    from buzz_host.cli.wording import cut
    from buzz_host.terminal import printable_line

    for fault in found.faults:
        note(
            f"fault of {printable_line(fault.plugin)} in {printable_line(fault.phase)}: {cut(fault.message)}", fg="red"
        )


def _row(view: HarnessView) -> dict[str, Any]:
    carries = view.capabilities
    return {
        "harness": view.id,
        "title": view.title,
        "plugin": view.plugin,
        "version": view.probe.version,
        "path": str(view.probe.path) if view.probe.path is not None else None,
        "fault": view.probe.fault,
        "carries_sections": carries.carries_sections,
        "steer": carries.steer,
        "tools": carries.tools,
        "skills": carries.skills,
        "resume": carries.resume,
        "permission_requests": carries.permission_requests,
        "native_hooks": sorted(carries.native_hooks),
        "key_variables": list(carries.key_variables),
        "key_present": view.key_present,
        "login": view.login,
        "reaches_a_model": view.reaches_a_model,
        "pinned": view.pinned,
        "install": _how_to_install(view),
    }


def _draw(views: tuple[HarnessView, ...]) -> None:
    from rich.text import Text

    from buzz_host.cli.drawing import Drawing
    from buzz_host.terminal import printable_line

    if not views:
        click.echo("no harness is here: pip install 'buzz-agents[claude]' brings the one for Claude Code")
        return
    drawing = Drawing()
    for view in views:
        carries = view.capabilities
        drawing.lines(
            Text.assemble(
                (printable_line(view.id), "bold"),
                f"  {printable_line(view.title)}",
                (f"  by plugin {printable_line(view.plugin)}", "dim"),
            )
        )
        if view.probe.fault is not None:
            drawing.lines(Text.assemble("  program   ", (printable_line(view.probe.fault), "red")))
            how = _how_to_install(view)
            if how is not None and how not in view.probe.fault:
                drawing.lines(Text(printable_line(f"  install   {how}")))
        else:
            place = f"  {view.probe.path}" if view.probe.path is not None else ""
            pinned = f"  (Buzz was tested with {view.program.version})" if view.program and not view.pinned else ""
            drawing.lines(
                Text(printable_line(f"  program   {view.probe.version or 'version not told'}{pinned}{place}"))
            )
        if not carries.carries_sections:
            drawing.lines(Text("  sections  none: it builds its own prompt, plugins do not reach it", "yellow"))
        else:
            drawing.lines(Text("  sections  carried in each turn"))
        has = [name for name, there in (("skills", carries.skills), ("resume", carries.resume)) if there]
        drawing.lines(Text(f"  carries   {', '.join([f'steer: {carries.steer}', f'tools: {carries.tools}', *has])}"))
        model = _model(view)
        if model:
            drawing.lines(Text(printable_line(f"  model     {model}"), "" if view.reaches_a_model else "yellow"))


def _model(view: HarnessView) -> str:
    names = " or ".join(view.capabilities.key_variables)
    if view.key_present:
        return f"{names} is set"
    if view.login == "logged in":
        return "logged in"
    if view.key_present is None:
        return ""
    login = f"`buzz harness login {view.id}`, " if view.login is not None else ""
    return f"{names} is not set: give it, {login}--model-url, or --rehearse"


def _how_to_install(view: HarnessView) -> str | None:
    if view.probe.fault is None or view.program is None:
        return None
    return f"buzz harness install {view.id}"
