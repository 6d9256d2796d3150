"""The plugins, the harnesses that they bring, and what a harness's program gets to see of the environment (SEC-02).

The answers are those of the running host, or of one for this check alone: what is told is what the next turn meets.
Environments are told by the names of their variables, never by a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from buzz_host.plugins.install.lockfile import LockFileError
from buzz_host.services.calls import ListHarnesses, ListPlugins, PluginErrors
from buzz_host.services.connect import connect
from buzz_host.services.doctor.checks import Check, note, ok, problem
from buzz_host.services.installs import check_installed
from buzz_host.services.place import place_of

if TYPE_CHECKING:
    from buzz_host.services.harnesses import HarnessView
    from buzz_host.settings import Home

AREA: Final = "plugins"
HARNESSES: Final = "harnesses"
CREDENTIALS: Final = "credentials"
DIFFERENCES_SHOWN: Final = 5
# Words of a variable's name that say that its value opens something.
_SECRET_WORDS: Final = frozenset(
    {
        "APIKEY", "AUTH", "CREDENTIAL", "CREDENTIALS", "KEY", "KEYS", "PASSPHRASE", "PASSWD", "PASSWORD", "PAT", "PWD",
        "SECRET", "SECRETS", "TOKEN", "TOKENS",
    }
)  # fmt: skip
_NO_SECRETS: Final = frozenset({"PWD", "OLDPWD", "XAUTHORITY"})
# An address with a password in it, as proxies and databases have.
_PASSWORD_IN_URL: Final = re.compile(rb"://[^/\s:@]*:[^/\s@]+@")


def plugin_checks(home: Home) -> Iterator[Check]:
    """Plugins, installed ones byte by byte, harnesses, and credentials."""
    yield from _links(home)
    yield from _installed(home)
    with connect(home.root) as services:
        troubles = services.ask(PluginErrors())
        for fault in troubles.faults:
            yield problem(AREA, f"plugin '{fault.plugin}', {fault.phase}: {fault.message}")
        for warning in troubles.warnings:
            yield note(AREA, warning)
        views = services.ask(ListPlugins())
        active = [each.id for each in views if each.standing == "active"]
        yield ok(AREA, f"{len(active)} of {len(views)} speak in turns of agent {views[0].agent}: {', '.join(active)}")
        harnesses = services.ask(ListHarnesses()).views
    yield from _harnesses(harnesses)
    yield from _credentials(home, harnesses)


def _links(home: Home) -> Iterator[Check]:
    """Links among the agents and skills that lead nowhere; those of plugins are faults of finding them."""
    for folder in (home.agents, home.skills):
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            continue
        for each in entries:
            if each.is_symlink() and not each.exists():
                yield problem(AREA, f"{each} is a link to {each.readlink()}, where nothing is: remove it")


def _installed(home: Home) -> Iterator[Check]:
    try:
        checked = check_installed(home, None)
    except LockFileError as error:
        yield problem(AREA, str(error))
        return
    for each in checked:
        for difference in each.differences[:DIFFERENCES_SHOWN]:
            yield problem(AREA, f"installed plugin '{each.plugin}': {difference}: buzz plugin upgrade {each.plugin}")
        if len(each.differences) > DIFFERENCES_SHOWN:
            more = len(each.differences) - DIFFERENCES_SHOWN
            yield problem(AREA, f"installed plugin '{each.plugin}': and {more} more: buzz plugin verify {each.plugin}")
    whole = [each.plugin for each in checked if not each.differences]
    if whole:
        yield ok(AREA, f"installed, each byte as it was then: {', '.join(whole)}")


def _harnesses(views: Sequence[HarnessView]) -> Iterator[Check]:
    if not views:
        yield problem(HARNESSES, "no harness is active, so no turn can run: pip install 'buzz-agents[claude]'")
    any_works = any(each.probe.fault is None for each in views)
    for each in views:
        if each.probe.fault is not None:
            level = note if any_works else problem
            yield level(HARNESSES, f"{each.title} ({each.id}): {each.probe.fault}")
            continue
        place = f" at {each.probe.path}" if each.probe.path is not None else ""
        yield ok(HARNESSES, f"{each.title} ({each.id}): {each.probe.version or 'version not told'}{place}")
        if not each.capabilities.carries_sections:
            yield note(HARNESSES, f"{each.title} builds its own prompt: plugins do not reach it")
        if not each.reaches_a_model:
            yield note(HARNESSES, f"{each.title} has no way to a model: {each.ways_to_a_model}")


def _credentials(home: Home, views: Sequence[HarnessView]) -> Iterator[Check]:
    variables, whose = _environment(home)
    secrets = sorted(name for name, value in variables.items() if _is_secret(name, value))
    for each in views:
        carries = each.capabilities
        if carries.inherits is None:
            yield note(CREDENTIALS, f"{each.title} does not say which variables of {whose} its program gets")
            continue
        got = [name for name in (*carries.key_variables, *carries.inherits) if name in variables]
        exposed = [name for name in got if name in secrets]
        if exposed:
            yield note(CREDENTIALS, f"the program of {each.title} gets these credentials: {', '.join(exposed)}")
        plain = [name for name in got if name not in exposed]
        yield ok(CREDENTIALS, f"the program of {each.title} gets of {whose}: {', '.join(plain) or 'nothing else'}")
        kept = [name for name in secrets if name not in exposed]
        yield ok(CREDENTIALS, f"kept from the program of {each.title}: {', '.join(kept) or 'no credential is there'}")
    if secrets:
        yield note(
            CREDENTIALS,
            f"plugins run inside of the host and can read {whose}, with: {', '.join(secrets)}; start Buzz without "
            "those that no plugin needs",
        )
    if "SSH_AUTH_SOCK" in variables:
        yield note(CREDENTIALS, "git, for `buzz plugin install`, can use the keys of your SSH agent (SSH_AUTH_SOCK)")


def _environment(home: Home) -> tuple[Mapping[str, bytes], str]:
    """The environment that counts, of the running host or else of this process, and whose it is in words."""
    place = place_of(home)
    octets = None
    if place is not None and place.pid != os.getpid():
        try:
            octets = Path(f"/proc/{place.pid}/environ").read_bytes()
        except OSError:
            octets = None
    if place is None or octets is None:
        return {name: os.fsencode(value) for name, value in os.environ.items()}, "your environment"
    pairs = (each.partition(b"=") for each in octets.split(b"\0") if each)
    return {os.fsdecode(name): value for name, _, value in pairs}, f"the host's environment (process {place.pid})"


def _is_secret(name: str, value: bytes) -> bool:
    if not value or name in _NO_SECRETS:
        return False
    return not _SECRET_WORDS.isdisjoint(name.upper().split("_")) or _PASSWORD_IN_URL.search(value) is not None
