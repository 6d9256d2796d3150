"""How the outcome of a turn is put into words, the same on every surface of the command line.

Everything here returns lines that are safe for a terminal: what plugins and models said is written out where a terminal
would obey it (SEC-04).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from buzz_host.terminal import printable_line

if TYPE_CHECKING:
    from buzz_author.events import Usage
    from buzz_author.harness import HarnessError
    from buzz_host.sessions.events import PermissionRequested

ID_SHOWN_CHARACTERS: Final = 8
DETAIL_SHOWN_CHARACTERS: Final = 300
EVERY_INSTRUCTION: Final = "*"

REASONS: Final = {
    "when-false": "its `when` said no",
    "when-not-true": "its `when` gave something other than True",
    "when-raised": "its `when` raised",
    "when-async": "its `when` is async, and is never awaited",
    "when-timeout": "its `when` was out of time",
    "suspended": "suspended until the plugin changes: its `when` was out of time before",
    "muted": "the plugin is muted",
    "not-allowed": "the agent does not allow this plugin",
    "plugin-off": "the plugin is off",
    "plugin-starting": "the plugin was still starting",
    "plugin-failed": "the plugin failed",
    "no-room": "it did not fit into the entries of the program's hook",
}


def reason_in_words(reason: str, detail: str | None) -> str:
    """Why something was left out; a reason that a newer version wrote is given as it is."""
    words = REASONS.get(reason, reason)
    return f"{words}: {cut(detail)}" if detail else words


def contribution(plugin: str, identifier: str | None) -> str:
    """`plugin/id`; the plugin alone where it never came to say an id."""
    return plugin if identifier in (None, EVERY_INSTRUCTION) else f"{plugin}/{identifier}"


def cut(text: str) -> str:
    """`text` as one safe line of bounded length."""
    line = printable_line(text)
    return line if len(line) <= DETAIL_SHOWN_CHARACTERS else line[: DETAIL_SHOWN_CHARACTERS - 1] + "…"


def counted(number: int, noun: str) -> str:
    """`1 plugin`, `2 plugins`, `1,234 bytes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortened(identifier: str) -> str:
    """The beginning of an id, enough to name it in a command."""
    return identifier[:ID_SHOWN_CHARACTERS]


def error_in_words(error: HarnessError) -> str:
    """A harness's error: what kind, with which status, what the program itself said."""
    status = f" (status {error.status})" if error.status is not None else ""
    return f"{error.kind}{status}: {cut(error.native)}"


def asked_in_words(event: PermissionRequested) -> str:
    """What somebody wants to use: the tool, whose it is, whether it only reads, and with which arguments."""
    from buzz_host.cli.output import json_line

    whose = f"plugin {event.plugin}" if event.plugin is not None else "the program's own"
    reads = {True: "only reads", False: "changes things", None: "may change things"}[event.read_only]
    # The arguments last: what they say cannot stand for anything else on the line.
    return f"{cut(event.tool)} ({printable_line(whose)}, {reads}): {cut(json_line(event.arguments).rstrip())}"


def usage_in_words(usage: Usage) -> str:
    """The tokens of a turn, those that the model told."""
    told: Iterable[tuple[int | None, str]] = (
        (usage.input_tokens, "in"),
        (usage.output_tokens, "out"),
        (usage.cache_read_tokens, "read from cache"),
        (usage.cache_write_tokens, "written to cache"),
    )
    return ", ".join(f"{number:,} {what}" for number, what in told if number is not None) or "not told"
