"""`buzz harness install`, `uninstall` and `login`: the programs of harnesses, fetched, taken out, and logged in.

They are fetched by this command itself and not by a running host, so that they end with it: a person sees what is
fetched, and Ctrl-C stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from buzz_host.cli.asking import ask
from buzz_host.cli.endings import EXIT_FAILED
from buzz_host.cli.options import home_option, home_path, json_option, plugin_option
from buzz_host.cli.output import note, print_json

if TYPE_CHECKING:
    from buzz_author.harness import NpmProgram
    from buzz_host.programs.installing import Installed, Installer, Progress
    from buzz_host.services.program_calls import Programs

# Harnesses that need no program of their own but a package, which comes with an extra of ours.
EXTRAS: Final = ("claude", "direct")
_MEGABYTE: Final = 1_000_000
# What a program that talks to a person needs to know of the terminal and the screen.
_OF_THE_TERMINAL: Final = (
    "TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "TERM_PROGRAM", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY",
    "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "BROWSER", "SSH_CONNECTION", "SSH_TTY",
)  # fmt: skip


@click.command(no_args_is_help=True)
@click.argument("names", metavar="HARNESS…", nargs=-1, required=True)
@click.option("--version", metavar="VERSION", help="Another version than the one that Buzz was tested with.")
@plugin_option
@json_option
@home_option
def install(names: tuple[str, ...], version: str | None, plugins: tuple[str, ...], as_json: bool) -> None:
    """Fetch the programs of harnesses: codex, goose, pi.

    Each in the version that Buzz was tested with, into the home (or $BUZZ_PROGRAMS), with npm and without running any
    script of it; node as well where the machine's is too old.
    """
    if version is not None and len(set(names)) > 1:
        raise click.UsageError("--version is for one harness at a time")
    programs = _programs(names, plugins)
    wanted = {name: _program(name, programs) for name in dict.fromkeys(names)}
    with _Shown() as shown:
        installer = _installer(programs, shown)
        for name, program in wanted.items():
            done = installer.install(name, program, version=version)
            shown.clear()
            if as_json:
                print_json(_row(done))
            else:
                _draw(done)


@click.command()
@click.argument("name", metavar="HARNESS")
@plugin_option
@json_option
@home_option
def uninstall(name: str, plugins: tuple[str, ...], as_json: bool) -> None:
    """Take out a fetched program, all versions of it.

    Its logins and conversations stay. The fetched node goes when no program needs it any more.
    """
    programs = _programs((), plugins)
    with _Shown() as shown:
        gone = _installer(programs, shown).uninstall(name, programs.known)
    if as_json:
        print_json(
            {
                "harness": gone.harness,
                "versions": list(gone.versions),
                "bytes": gone.bytes,
                "node": list(gone.node),
                "folder": str(programs.folder),
            }
        )
        return
    also = f", and node {', '.join(gone.node)}, which nothing needs any more" if gone.node else ""
    from buzz_host.terminal import printable_line

    click.echo(
        printable_line(f"{name} {', '.join(gone.versions)} is taken out{also}: {_megabytes(gone.bytes)} are free")
    )


@click.command()
@click.argument("name", metavar="HARNESS")
@plugin_option
@json_option
@home_option
def login(name: str, plugins: tuple[str, ...], as_json: bool) -> None:
    """Log a program in to its provider, by the login of its own.

    What it asks and shows is the program's. The login is kept in the home, apart from any that you have elsewhere.
    """
    import os
    import signal
    import subprocess

    from buzz_author.errors import BuzzError
    from buzz_host.services.program_calls import LoginOf

    how = ask(LoginOf(harness=name), plugins)
    environment = {**{each: os.environ[each] for each in _OF_THE_TERMINAL if each in os.environ}, **how.env}
    # Ctrl-C is the program's: it has the terminal.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # With --json, stdout is for the result alone.
        code = subprocess.run(
            how.argv,
            env=environment,
            check=False,
            stdout=2 if as_json else None,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ).returncode
    except OSError as error:
        raise BuzzError(f"{how.argv[0]}: cannot be run ({error.strerror})") from None
    finally:
        signal.signal(signal.SIGINT, before)
    logged_in = ask(LoginOf(harness=name), plugins).logged_in
    if as_json:
        print_json({"harness": name, "exit_code": code, "logged_in": logged_in})
    elif logged_in:
        click.echo(f"{name} is logged in: its sessions need no key now")
    else:
        note(f"{name} is not logged in", fg="red")
    if not logged_in:
        raise click.exceptions.Exit(EXIT_FAILED)


class _Shown:
    """What is being fetched, on stderr: one line that changes on a terminal, a line for each package elsewhere."""

    def __init__(self) -> None:
        import sys

        self._terminal = sys.stderr.isatty()
        self._said = ""

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def tell(self, progress: Progress) -> None:
        line = f"{progress.harness}: {progress.doing}"
        if self._terminal:
            size = f", {_megabytes(progress.bytes)} so far" if progress.bytes else ""
            click.echo(f"\r\x1b[K{line}{size}", err=True, nl=False)
            self._said = line
        elif line != self._said:
            note(line)
            self._said = line

    def clear(self) -> None:
        """Let the next line begin where the last one stood."""
        if self._terminal and self._said:
            click.echo("\r\x1b[K", err=True, nl=False)
        self._said = ""


def _programs(names: tuple[str, ...], plugins: tuple[str, ...]) -> Programs:
    from buzz_host.services.program_calls import ListPrograms

    # What comes with a package is told so, whether its plugin is there or not.
    return ask(ListPrograms(named=tuple(each for each in names if each not in EXTRAS)), plugins)


def _program(name: str, programs: Programs) -> NpmProgram:
    from buzz_author.errors import BuzzError

    program = programs.known.get(name)
    if program is not None:
        return program
    if name in EXTRAS:
        raise BuzzError(f"{name} comes with a Python package, not by this command: pip install 'buzz-agents[{name}]'")
    there = ", ".join(sorted(each for each, found in programs.known.items() if found is not None))
    raise BuzzError(f"{name} has no program that Buzz can fetch: its plugin says how it is installed; others: {there}")


def _installer(programs: Programs, shown: _Shown) -> Installer:
    from buzz_host.programs.installing import Installer
    from buzz_host.programs.places import ProgramPlaces
    from buzz_host.settings import Home

    home = Home.resolve(home_path())
    if programs.folder == home.harnesses:
        home.writable_root()
        home.folder(home.harnesses)
    return Installer(ProgramPlaces.at(programs.folder), tell=shown.tell)


def _row(done: Installed) -> Mapping[str, Any]:
    return {
        "harness": done.harness,
        "package": done.package,
        "version": done.version,
        "pinned": done.pinned,
        "path": str(done.path),
        "bytes": done.bytes,
        "already": done.already,
        "integrity": done.integrity,
        "verified": done.verified,
        "node": None
        if done.node is None
        else {
            "package": done.node.package,
            "version": done.node.version,
            "path": str(done.node.path),
            "bytes": done.node.bytes,
        },
        "seconds": round(done.seconds, 1),
    }


def _draw(done: Installed) -> None:
    from buzz_host.terminal import printable_line

    said: Callable[[str], None] = lambda line: click.echo(printable_line(line))  # noqa: E731
    if done.already:
        said(f"{done.harness} {done.version} is installed already, in {done.path}")
        return
    said(f"{done.harness} {done.version} is installed, {_megabytes(done.bytes)} in {done.path}")
    held = "the one that Buzz was tested with" if done.verified else "as the registry says; Buzz pins none for it"
    said(f"  package    {done.package} {done.version}")
    said(f"  integrity  {done.integrity or 'not told'}, {held}")
    if not done.pinned:
        said("  version    another one than Buzz was tested with: `buzz harness doctor` shows whether it works")
    if done.node is not None:
        said(f"  node       {done.node.version}, {_megabytes(done.node.bytes)} in {done.node.path}")


def _megabytes(size: int) -> str:
    return f"{max(1, round(size / _MEGABYTE)):,} MB"


COMMANDS: Final = (install, uninstall, login)
