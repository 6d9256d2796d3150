"""Drawing with rich: a console for stdout, colours for plugins, bars beside texts, tables.

Only commands that draw import this. Texts of plugins and models come in as they are and are made safe here, so that no
verb can forget it (SEC-04). Without a terminal nothing is wrapped, so that lines can be searched and counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from buzz_host.terminal import printable, printable_line

PLUGIN_COLOURS: Final = ("cyan", "magenta", "yellow", "green", "blue", "bright_red")
UNWRAPPED_COLUMNS: Final = 100_000
RULE_COLUMNS: Final = 80
BAR: Final = "│ "


class Palette:
    """A colour for each plugin, in the order in which they are first met; they repeat when there are many."""

    def __init__(self) -> None:
        self._colours: dict[str, str] = {}

    def of(self, plugin: str | None) -> str:
        """The style of `plugin`; plain where no plugin spoke."""
        if plugin is None:
            return "default"
        return self._colours.setdefault(plugin, PLUGIN_COLOURS[len(self._colours) % len(PLUGIN_COLOURS)])


class Drawing:
    """Draws on stdout as it is now; colours only on a terminal, and never with NO_COLOR.

    Without a terminal, texts are wrapped at `columns`, where that is given.
    """

    def __init__(self, columns: int = UNWRAPPED_COLUMNS) -> None:
        terminal = sys.stdout.isatty()
        self._console = Console(
            file=sys.stdout,
            width=None if terminal else columns,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def lines(self, *lines: Text | str) -> None:
        """Lines one below the other; a `str` is printed as it is, and must be safe."""
        with self._console.capture() as drawn:
            for line in lines:
                self._console.print(line, soft_wrap=True)
        click.echo(drawn.get(), nl=False)

    def rule(self, title: str, style: str = "bold") -> None:
        """A line across, with a title at its left."""
        title = printable_line(title)
        width = min(self._console.width, RULE_COLUMNS)
        self.lines(Text.assemble(("── ", "dim"), (title, style), (" " + "─" * max(2, width - len(title) - 4), "dim")))

    def text(self, body: str, *, bar: str = "dim", style: str = "") -> None:
        """A text of anybody's with a coloured bar at its left, wrapped where a terminal has an end."""
        room = max(20, self._console.width - len(BAR))
        drawn: list[Text] = []
        for line in printable(body).replace("\t", "    ").split("\n"):
            pieces = [Text(line, style)]
            if cell_len(line) > room:
                pieces = list(pieces[0].wrap(self._console, room))
                for piece in pieces:
                    piece.rstrip()
            drawn += [Text.assemble((BAR, bar), piece) for piece in pieces]
        self.lines(*drawn)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Text | str]]) -> None:
        """A table without lines; a `str` of a row is anybody's and is made safe."""
        drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in columns:
            drawn.add_column(column, overflow="fold")
        for row in rows:
            drawn.add_row(*(cell if isinstance(cell, Text) else Text(printable_line(cell)) for cell in row))
        with self._console.capture() as captured:
            self._console.print(drawn)
        # Cells are padded to their column; the last one's blanks are of no use to anybody.
        click.echo("".join(f"{line.rstrip()}\n" for line in captured.get().split("\n")[:-1]), nl=False)
