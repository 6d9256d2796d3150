"""How a command ends: the exit code, and at most one line on stderr.

A person's mistake is one line and exit code 2, never a traceback. A bug of ours is one line as well, which says where
its traceback was written. A closed pipe is silent, as everywhere on Unix.
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


class Ending(click.ClickException):
    """The end of a command: its exit code, and the line for stderr (empty: none)."""

    def __init__(self, exit_code: int, line: str = "") -> None:
        super().__init__(line)
        self.code = exit_code


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
    sys.exit(_flushed(code))


def _ending(error: Exception, ctx: click.Context) -> Ending:
    # Looked up, not imported: a command that never came to the host has not loaded it either.
    errors = sys.modules.get("buzz_author.errors")
    if errors is not None and isinstance(error, errors.BuzzError):
        return Ending(EXIT_MISTAKE, str(error))
    return Ending(EXIT_BUG, f"this is a bug in Buzz, please report it: {_described(error)}; {_kept(error, ctx)}")


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
    except BrokenPipeError:
        # The interpreter flushes once more at its exit, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code or EXIT_PIPE_CLOSED
    return code
