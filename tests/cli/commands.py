"""Running `buzz` as people and programs do: as a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Protocol

import attrs

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PARROT = Path(__file__).parent / "plugins" / "parrot.py"
BUZZ = (sys.executable, "-m", "buzz_host.cli")
DEADLINE_S = 60.0
# What makes the harness parrot run a turn; before the message.
PARROT_OPTIONS = ("--plugin", str(PARROT), "--harness", "parrot")


@attrs.frozen
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What `--json` printed."""
        return [json.loads(line) for line in self.out.split("\n")[:-1]]


class Buzz(Protocol):
    """Runs a command to its end; keywords are variables of its environment."""

    def __call__(self, *arguments: str | Path, stdin: bytes = b"", **environment: str) -> Done: ...
