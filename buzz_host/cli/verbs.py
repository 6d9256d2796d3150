"""The verbs. `buzz --help` imports click and nothing of the host: a verb's module is imported when it is used.

The short helps therefore stand here, in the table of verbs. A verb is thin: it calls the services and prints. How a
command ends (exit codes, the one line on stderr) is decided in `endings`, for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import click

from buzz_host.cli.endings import ended, run_to_the_end
from buzz_host.cli.options import home_option

PACKAGE: Final = "buzz_host.cli"
_Verbs = Mapping[str, tuple[str, str]]

VERBS: Final[_Verbs] = {
    "demo": ("demo", "Two turns in each harness that is here, with three plugins, and the proof of what was sent."),
    "run": ("run", "One turn of an agent: sends TEXT and streams the reply."),
    "chat": ("chat", "Many turns with an agent in one session: each line is a message."),
    "preview": ("preview", "The exact text that the next turn would carry, and why; starts nothing."),
    "plugin": ("plugin", "Find, switch, link, write and check plugins."),
    "audit": ("audit", "Who told which agent what, on which turn; and whether the ledger is whole."),
    "harness": ("harness", "The programs that can run an agent's turns."),
    "attach": ("attach", "Let plugins speak in the Claude Code that you run yourself."),
    "detach": ("attach", "Take out of a settings file exactly what `buzz attach` put in."),
    "doctor": ("doctor", "Looks at the whole installation, and says what to put right."),
    "serve": ("serve", "The running host of a home: keeps the plugins, and answers all other commands."),
}
EPILOG: Final = """\b
The home folder is --home, else $BUZZ_HOME, else ~/.buzz.

\b
Completion: eval "$(_BUZZ_COMPLETE=bash_source buzz)"   (or zsh_source)
            _BUZZ_COMPLETE=fish_source buzz | source
Exit codes: 0 done
            1 the turn failed, or what was checked does not hold
            2 something in the command, a file, or around it must be put right
            70 a bug in Buzz
            130 interrupted
            141 nobody reads the output any more
"""


class VerbGroup(click.Group):
    """A group whose verbs are imported when they are used; their short helps come from the table."""

    def __init__(self, *arguments: Any, verbs: _Verbs, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in the order of the table."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb itself; imports its module."""
        if cmd_name not in self._verbs:
            return None
        module, short = self._verbs[cmd_name]
        command: click.Command = getattr(import_module(f"{PACKAGE}.{module}"), cmd_name)
        command.short_help = short
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a suggestion taken from the table instead of from verbs that are not loaded."""
        named = args[0]
        if named not in self._verbs and not named.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(named, self._verbs, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"the commands are: {', '.join(self._verbs)}"
            raise click.UsageError(f"no command is called {named!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without loading a verb."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in self._verbs.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """As click does, with the endings of Buzz: see `endings`."""

        def invoked() -> Any:
            return super(VerbGroup, self).main(args, prog_name or "buzz", complete_var, standalone_mode=False, **extra)

        return run_to_the_end(invoked) if standalone_mode else invoked()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; what it raises becomes an ending while the context, and so the home, is still known."""
        from buzz_host.cli.logs import show_logs

        show_logs()
        with ended(ctx):
            return super().invoke(ctx)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"buzz {version('buzz-agents')}")
        ctx.exit()


@click.group(
    cls=VerbGroup,
    verbs=VERBS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="The version.")
@home_option
@click.pass_context
def buzz(ctx: click.Context) -> None:
    """Agents whose plugins speak in every turn, and whose turns can be audited to the byte."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False
