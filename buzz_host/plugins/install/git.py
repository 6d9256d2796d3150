"""Running git so that it can do nothing but fetch and read: the only place where installing starts a program.

It runs without the person's and the machine's settings, without hooks, filters or helpers, asks nobody, may speak
https, ssh and files only, and has a deadline and a limit to what it writes. It is ended with all its children. Not
covered: a fault of git itself in what it fetches.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from buzz_author.errors import BuzzError
from buzz_host.plugins.sources import one_line

GIT_DEADLINE_S: Final = 60.0
REPOSITORY_MAX_BYTES: Final = 256 * 1024 * 1024
PROTOCOLS: Final = ("https", "ssh", "file")
_CHUNK_BYTES: Final = 64 * 1024
_LOOK_EVERY_S: Final = 0.2
_SAID_MAX_BYTES: Final = 16 * 1024
_ULIMIT_BLOCK_BYTES: Final = 512
_SETTINGS: Final[Mapping[str, str]] = {
    "core.hooksPath": "/dev/null",
    "core.askPass": "",
    "credential.helper": "",
    "fetch.fsckObjects": "true",
    # Faults of old programs that wrote commits and trees: they hurt nobody here.
    "fetch.fsck.zeroPaddedFilemode": "ignore",
    "fetch.fsck.badTimezone": "ignore",
    "fetch.fsck.missingSpaceBeforeDate": "ignore",
    "fetch.fsck.badFilemode": "error",  # a set-user-id bit is one
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "20",
    "protocol.allow": "never",
    **{f"protocol.{name}.allow": "always" for name in PROTOCOLS},
}
# What git may know of the person: where programs are, how to get out, and the keys that an agent holds.
_PASSED_ON: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "http_proxy",
    "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY",
)  # fmt: skip
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS),
    "GIT_SSH_VARIANT": "ssh",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=20 -oServerAliveInterval=10",
}


class GitError(BuzzError):
    """A repository cannot be fetched or read; the message has git's own last line."""


class Git:
    """Git in the bare repository at `folder`, until `GIT_DEADLINE_S` from now for all that is asked of it together.

    `label` names it in messages; setting `called_off` ends whatever runs.
    """

    def __init__(self, folder: Path, label: str, called_off: threading.Event) -> None:
        self.folder = folder
        self.label = label
        self._called_off = called_off
        self._until = time.monotonic() + GIT_DEADLINE_S
        self.run("init", "--quiet", "--bare", "--template=", ".")

    def run(self, *arguments: str) -> str:
        """Run git to its end; what it printed. Raises `GitError`."""
        return b"".join(self.stream(*arguments)).decode("utf-8", "replace")

    def stream(self, *arguments: str, stdin: IO[bytes] | None = None) -> Generator[bytes]:
        """What git prints, as it prints it; closing the generator ends git. Raises `GitError`."""
        with (self.folder / "said").open("w+b") as said:
            process = self._started(arguments, stdin, said)
            try:
                yield from self._printed(process)
                if process.wait() != 0:
                    raise GitError(one_line(f"{self.label}: {self._why(said)}"))
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                if process.stdout is not None:
                    process.stdout.close()

    def _started(self, arguments: tuple[str, ...], stdin: IO[bytes] | None, said: IO[bytes]) -> subprocess.Popen[bytes]:
        settings = [word for key, value in _SETTINGS.items() for word in ("-c", f"{key}={value}")]
        # The shell sets the limit in the child: doing it between fork and exec is unsafe in a process with threads.
        limited = ("sh", "-c", 'ulimit -f "$0" && exec git "$@"', str(REPOSITORY_MAX_BYTES // _ULIMIT_BLOCK_BYTES))
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        try:
            return subprocess.Popen(
                [*limited, f"--git-dir={self.folder}", *settings, *arguments],
                stdin=stdin if stdin is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=self.folder,
                env={**environment, **_ENVIRONMENT},
                start_new_session=True,
            )
        except OSError as error:
            raise GitError(f"{self.label}: git cannot be started ({error.strerror})") from None

    def _printed(self, process: subprocess.Popen[bytes]) -> Iterator[bytes]:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if self._called_off.is_set():
                    raise GitError(f"{self.label}: was called off")
                if time.monotonic() > self._until:
                    raise GitError(
                        f"{self.label}: git had not ended after {GIT_DEADLINE_S:g} s: clone it yourself, and install "
                        "the folder"
                    )
                if selector.select(_LOOK_EVERY_S):
                    chunk = os.read(process.stdout.fileno(), _CHUNK_BYTES)
                    if not chunk:
                        return
                    yield chunk

    def _why(self, said: IO[bytes]) -> str:
        if any(file.stat().st_size >= REPOSITORY_MAX_BYTES for file in self.folder.rglob("*") if file.is_file()):
            return f"is larger than {REPOSITORY_MAX_BYTES // 1024**2} MiB"
        said.seek(0)
        text = said.read(_SAID_MAX_BYTES).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if any("git: not found" in line or "git: command not found" in line for line in lines):
            return "git is not here: install it, or install from a folder or an archive"
        telling = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
        return telling[0] if telling else "git ended without saying why"
