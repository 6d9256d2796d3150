"""Every command, with a running host and without one, on the same home: the same to the last byte (CLI-01, PLG-06)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from buzz_host.cli import buzz as root
from tests.cli.commands import PARROT, Buzz, Done
from tests.cli.hosts import serving
from tests.conftest import SOAK

PLUGINS = Path(__file__).parent / "plugins"
EVERYTHING = 'say "Hello"\ntool\nretry\ncompact\nsay " you"'
ON_PARROT = ("--harness", "parrot")
# What is never the same twice. The hash of an entry goes with its time.
VARYING = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(head (none)?|\"head\":\")[0-9a-f]{64}"
    r"|\b(?=[a-f]*[0-9])[0-9a-f]{8}\b|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?"
)
# Commands that ask nothing about the home, or change files of a program of the person's own.
IN_THEIR_OWN_PROCESS = {
    "attach claude", "attach status", "demo", "detach", "doctor", "plugin new", "plugin validate", "serve",
}  # fmt: skip


def dropped(folder: Path, name: str, body: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(f'inject = ("agents",)\n\n\ndef apply(ctx):\n    {body}\n', encoding="utf-8")


@pytest.fixture(autouse=True)
def no_shared_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken out here is taken out of this home, and of no folder that others use."""
    monkeypatch.delenv("BUZZ_PROGRAMS", raising=False)


@pytest.fixture
def furnished(home: Path, work: Path) -> Path:
    """A home in which there is something to show for every command."""
    folder = home / "plugins"
    dropped(folder, "brief", "ctx.agents.addInstructions(id='one', text='Be brief. 漢字 \\U0001f600')")
    dropped(folder, "dev-only", "ctx.agents.addInstructions(id='x', text='Tabs.', when=lambda a: a.name == 'dev')")
    dropped(folder, "broken", "raise RuntimeError('no luck')")
    shutil.copy(PARROT, folder)
    shutil.copy(PLUGINS / "hostile.py", folder)
    described = folder / "described"
    described.mkdir()
    (described / "plugin.toml").write_text(
        'api = 1\nname = "described"\nversion = "1"\nauthor = "A"\nenabled_by_default = false\nodd = 1\n'
        '[config.level]\ntype = "number"\ndefault = 3\ndescription = "how loud"\n',
        encoding="utf-8",
    )
    (described / "plugin.py").write_text("def apply(ctx): pass\n", encoding="utf-8")
    (home / "buzz.toml").write_text('oddity = 1\n[plugins.brief]\nlist = [1, "two"]\n', encoding="utf-8")
    boxed = work / "boxed"
    boxed.mkdir()
    (boxed / "plugin.toml").write_text('api = 1\nname = "boxed"\nversion = "1"\ndescription = "d"\n', encoding="utf-8")
    dropped(boxed, "plugin", "ctx.agents.addInstructions(id='b', text='Boxed.')")
    dropped(work, "mine", "ctx.agents.addInstructions(id='m', text='Mine.')")
    return home


# In this order; `TURN` and `SESSION` stand for the newest of those that `audit turns` shows.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("preview", *ON_PARROT, "Hello"),
    ("preview", *ON_PARROT, "--json", "--agent", "dev", "--trigger", "steer", "Hello \u2028 you"),
    ("preview", "--harness", "nothing", "Hello"),
    ("preview", "--agent", "nobody", "Hello"),
    ("preview", "--plugin", "mine.py", *ON_PARROT, "Hello"),
    ("preview", "--plugin", "nowhere", "Hello"),
    ("plugin", "list"),
    ("plugin", "list", "--json"),
    ("plugin", "list", "--agent", "nobody"),
    ("plugin", "info", "brief"),
    ("plugin", "info", "described", "--json"),
    ("plugin", "info", "broken", "--agent", "dev"),
    ("plugin", "info", "brif"),
    ("plugin", "errors"),
    ("plugin", "errors", "--json"),
    ("harness", "list"),
    ("harness", "list", "--json"),
    ("harness", "doctor", "nobody"),
    ("harness", "install", "parrot"),
    ("harness", "install", "claude"),
    ("harness", "uninstall", "codex"),
    ("harness", "login", "parrot"),
    ("plugin", "disable", "brief", "--agent", "dev"),
    ("plugin", "info", "brief", "--agent", "dev"),
    ("preview", *ON_PARROT, "--agent", "dev", "Hello"),
    # No preview while it is off for all: only a host that ran it knows which instructions are left out with it.
    ("plugin", "disable", "brief", "--json"),
    ("plugin", "enable", "brief", "--agent", "main"),
    ("plugin", "list"),
    ("plugin", "enable", "brief"),
    ("plugin", "enable", "brif"),
    ("plugin", "enable", "brief", "--agent", "nobody"),
    ("plugin", "install", "--link", "mine.py"),
    ("plugin", "install", "--link", "mine.py", "--json"),
    ("plugin", "install", "--link", "nowhere.py"),
    ("preview", *ON_PARROT, "Hello"),
    ("plugin", "list"),
    ("plugin", "remove", "mine"),
    ("plugin", "remove", "mine"),
    ("plugin", "remove", "dev-only", "--json"),
    ("plugin", "list"),
    ("plugin", "install", "nowhere"),
    ("plugin", "install", "boxed"),
    ("plugin", "install", "boxed", "--json"),
    ("plugin", "info", "boxed"),
    ("preview", *ON_PARROT, "Hello"),
    ("plugin", "verify"),
    ("plugin", "verify", "nobody"),
    ("plugin", "upgrade", "boxed"),
    ("plugin", "upgrade", "--all", "--json"),
    ("plugin", "upgrade", "nobody"),
    ("plugin", "remove", "boxed", "--purge", "--yes", "--json"),
    ("plugin", "verify", "--json"),
    ("preview", *ON_PARROT, "Hello"),
    ("audit", "turns"),
    ("audit", "turns", "--json"),
    ("audit", "verify", "--json"),
    ("chat", *ON_PARROT),
    ("chat", "--harness", "nothing"),
    ("run", *ON_PARROT, EVERYTHING),
    ("run", *ON_PARROT, "--json", EVERYTHING),
    ("run", *ON_PARROT, "fail"),
    ("run", *ON_PARROT, "die"),
    ("run", "--plugin", "mine.py", *ON_PARROT, "Hello"),
    ("run", *ON_PARROT, " "),
    ("run", *ON_PARROT, "--record", "file", "Hello"),
    ("run", *ON_PARROT, "--rehearse", "--model-url", "http://127.0.0.1:1", "Hello"),
    ("run", "--harness", "nothing", "Hello"),
    ("run", "--resume", "nothing", "Hello"),
    ("run", *ON_PARROT, "--resume", "SESSION", "--json", "again"),
    ("run", "--resume", "SESSION", "--agent", "dev", "again"),
    ("audit", "turns"),
    ("audit", "turns", "--json", "--limit", "2", "--agent", "main"),
    ("audit", "turns", "--session", "nothing"),
    ("audit", "show", "nothing"),
    ("audit", "show", "TURN"),
    ("audit", "show", "TURN", "--json"),
    ("audit", "why", "TURN"),
    ("audit", "why", "TURN", "--json"),
    ("audit", "plugin", "brief"),
    ("audit", "plugin", "brief", "--json"),
    ("audit", "plugin", "nobody"),
    ("audit", "search", "brief"),
    ("audit", "search", "--json", "\u6f22\u5b57"),
    ("audit", "search", "nowhere"),
    ("audit", "verify"),
    ("audit", "verify", "--head", "x"),
    ("audit", "verify", "--head", "ab" * 32),
    ("audit", "verify", "--head", "ab" * 32, "--json"),
)
# With reduced counts, what a command tells as JSON is left to the commands that tell nothing else.
TRIED = [
    each
    for each in COMMANDS
    if SOAK or "--json" not in each or tuple(word for word in each if word != "--json") not in COMMANDS
]


@pytest.mark.req("CLI-01", "OPS-01", "PLG-06")
@pytest.mark.timeout(600)
def test_every_command_says_the_same_with_a_running_host_and_without(
    furnished: Path, environment: dict[str, str], work: Path, buzz: Buzz
) -> None:
    kept = furnished.with_name("kept")
    shutil.copytree(furnished, kept, symlinks=True)
    alone = list(_told(buzz))
    shutil.rmtree(furnished)
    kept.rename(furnished)
    with serving(environment, work) as host:
        served = list(_told(buzz))
        assert host.end() == (0, b"")
    for command, without, with_host in zip(TRIED, alone, served, strict=True):
        assert with_host == without, command
    # The commands did what they are here for.
    assert {each.code for each in alone} == {0, 1, 2}
    assert not any("this is a bug" in each.err for each in alone)


@pytest.mark.req("CLI-01")
def test_no_command_is_missing_above() -> None:
    tried = {command[0] for command in COMMANDS} | {" ".join(command[:2]) for command in COMMANDS}
    assert set(_leaves(root, ())) - tried == IN_THEIR_OWN_PROCESS


def _told(buzz: Buzz) -> Iterator[Done]:
    for command in TRIED:
        newest = {"TURN": "", "SESSION": ""}
        if {"TURN", "SESSION"} & set(command):
            row = buzz("audit", "turns", "--json", "--limit", "1").rows[0]
            newest = {"TURN": row["turn"], "SESSION": row["session"]}
        done = buzz(*(newest.get(word) or word for word in command))
        yield Done(done.code, VARYING.sub("…", done.out), VARYING.sub("…", done.err))


def _leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _leaves(below, (*path, name))
