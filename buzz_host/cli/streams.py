"""What is printed by code that is not the command's own: on stderr, as lines that name the plugin (SEC-04).

Stdout is the command's: a text to the byte, or JSON Lines. A plugin's `print` would break both, from any thread, and
its words could hold terminal controls. Covers what goes through `sys.stdout`, `sys.stderr` and `warnings`; what code
writes to the file descriptors themselves is beyond it.
"""

from __future__ import annotations

import sys
import threading
import warnings
from types import FrameType
from typing import Any, Final, TextIO

import click

LINE_MAX_CHARACTERS: Final = 8192
# Who prints for the command: itself, through these. A plugin may print through them as well.
_COMMAND: Final = "buzz_host.cli"
_PRINTERS: Final = ("click", "rich")


class Router:
    """Stands for a standard stream: what the command writes goes to the stream, what others write to stderr in lines.

    Everything else that a stream has is the stream's. Any thread may write.
    """

    def __init__(self, stream: TextIO, lines: Lines, *, only_plugins: bool) -> None:
        self._stream = stream
        self._lines = lines
        self._only_plugins = only_plugins

    def write(self, text: str) -> int:
        """As a stream does."""
        who = self._stranger(sys._getframe(1))
        if who is None or not isinstance(text, str):
            return self._stream.write(text)  # it says what is wrong with what is no text
        self._lines.feed(who, text)
        return len(text)

    def writelines(self, texts: Any) -> None:
        """As a stream does."""
        who = self._stranger(sys._getframe(1))
        for text in texts:
            self._stream.write(text) if who is None else self._lines.feed(who, text)

    @property
    def buffer(self) -> Any:
        """The stream's bytes, for whoever may write to it."""
        who = self._stranger(sys._getframe(1))
        return self._stream.buffer if who is None else _Octets(self._lines, who)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _stranger(self, frame: FrameType) -> str | None:
        """Who writes, where that is not the command."""
        caller = _module(frame)
        at: FrameType | None = frame
        while at is not None and _is_in(_module(at), *_PRINTERS):
            at = at.f_back
        if at is not None and _is_in(_module(at), _COMMAND):
            return None
        speaking = _speaker(frame)
        if speaking is not None or self._only_plugins:
            return speaking
        # Code of a package whose plugins are only being looked for, or of a library.
        return caller


class Lines:
    """Puts what others print together to lines, thread by thread, and shows them on `stderr`."""

    def __init__(self, stderr: TextIO) -> None:
        self._stderr = stderr
        self._lock = threading.Lock()
        self._begun: dict[tuple[int, str], str] = {}

    def feed(self, who: str, text: str) -> None:
        """Take `text`, and show the lines that it completes."""
        key = threading.get_ident(), who
        with self._lock:
            *lines, rest = (self._begun.pop(key, "") + text).split("\n")
            if len(rest) > LINE_MAX_CHARACTERS:
                lines, rest = [*lines, rest], ""
            if rest:
                self._begun[key] = rest
        for line in lines:
            self._show(who, line)

    def finish(self) -> None:
        """Show what has no line end."""
        with self._lock:
            begun, self._begun = self._begun, {}
        for (_, who), line in begun.items():
            self._show(who, line)

    def _show(self, who: str, line: str) -> None:
        from buzz_host.terminal import printable_line

        click.echo(f"printed: {printable_line(f'{who}: {line}')}", file=self._stderr)


class _Octets:
    """The `buffer` of a stream for code that is not the command's."""

    def __init__(self, lines: Lines, who: str) -> None:
        self._lines = lines
        self._who = who

    def write(self, octets: bytes) -> int:
        self._lines.feed(self._who, bytes(octets).decode("utf-8", "replace"))
        return len(octets)

    def flush(self) -> None:
        pass


def guard_streams() -> Lines:
    """From now on, in this process, stdout is the command's alone; the result is to be finished at the end."""
    lines = Lines(sys.stderr)
    before = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        who = _speaker(sys._getframe(1)) if file is None else None
        if who is None:
            before(message, category, filename, lineno, file, line)
        else:
            from buzz_host.terminal import printable_line

            said = printable_line(f"{who}: {category.__name__}: {message} ({filename}:{lineno})")
            click.echo(f"warning: {said}", file=lines._stderr)

    warnings.showwarning = show
    sys.stdout = Router(sys.stdout, lines, only_plugins=False)
    sys.stderr = Router(sys.stderr, lines, only_plugins=True)
    return lines


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_in(module: str, *packages: str) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in packages)


def _speaker(frame: FrameType) -> str | None:
    # Looked up, not imported: a command that runs no plugin has not loaded it either.
    whose = sys.modules.get("buzz_host.plugins.whose")
    found: str | None = whose.speaker(frame) if whose is not None else None
    return found
