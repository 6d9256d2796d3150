"""How a command ends: the exit code, and at most one line on stderr.

A person's mistake is one line and exit code 2, never a traceback; so is what a full disk, a mount or an owner's mode
does to a file, or to standard output. A bug of ours is one line as well, which says where its traceback was written. A
closed pipe is silent, as everywhere on Unix.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from buzz_host.cli.options import home_path

if TYPE_CHECKING:
    from pathlib import Path

EXIT_FAILED: Final = 1
EXIT_MISTAKE: Final = 2
EXIT_BUG: Final = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT
EXIT_PIPE_CLOSED: Final = 141  # 128 + SIGPIPE


INTERRUPTING: Final = "\ninterrupting: waiting for the program, 5 s at most; Ctrl-C again ends it now"
STDOUT_NAME: Final = "standard output"
STDOUT_CLOSED: Final = "standard output is closed: lead it somewhere, such as >/dev/null"
_PRINTING: Final = ("buzz_host.cli.", "click.", "rich.")
FOLDER_GONE: Final = "the folder that this command runs in is gone: change to one that is there"


class Ending(click.ClickException):
    """The end of a command: its exit code, and the line for stderr (empty: none)."""

    def __init__(self, exit_code: int, line: str = "") -> None:
        super().__init__(line)
        self.code = exit_code


class Left(Exception):
    """The person does not wait for the turn any longer."""


@contextmanager
def ended(ctx: click.Context) -> Iterator[None]:
    """Turn what a verb raises into an `Ending`; click's own exceptions pass."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except BrokenPipeError:
        raise Ending(EXIT_PIPE_CLOSED) from None
    except Exception as error:
        raise _ending(error, ctx) from None


def run_to_the_end(command: Callable[[], Any]) -> NoReturn:
    """Call `command`, say its line, and exit with its code."""
    # A terminal that cannot show a character gets its escape, not a traceback.
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        returned = command()
        code = returned if isinstance(returned, int) else 0
    except click.Abort:
        code = EXIT_INTERRUPTED
    except click.ClickException as ending:
        code = ending.code if isinstance(ending, Ending) else ending.exit_code
        if isinstance(ending, click.exceptions.NoArgsIsHelpError):
            ending.show()
        else:
            _say(_line_of(ending))
    except OSError as error:  # what click itself prints, such as help, met a disk that is full
        line = _around(error)
        if line is None:
            raise
        code = EXIT_MISTAKE
        _say(line)
    sys.exit(_flushed(code))


def open_standard_streams() -> None:
    """Open what of the standard streams is closed, so that no file of ours gets its number and is written into.

    Input is then empty, and what goes to stderr is lost. Without standard output nothing can be done, so the command
    ends here.
    """
    closed = [number for number in (0, 1, 2) if not _is_open(number)]
    for number in closed:
        # The lowest number that is free is the one that is taken.
        os.open(os.devnull, os.O_RDWR)
        if number == 0:
            sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
        elif number == 1:
            sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        else:
            sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    if 1 in closed:
        _say(STDOUT_CLOSED)
        sys.exit(EXIT_MISTAKE)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _ending(error: Exception, ctx: click.Context) -> Ending:
    # Looked up, not imported: a command that never came to the host has not loaded it either.
    errors = sys.modules.get("buzz_author.errors")
    if errors is not None and isinstance(error, errors.BuzzError):
        return Ending(EXIT_MISTAKE, str(error))
    if isinstance(error, OSError) and (line := _around(error)) is not None:
        return Ending(EXIT_MISTAKE, line)
    return Ending(EXIT_BUG, f"this is a bug in Buzz, please report it: {_described(error)}; {_kept(error, ctx)}")


def _around(error: OSError) -> str | None:
    """The line for what the surroundings did to us; None for a bug of ours."""
    from buzz_host.settings.files import surroundings

    if error.filename is None:
        if isinstance(error, FileNotFoundError) and not _folder_is_there():
            return FOLDER_GONE
        if _raised_by_printing(error):
            error.filename = STDOUT_NAME
    return surroundings(error)


def _folder_is_there() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - what is asked is whether it can be
    except OSError:
        return False
    return True


def _raised_by_printing(error: OSError) -> bool:
    """Whether `error`, which names no file, comes from what prints: every file of ours is opened by its name."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    where = str(innermost.tb_frame.f_globals.get("__name__", "")) if innermost is not None else ""
    return f"{where}.".startswith(_PRINTING)


def _described(error: Exception) -> str:
    from buzz_author.errors import describe

    return describe(error)


def _kept(error: Exception, ctx: click.Context) -> str:
    """Write the traceback into the home's logs; where it is, in words."""
    import tempfile
    import traceback
    from datetime import UTC, datetime
    from pathlib import Path

    from buzz_author.errors import BuzzError
    from buzz_host.settings import Home

    report = "".join(traceback.format_exception(error)).encode("utf-8", "backslashreplace")
    at = datetime.now(UTC)
    name = f"crash-{at:%Y%m%dT%H%M%S}-{os.getpid()}.txt"
    with suppress(OSError, BuzzError):
        home = Home.resolve(home_path(ctx))
        return f"its traceback is in {_written(home.folder(home.logs) / name, report)}"
    with suppress(OSError):
        return f"its traceback is in {_written(Path(tempfile.mkdtemp(prefix='buzz-')) / name, report)}"
    return "its traceback could not be written anywhere"


def _written(path: Path, report: bytes) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(report)
    except OSError:  # a full disk: half a report helps nobody
        path.unlink(missing_ok=True)
        raise
    return path


def _line_of(ending: click.ClickException) -> str:
    line = ending.format_message()
    if isinstance(ending, click.UsageError) and ending.ctx is not None and ending.ctx.command is not None:
        line = line[:1].lower() + line[1:].removesuffix(".")
        return f"{line} (see `{ending.ctx.command_path} --help`)"
    return line


def _say(line: str) -> None:
    if line:
        from buzz_host.terminal import printable_line

        with suppress(OSError):
            click.echo(f"buzz: {printable_line(line)}", err=True)


def _flushed(code: int) -> int:
    """Flush stdout here, where a closed pipe can still be met in silence; the exit code that holds then."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes once more at its exit, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return code or EXIT_PIPE_CLOSED
        if code == 0:
            from buzz_host.settings.files import surroundings

            error.filename = STDOUT_NAME
            _say(surroundings(error) or f"{STDOUT_NAME}: {error.strerror}")
        return code or EXIT_MISTAKE
    return code
