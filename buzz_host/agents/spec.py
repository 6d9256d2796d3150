"""What an agent file says, as values, and the one shape of an error in it.

Kept apart from the reading so that whoever needs only the values, or catches the error, imports no YAML.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import attrs

from buzz_author.errors import BuzzError
from buzz_host.settings.buzz_toml import Permissions

Scope = Literal["core", "user"]
OnMessage = Literal["queue", "auto"]
Severity = Literal["info", "warn", "critical"]
WhileBusy = Literal["steer", "queue"]

# Lowest first: an agent of a later scope takes the place of one of the same name in an earlier one (SPC-02).
SCOPES: Final[tuple[Scope, ...]] = ("core", "user")


def shown_path(path: Path) -> str:
    """`path` as one printable line: a file's name may hold line ends, controls and bytes that are no text."""
    text = str(path)
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


class AgentFileError(BuzzError, ValueError):
    """An agent file that cannot be used: `<path>:<line>: <what is wrong>, expected <what would be right>` (SPC-02).

    `line` counts from 1.
    """

    def __init__(self, path: Path, line: int, what: str) -> None:
        super().__init__(f"{shown_path(path)}:{line}: {what}")
        self.path = path
        self.line = line
        self.what = what


@attrs.frozen
class FileNote:
    """Something about one line of an agent file: a fault that keeps it out, or a warning that does not.

    `line` counts from 1. `str()` gives `<path>:<line>: <message>`.
    """

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{shown_path(self.path)}:{self.line}: {self.message}"


@attrs.frozen(kw_only=True)
class AgentSpec:
    """One agent as its file describes it (SPC-01); the defaults are the contract's.

    `prompt` is the Markdown below the frontmatter, trimmed. `model`, `effort`, `harness`, `cwd` and `permissions` are
    None where the file leaves the choice to others. `allowed_plugins` is None where every enabled plugin may speak to
    the agent. `warnings` are what the file says that nobody understands.
    """

    name: str
    description: str
    prompt: str
    scope: Scope
    source_path: Path
    model: str | None = None
    effort: str | None = None
    tools: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    memory: bool = True
    subagent: bool = True
    openable: bool = True
    on_message: OnMessage = "queue"
    forward_min_severity: Severity = "warn"
    harness: str | None = None
    cwd: Path | None = None
    permissions: Permissions | None = None
    allowed_plugins: tuple[str, ...] | None = None
    while_busy: WhileBusy = "steer"
    attention: bool = False
    warnings: tuple[FileNote, ...] = attrs.field(default=(), eq=False)
