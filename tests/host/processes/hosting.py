"""A host to be killed: starts one tree with `spawn` and one through a launcher, says so, and waits.

Run as `python hosting.py FOLDER`; the environment carries the tag of its trees.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from buzz_host.processes import Children
from tests.host.processes.trees import STUBBORN, TAG


async def main(folder: Path) -> None:
    children = Children(folder)
    environment = {TAG: os.environ[TAG], "PATH": os.environ["PATH"]}
    spawned = await children.spawn(["sh", "-c", STUBBORN], env=environment, cwd=folder, owner="first")
    launcher = children.launcher(Path("/bin/sh"), "second", keep={TAG, "PATH"})
    launched = await asyncio.create_subprocess_exec(launcher, "-c", STUBBORN, stdout=asyncio.subprocess.PIPE)
    assert launched.stdout is not None
    await spawned.stdout.readline()
    await launched.stdout.readline()
    print("ready", children.marker, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
