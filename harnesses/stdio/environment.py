"""The environment that a harness's program gets: a list of what it is given, not of what it is not (SEC-02).

Inherited credentials, proxies and settings of other programs never reach it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

# Where programs are, the locale, who the person is, and whom to trust: no secret is among them.
PASSED_ON: Final = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
)
# A loopback model needs no key, and must not get a person's; some programs do not start a turn without one.
LOOPBACK_KEY: Final = "no-key-for-a-loopback-model"


def passed_on(inherited: Mapping[str, str], home: Path) -> dict[str, str]:
    """What of the host's environment every program gets, with `home` as its home folder and `home`/tmp for scratch."""
    return {name: inherited[name] for name in PASSED_ON if name in inherited} | {
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
    }


def make_folders(home: Path) -> None:
    """Make `home` and its scratch folder, both for this user alone. Raises `OSError`."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "tmp").mkdir(mode=0o700, exist_ok=True)
