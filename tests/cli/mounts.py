"""Commands in surroundings of their own: mounts in a namespace that ends with the command."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import BUZZ, DEADLINE_S, Done

Surrounded = Callable[..., Done]


def as_root() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs a superuser and unshare, to mount file systems for one command")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not permitted here")


def contents(home: Path) -> dict[str, str]:
    """Every file of the home with its hash; what SQLite keeps beside its database apart."""
    return {
        str(each.relative_to(home)): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted(home.rglob("*"))
        if each.is_file() and not each.name.endswith(("-wal", "-shm"))
    }


def surrounded_by(environment: dict[str, str], work: Path) -> Surrounded:
    """Runs shell commands that mount, and then `buzz`, in a namespace of mounts of its own."""
    as_root()

    def run(prepare: str, *arguments: str, **more: str) -> Done:
        script = f'set -e\n{prepare}\nexec "$@"'
        done = subprocess.run(
            ["unshare", "-m", "bash", "-c", script, "bash", *BUZZ, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=work,
            env={**environment, **more},
            timeout=DEADLINE_S,
        )
        return Done(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))

    return run


def read_only(home: Path) -> str:
    return f"mount --bind '{home}' '{home}'; mount -o remount,ro,bind '{home}'"


def on_a_network(home: Path, table: Path) -> str:
    return (
        f"cat /proc/self/mountinfo > '{table}'; echo '900 1 0:99 / {home} rw - nfs4 server:/export rw' >> '{table}'; "
        f"mount --bind '{table}' /proc/$$/mountinfo"
    )


def full(home: Path, disk: Path) -> str:
    return (
        f"mkdir -p '{disk}'; mount -t tmpfs -o size=1m buzz-test '{disk}'; cp -a '{home}' '{disk}/home'; "
        f"cat /dev/zero > '{disk}/ballast' 2>/dev/null || true"
    )
