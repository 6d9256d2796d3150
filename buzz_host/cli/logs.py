"""What plugins and the host log reaches the person's stderr as lines, safe to look at (SEC-04).

Python writes warnings that nobody handles to stderr as they are, and a plugin's words could hold terminal controls.
"""

from __future__ import annotations

import logging

import click

from buzz_host.terminal import printable, printable_line

PLUGIN_LOGGERS = "buzz.plugin."


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            who = record.name.removeprefix(PLUGIN_LOGGERS)
            said = f"{record.levelname.lower()}: {who}: {printable_line(record.getMessage())}"
            if record.exc_info and record.exc_info[1] is not None:
                said += f"\n{printable(logging.Formatter().formatException(record.exc_info))}"
            click.echo(said, err=True)
        except Exception:
            self.handleError(record)


def show_logs() -> None:
    """From now on, warnings and errors that no other handler takes are shown so."""
    logging.lastResort = _Lines(logging.WARNING)
