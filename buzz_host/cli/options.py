"""Options that several verbs share, so that they are spelled and explained once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from pathlib import Path

_HOME: Final = "buzz.home"
F = TypeVar("F", bound=Callable[..., Any])


def _keep_home(ctx: click.Context, _: click.Parameter, home: str | None) -> None:
    # Of all places where --home may stand, the last one counts.
    if home is not None:
        ctx.meta[_HOME] = home


def home_path(ctx: click.Context | None = None) -> Path | None:
    """What `--home` said, wherever it stood; None leaves it to $BUZZ_HOME and ~/.buzz."""
    found = (ctx or click.get_current_context()).meta.get(_HOME)
    if found is None:
        return None
    # Imported here, as help needs none of it.
    from pathlib import Path

    return Path(found)


home_option = click.option(
    "--home",
    type=click.Path(),
    metavar="FOLDER",
    expose_value=False,
    callback=_keep_home,
    help="The home folder (else $BUZZ_HOME, else ~/.buzz).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON Lines, for programs.")
agent_option = click.option("--agent", metavar="NAME", help="The agent (else the default agent of buzz.toml).")
harness_option = click.option("--harness", metavar="NAME", help="The program that runs the turn (else the agent's).")
plugin_option = click.option(
    "--plugin",
    "plugins",
    type=click.Path(),
    metavar="PATH",
    multiple=True,
    help="A further plugin: a folder or a .py file. May be repeated.",
)
