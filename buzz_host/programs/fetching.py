"""Fetching by the package managers that are there: npm for programs, pip for node where the machine's does not do.

They are run as a person would run them, with the person's registry, proxy and certificates, so none of these is known
here. No script of a package is run. What goes wrong is told in one line, with what to do.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from buzz_author.errors import BuzzError
from buzz_host.programs.places import NODE, node_version
from buzz_host.programs.staging import Staging, size_of

PROGRESS_INTERVAL_S: Final = 0.5
# Nothing at all arrived for so long: the network hangs.
STALLED_S: Final = 600.0
# npm of any age that is still about runs with it.
NPM_NEEDS_NODE: Final = (18,)
NPM_CLI: Final = "lib/node_modules/npm/bin/npm-cli.js"
_OPTIONS: Final = (
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--no-save",
    "--no-package-lock",
    "--no-bin-links",
    "--no-update-notifier",
    "--no-progress",
    "--no-global",
    "--no-engine-strict",
    "--include=optional",
    "--omit=dev",
    "--install-strategy=hoisted",
    "--loglevel=error",
)
# Without a network npm would try for more than a minute. Whoever has set these has their reasons.
_RETRIES: Final = {
    "npm_config_fetch_retries": "2",
    "npm_config_fetch_retry_mintimeout": "1000",
    "npm_config_fetch_retry_maxtimeout": "5000",
}
_TAIL_BYTES: Final = 64 * 1024
_SAID_CHARACTERS: Final = 200
_UNREACHED: Final = (
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT"
    r"|NewConnectionError|ConnectTimeout|ReadTimeout|Could not fetch URL|Failed to establish|network"
)
# What npm and pip say, and what it is called here. The first that is found counts.
_FAULTS: Final[tuple[tuple[str, str], ...]] = (
    (r"ENOSPC|No space left on device", "the disk is full"),
    (r"EDQUOT|Disk quota exceeded", "the disk quota is used up"),
    (r"EROFS|EACCES|EPERM|Permission denied", "a file may not be written"),
    (r"EINTEGRITY|DO NOT MATCH THE HASHES", "what arrived is not what the registry announced"),
    (r"\bE404\b|\bETARGET\b|No matching version|No matching distribution|404 Not Found", "there is no such version"),
    (r"\bE40[13]\b|ENEEDAUTH", "the package registry refuses this computer: look at npm's or pip's own settings"),
    (_UNREACHED, "the package registry cannot be reached"),
    (r"CERT_|certificate|SSLError", "the package registry's certificate is not trusted here"),
)


class FetchFailed(BuzzError):
    """Nothing could be fetched, in one line; what was there before still is."""


def npm_words(environ: Mapping[str, str], fetched_node: Path | None) -> list[str] | None:
    """What starts npm: the machine's, else the one that came with a fetched node; None where there is none."""
    path = environ.get("PATH")
    npm, node = shutil.which("npm", path=path), shutil.which(NODE, path=path)
    if npm is not None and node is not None and node_version(Path(node)) >= NPM_NEEDS_NODE:
        return [npm]
    if fetched_node is not None:
        script = fetched_node.parent.parent / NPM_CLI
        if script.is_file():
            return [str(fetched_node), str(script)]
    return None


def npm_install(
    npm: Sequence[str],
    reference: str,
    folder: Path,
    staging: Staging,
    environ: Mapping[str, str],
    tell: Callable[[int], None],
) -> None:
    """Install the package `reference` below `folder`, without running any script of it. Raises `FetchFailed`.

    `tell` is called with the bytes that are there so far, a few times a second.
    """
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    cache = [] if _has_cache(environ) else [f"--cache={staging.path / 'npm-cache'}"]
    run(
        [*npm, "install", f"--prefix={folder}", *_OPTIONS, *cache, reference],
        what=reference,
        cwd=folder,
        staging=staging,
        environ={**_RETRIES, **environ},
        tell=tell,
    )


def pip_words() -> list[str] | None:
    """What starts pip: this Python's own, else the one on the PATH; None where there is none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip3") or shutil.which("pip")
    return [found] if found is not None else None


def run(
    argv: Sequence[str],
    *,
    what: str,
    cwd: Path,
    staging: Staging,
    environ: Mapping[str, str],
    tell: Callable[[int], None],
) -> None:
    """Run a package manager to its end. Raises `FetchFailed`; whatever ends this ends it as well."""
    said = staging.path / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(staging.descriptor,),
        )
        try:
            code = _watched(process, staging, tell, what)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if code != 0:
        raise FetchFailed(f"{what}: was not installed: {_fault(said, code)}")


def _watched(process: subprocess.Popen[bytes], staging: Staging, tell: Callable[[int], None], what: str) -> int:
    size, changed = 0, monotonic()
    while True:
        try:
            return process.wait(timeout=PROGRESS_INTERVAL_S)
        except subprocess.TimeoutExpired:
            now = size_of(staging.path)
        if now != size:
            size, changed = now, monotonic()
            tell(size)
        elif monotonic() - changed > STALLED_S:
            raise FetchFailed(f"{what}: was not installed: nothing arrived for {STALLED_S:g} s")


def _fault(said: Path, code: int) -> str:
    with said.open("rb") as file:
        file.seek(max(0, said.stat().st_size - _TAIL_BYTES))
        text = file.read().decode("utf-8", "replace")
    words = _last_words(text)
    for pattern, meaning in _FAULTS:
        if re.search(pattern, text):
            return f"{meaning} ({words})" if words else meaning
    return words or f"exit code {code}"


def _last_words(text: str) -> str:
    """The line that says most: npm's first without code, pip's last error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    npm = [line.removeprefix("npm error").strip() for line in lines if line.startswith("npm error")]
    telling = [each for each in npm if each and not re.match(r"code |errno |syscall |path |A complete log", each)]
    pip = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    chosen = telling[0] if telling else pip[-1] if pip else lines[-1] if lines else ""
    return chosen if len(chosen) <= _SAID_CHARACTERS else f"{chosen[:_SAID_CHARACTERS]}…"


def _has_cache(environ: Mapping[str, str]) -> bool:
    """Whether the person has an npm cache of their own, which is then used and kept."""
    if any(name.lower() == "npm_config_cache" and value for name, value in environ.items()):
        return True
    home = environ.get("HOME")
    return home is not None and (Path(home) / ".npm").is_dir()
