"""Puts the real outputs into pages: `python -m tests.docs.rewrite docs/auditing.md …`.

For whoever changed what a command prints. Outputs that match stay as they are, `…` included; others are replaced by
what is printed now. Look at the difference before you commit it: the words around it may have to change as well.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.pages import blocks
from tests.docs.reader import Reader


class _Writer(Reader):
    """A reader who notes what it should say instead of complaining."""

    def __init__(self) -> None:
        super().__init__()
        self.replacements: list[tuple[str, str]] = []

    def compare(self, shown: str, where: str) -> None:
        try:
            super().compare(shown, where)
        except AssertionError:
            told = self.printed.replace(str(self.home), "…")
            for literal, real in self.real.items():
                told = told.replace(real, literal)
            self.replacements.append((shown, told))
            super().compare(told, where)


def rewritten(page: Path) -> str:
    """The text of `page` with its outputs as they are now."""
    text, done = "", 0
    whole = page.read_text(encoding="utf-8")
    with _Writer() as writer:
        for block in blocks(page):
            start = whole.index(block.text, done)
            writer.replacements.clear()
            writer.do(block)
            replaced = block.text
            for shown, told in writer.replacements:
                replaced = f"\n{replaced}".replace(f"\n{shown}\n", f"\n{told}\n", 1).removeprefix("\n")
            text += whole[done:start] + replaced
            done = start + len(block.text)
    return text + whole[done:]


def main(names: list[str]) -> None:
    for name in names:
        page = Path(name).resolve()
        page.write_text(rewritten(page), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
