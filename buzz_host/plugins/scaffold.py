"""`buzz plugin new NAME`: a plugin folder that works at the first try, and shows the next step in a comment."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from buzz_author.errors import BuzzError
from buzz_author.names import check_name
from buzz_host.plugins.candidates import CODE_NAME
from buzz_host.plugins.manifest import API
from buzz_host.plugins.sources import MANIFEST_NAME

VERSION: Final = "0.1.0"

_MANIFEST: Final = """\
api = {api}
name = "{name}"
version = "{version}"
description = "Says in one line what {name} is for"
author = ""

# A setting that a person can change in buzz.toml, under [plugins.{name}]; here it is ctx.settings["tone"].
# [config.tone]
# type = "string"
# default = "friendly"
# description = "How the agent should sound"
"""

_CODE: Final = '''\
"""{name}: standing instructions, part of every turn of every agent while this plugin is on."""

from buzz_author import PluginContext

inject = ("agents",)

TEXT = """
Answer in short sentences, and say so when you are not sure.
"""


def apply(ctx: PluginContext) -> None:
    ctx.agents.addInstructions(id="main", text=TEXT)

    # For some agents only: `when` is asked before each turn, and must return True itself, not just something truthy.
    #
    # ctx.agents.addInstructions(
    #     id="dev", text="Run the tests before you say that it works.", when=lambda agent: agent.name == "dev"
    # )
    #
    # Clean-up, run when the plugin stops:
    #
    # ctx.effect(lambda: ctx.log.info("bye"))
'''


def scaffold(name: str) -> dict[str, str]:
    """The files of a new plugin called `name`, by their names. Raises `InvalidName`."""
    check_name(name, "plugin")
    return {
        MANIFEST_NAME: _MANIFEST.format(api=API, name=name, version=VERSION),
        CODE_NAME: _CODE.format(name=name),
    }


def new_plugin(name: str, parent: Path) -> Path:
    """Make the folder `parent/name` with a working plugin in it; gives the folder.

    Whole or not at all. Raises `InvalidName`, or `BuzzError` where something is there already or cannot be written.
    """
    files = scaffold(name)
    folder = parent / name
    if folder.exists() or folder.is_symlink():
        raise BuzzError(f"{folder} is there already: choose another name, or another --dir")
    try:
        parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
        try:
            for file, text in files.items():
                (fresh / file).write_text(text, encoding="utf-8")
            fresh.chmod(0o755)
            fresh.rename(folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    except OSError as error:
        raise BuzzError(f"{folder}: cannot be made ({error.strerror})") from None
    return folder
