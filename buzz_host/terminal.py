"""Text of plugins and models on its way to a terminal: shown, never obeyed (SEC-04).

What a terminal would act on is written out instead (`\\x1b`, `\\u202e`), character by character. Nothing is dropped,
since a reader of a transcript must see whatever the model saw; and nothing depends on where a sequence ends, so that
one cut in two by a stream is as harmless as a whole one. Not covered: letters that look alike, and what shows nothing.
"""

from __future__ import annotations

import re
from typing import Final

# Controls of both sets (save line end and tab), what turns the direction of writing, and lone surrogates, which no
# stream can encode. `\r` of a `\r\n` is part of a line end and goes.
_OBEYED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` with everything that a terminal would obey written out; the same object when there is nothing such.

    Line ends and tabs stay, `\\r\\n` becomes `\\n`, a lone surrogate U+FFFD. Idempotent; linear in the length.
    """
    if _OBEYED.search(text) is None:
        return text
    return _OBEYED.sub(_written_out, text.replace("\r\n", "\n"))


def printable_line(text: str) -> str:
    """`text` as one line, for a row or a message: line ends and tabs are written out too, so no text fakes a row."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


class StreamPrinter:
    """`printable` for text that comes in pieces: all that it returns, joined, is `printable` of the whole."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be shown now. A `\\r` at the end waits for what follows, which may make it a line end."""
        text = self._held + piece
        self._held = "\r" if text.endswith("\r") else ""
        return printable(text[: len(text) - len(self._held)])

    def finish(self) -> str:
        """What was still held back, at the end of the stream."""
        held, self._held = self._held, ""
        return printable(held)


def _written_out(match: re.Match[str]) -> str:
    character = match[0]
    if "\ud800" <= character <= "\udfff":
        return "\ufffd"
    if character == "\r":
        return "\\r"
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
