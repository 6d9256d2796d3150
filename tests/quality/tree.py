"""The repository as the tests of its quality see it: its root, its committed files, its modules, its documents.

Committed files are asked of git, so that what only lies about on one machine is never judged.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("buzz_author", "buzz_host", "harnesses")


def committed_files() -> tuple[Path, ...]:
    """Every file that git tracks and that is still there."""
    # A checkout may belong to somebody else than the one who runs the tests (a container's root).
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True
    )
    names = listed.stdout.decode("utf-8").split("\0")
    return tuple(path for name in names if name and (path := ROOT / name).is_file())


def modules() -> tuple[Path, ...]:
    """Every Python file of the three packages, committed or not yet."""
    return tuple(sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")))


def documents() -> tuple[Path, ...]:
    """Every Markdown page for people: those of the root and those below docs."""
    return tuple(sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]))


def relative(path: Path) -> str:
    """The path as people write it, from the root of the repository."""
    return path.relative_to(ROOT).as_posix()
