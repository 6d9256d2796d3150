"""`buzz plugin`: which plugins there are, how they stand, the switches; `plugin_writing` is for authors (CAT-01)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from buzz_host.cli import plugin_installing, plugin_writing
from buzz_host.cli.asking import ask
from buzz_host.cli.attached import keep_sets
from buzz_host.cli.options import home_option, json_option, plugin_option
from buzz_host.cli.output import print_json

if TYPE_CHECKING:
    from rich.text import Text

    from buzz_host.plugins.sources import PluginSource
    from buzz_host.services.plugins import PluginTroubles, PluginView, Switched

_CHANGING = ("enable", "disable", "install", "upgrade", "remove")
for_agent = click.option("--agent", metavar="NAME", help="As it stands towards this agent (else the default agent).")
only_for_agent = click.option("--agent", metavar="NAME", help="For this agent alone (else for all).")

# Which rule switched a plugin on or off, for people.
RULES = {
    "disabled": "switched off",
    "off for the agent": "switched off for {agent}",
    "on for the agent": "switched on for {agent}",
    "forced": "switched on",
    "default": "by default",
}
STANDING_STYLES = {"active": "green", "off": "dim", "starting": "yellow", "failed": "red"}
SHORT_HASH_CHARACTERS = 12


@click.group(no_args_is_help=True)
@home_option
def plugin() -> None:
    """Plugins: what there is, what is on for whom, and tools for authors."""


@plugin.result_callback()
@click.pass_context
def keep_attached(ctx: click.Context, /, *_: object, **__: object) -> None:
    """What switches or changes plugins holds for the next prompt of attached sessions as well."""
    if ctx.invoked_subcommand in _CHANGING:
        keep_sets()


@plugin.command("list")
@for_agent
@plugin_option
@json_option
@home_option
def list_plugins(agent: str | None, plugins: tuple[str, ...], as_json: bool) -> None:
    """All plugins, and what the next turn makes of them."""
    from buzz_host.services.calls import ListPlugins

    views = ask(ListPlugins(agent=agent), plugins)
    if as_json:
        for view in views:
            print_json(_summary(view))
        return
    from buzz_host.cli.drawing import Drawing

    if not views:
        click.echo("no plugins")
        return
    Drawing().table(
        ("PLUGIN", f"FOR {views[0].agent}", "ORIGIN", "VERSION", "DESCRIPTION"),
        (
            (
                view.id,
                _standing(view),
                f"{view.origin}, verified" if view.verified else view.origin or "",
                view.source.version if view.source else "",
                view.source.description if view.source else view.detail,
            )
            for view in views
        ),
    )


@plugin.command()
@click.argument("name")
@for_agent
@plugin_option
@json_option
@home_option
def info(name: str, agent: str | None, plugins: tuple[str, ...], as_json: bool) -> None:
    """Everything about one plugin."""
    from buzz_host.services.calls import ShowPlugin

    view = ask(ShowPlugin(plugin=name, agent=agent), plugins)
    if as_json:
        print_json({**_summary(view), **_details(view)})
        return
    _draw_info(view)


@plugin.command()
@click.argument("name")
@only_for_agent
@json_option
@home_option
@click.pass_context
def enable(ctx: click.Context, name: str, agent: str | None, as_json: bool) -> None:
    """Switch a plugin on, from the next turn."""
    _switch(ctx, name, agent, on=True, as_json=as_json)


@plugin.command()
@click.argument("name")
@only_for_agent
@json_option
@home_option
@click.pass_context
def disable(ctx: click.Context, name: str, agent: str | None, as_json: bool) -> None:
    """Switch a plugin off, from the next turn."""
    _switch(ctx, name, agent, on=False, as_json=as_json)


@plugin.command()
@plugin_option
@json_option
@home_option
def errors(plugins: tuple[str, ...], as_json: bool) -> None:
    """What is wrong with plugins now, and with the files that agents and settings stand in."""
    from buzz_host.services.calls import PluginErrors

    found = ask(PluginErrors(), plugins)
    if as_json:
        for fault in found.faults:
            print_json(
                {
                    "level": "error",
                    "plugin": fault.plugin,
                    "phase": fault.phase,
                    "message": fault.message,
                    "traceback": fault.traceback,
                }
            )
        for line in found.agents:
            print_json({"level": "error", "plugin": None, "phase": None, "message": line, "traceback": ""})
        for line in found.warnings:
            print_json({"level": "warning", "plugin": None, "phase": None, "message": line, "traceback": ""})
        return
    _draw_troubles(found)


for _command in (*plugin_installing.COMMANDS, *plugin_writing.COMMANDS):
    plugin.add_command(_command)


def _switch(ctx: click.Context, name: str, agent: str | None, *, on: bool, as_json: bool) -> None:
    from buzz_host.cli.endings import EXIT_FAILED
    from buzz_host.services.calls import SwitchPlugin

    now = ask(SwitchPlugin(plugin=name, on=on, agent=agent))
    if as_json:
        print_json(
            {
                "plugin": now.plugin,
                "agent": now.agent,
                "enabled": now.enabled,
                "reason": now.reason,
                "from": "the next turn",
            }
        )
    else:
        click.echo(_switched(now, on))
    if now.enabled != on:
        ctx.exit(EXIT_FAILED)


def _switched(now: Switched, wanted: bool) -> str:
    whom = f"for agent '{now.agent}'" if now.agent is not None else "for all agents"
    state = "on" if now.enabled else "off"
    if now.enabled == wanted:
        return f"plugin '{now.plugin}' is {state} {whom}, from the next turn"
    if now.reason == "disabled":
        return f"plugin '{now.plugin}' stays off {whom}: it is switched off for all; buzz plugin enable {now.plugin}"
    return f"plugin '{now.plugin}' stays {state} {whom}: {RULES[now.reason].format(agent=now.agent)}"


def _rule(view: PluginView) -> str:
    return RULES[view.reason].format(agent=view.agent) if view.reason is not None else ""


def _standing(view: PluginView) -> Text:
    from rich.text import Text

    from buzz_host.terminal import printable_line

    if view.source is None:
        return Text("unusable", "red")
    words = f"{'on' if view.enabled else 'off'}, {_rule(view)}"
    if view.standing in ("starting", "failed"):
        words += f"; {view.standing}"
    elif view.faults:
        words += "; has faults"
    if view.otherwise:
        words += f"; {'off' if view.enabled else 'on'} for {', '.join(view.otherwise)}"
    return Text(printable_line(words), STANDING_STYLES[view.standing])


def _summary(view: PluginView) -> dict[str, Any]:
    source = view.source
    return {
        "plugin": view.id,
        "agent": view.agent,
        "enabled": view.enabled,
        "reason": view.reason,
        "standing": view.standing,
        "detail": view.detail,
        "otherwise": list(view.otherwise),
        "origin": view.origin,
        "source": source.installation.source if source and source.installation else None,
        "commit": source.installation.commit if source and source.installation else None,
        "content_hash": source.content_hash if source else None,
        "verified": view.verified,
        "version": source.version if source else None,
        "description": source.description if source else None,
        "faults": [{"plugin": each.plugin, "phase": each.phase, "message": each.message} for each in view.faults],
    }


def _details(view: PluginView) -> dict[str, Any]:
    source = view.source
    return {
        "title": source.title if source else None,
        "author": source.author if source else None,
        "where": source.where if source else None,
        "installed_at": source.installation.installed_at.isoformat() if source and source.installation else None,
        "isolation": source.isolation if source else None,
        "enabled_by_default": source.enabled_by_default if source else None,
        "plugin_depends": list(source.plugin_depends) if source else [],
        "settings": dict(view.settings),
        "instructions": [{"id": each.id, "bytes": each.bytes, "guarded": each.guarded} for each in view.instructions],
        "harnesses": list(view.harnesses),
        "warnings": list(view.warnings),
    }


def _draw_info(view: PluginView) -> None:
    from rich.text import Text

    from buzz_host.cli.drawing import Drawing
    from buzz_host.terminal import printable_line

    drawing = Drawing()

    def row(label: str, value: str | Text) -> None:
        if value:
            shown = value if isinstance(value, Text) else printable_line(value)
            drawing.lines(Text.assemble((f"{label:<13}", "dim"), shown))

    row("plugin", view.id)
    row(f"for {printable_line(view.agent)}", _standing(view))
    row("", view.detail)
    if view.source is not None:
        _draw_source(view.source, row)
    for each in view.instructions:
        guard = ", asks a `when` each turn" if each.guarded else ""
        row("instructions", f"{each.id}: {each.bytes:,} bytes a turn{guard}")
    for harness in view.harnesses:
        row("harness", harness)
    rules = view.setting_rules
    for key in sorted({*view.settings, *rules}):
        from buzz_host.cli.output import json_line

        value = json_line({"": view.settings[key]})[4:-2] if key in view.settings else "not set"
        about = rules[key].description if key in rules else ""
        row("setting", f"{key} = {value}" + (f"   {about}" if about else ""))
    for fault in view.faults:
        row("fault", Text(printable_line(f"{fault.phase}: {fault.message}"), "red"))
    for line in view.warnings:
        row("warning", Text(printable_line(line), "yellow"))


def _draw_source(source: PluginSource, row: Any) -> None:
    row("title", source.title)
    row("description", source.description)
    row("version", source.version)
    row("author", source.author)
    row("origin", f"{source.origin}, verified" if source.installation is not None else source.origin)
    if source.installation is not None:
        row("source", source.installation.source)
        row("commit", source.installation.commit)
        row("installed", f"{source.installation.installed_at:%Y-%m-%d %H:%M:%S} UTC")
    row("path", source.where)
    row("content", f"sha256 {source.content_hash}")
    row("isolation", "in the host, with full trust" if source.isolation == "host" else "in a process of its own")
    row("needs", ", ".join(source.plugin_depends))
    if not source.enabled_by_default:
        row("by default", "off")


def _draw_troubles(found: PluginTroubles) -> None:
    from rich.text import Text

    from buzz_host.cli.drawing import Drawing
    from buzz_host.terminal import printable_line

    if not found.faults and not found.agents and not found.warnings:
        click.echo("no plugin has a fault")
        return
    drawing = Drawing()
    for fault in found.faults:
        head = f"{printable_line(fault.plugin)}  {printable_line(fault.phase)}"
        drawing.lines(Text.assemble((head, "bold red"), f"  {printable_line(fault.message)}"))
        if fault.traceback:
            drawing.text(fault.traceback.rstrip("\n"), bar="red", style="dim")
    for line in found.agents:
        drawing.lines(Text.assemble(("agent", "bold red"), f"  {printable_line(line)}"))
    for line in found.warnings:
        drawing.lines(Text.assemble(("warning", "bold yellow"), f"  {printable_line(line)}"))
