"""The client that the hooks run: a bash program of a few dozen lines, so that no interpreter has to start for a prompt.

Its content is constant, save for where bash is. It is written into the home, where the hooks name it, and written anew
whenever it is not what it should be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Final

from buzz_author.errors import BuzzError
from buzz_host.attach.registry import Places
from buzz_host.settings import Home, replace_file

CLIENT_MODE: Final = 0o700
OLDEST_BASH: Final = (5, 0)  # `EPOCHREALTIME` and fractions of a second for `read -t`
PROBE_DEADLINE_S: Final = 5.0
# Nothing listens on this port; what counts is that bash tries.
_PROBE: Final = 'LC_ALL=C; echo "${BASH_VERSINFO[0]} ${BASH_VERSINFO[1]}"; exec 3<>/dev/tcp/127.0.0.1/1'
# The kernel's bound on the first line of a program.
_FIRST_LINE_MAX_BYTES: Final = 127


class NoClient(BuzzError):
    """The client cannot run on this machine, or from this home."""


def client_program(bash: Path) -> bytes:
    """The client as it is written. `-p` keeps the person's own start-up files of bash out of it."""
    body = files(__package__).joinpath("client.bash").read_bytes()
    return b"#!" + os.fsencode(bash) + b" -p\n" + body


def find_bash() -> Path:
    """The bash that can run the client. Raises `NoClient` where there is none, with what to do."""
    found = shutil.which("bash")
    if found is None:
        raise NoClient("attaching needs bash, and none is on the PATH: install bash (no other shell will do)")
    path = Path(found).absolute()
    if " " in str(path) or len(os.fsencode(path)) > _FIRST_LINE_MAX_BYTES - len("#! -p"):
        raise NoClient(f"{path}: a program cannot name this bash in its first line: put bash on a shorter path")
    try:
        told = subprocess.run(
            [path, "-p", "-c", _PROBE],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PROBE_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoClient(f"{path}: cannot be run ({error})") from None
    version = tuple(int(word) for word in told.stdout.split() if word.isdigit())
    if version < OLDEST_BASH:
        raise NoClient(f"{path}: attaching needs bash {'.'.join(map(str, OLDEST_BASH))} or newer: upgrade it")
    if b"No such file" in told.stderr:
        raise NoClient(f"{path}: this bash was built without /dev/tcp, which attaching needs: install another one")
    return path


def write_client(home: Home) -> Path:
    """Put the client into `home`, where it is missing or another one; gives its path. Raises `NoClient`."""
    places = Places(home)
    path = places.client
    if "${" in str(path):
        raise NoClient(
            f"{home.root}: the program would replace what looks like `${{…}}` in this path: use another home"
        )
    content = client_program(find_bash())
    home.folder(places.folder)
    if not is_client(path, content):
        replace_file(path, content)
        path.chmod(CLIENT_MODE)
    home.folder(places.spool)
    return path


def is_client(path: Path, content: bytes | None = None) -> bool:
    """Whether the file at `path` is the client, and can be run (`content`: None compares all but the first line)."""
    try:
        octets = path.read_bytes()
        runnable = bool(path.stat().st_mode & 0o100)
    except OSError:
        return False
    if content is not None:
        return octets == content and runnable
    return octets.partition(b"\n")[2] == client_program(Path("bash")).partition(b"\n")[2] and runnable
