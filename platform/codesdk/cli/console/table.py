"""Tables that adapt to the terminal: a table if the ids fit, else two lines per row; in a pipe, one line per row."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from codesdk.cli.console.text import sanitize

NARROWEST = 12
"""Minimum width of a folding column in terminal columns; narrower ones break words apart."""
_GAP = 2


class ResponsiveTable(Table):
    """A table in which only the columns in `folds` may wrap: a truncated id can't be copied."""

    def __init__(self, *columns: str, folds: Collection[str] = ()) -> None:
        """The first column identifies the row."""
        super().__init__(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
        for column in columns:
            self.add_column(column, no_wrap=column not in folds, overflow="fold")

    def add_row(
        self, *renderables: RenderableType | None, style: StyleType | None = None, end_section: bool = False
    ) -> None:
        """Add a row. Escapes rich markup and terminal control characters."""
        cells = (Text(sanitize(each)) if isinstance(each, str) else each for each in renderables)
        super().add_row(*cells, style=style, end_section=end_section)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render for the available width."""
        wide = [max(_text(cell).cell_len for cell in (column.header, *column.cells)) for column in self.columns]
        gaps = _GAP * len(wide)
        if not console.is_terminal:
            most = sum(wide) + gaps
            yield from super().__rich_console__(console, options.update(width=most, max_width=most))
            return
        least = [
            each if column.no_wrap else min(each, NARROWEST) for column, each in zip(self.columns, wide, strict=True)
        ]
        if sum(least) + gaps <= options.max_width:
            for column, width in zip(self.columns, least, strict=True):
                column.min_width = width
            yield from super().__rich_console__(console, options)
        else:
            yield from self._stacked()

    def _stacked(self) -> Iterator[Any]:
        names = [str(column.header) for column in self.columns[1:]]
        for first, *others in zip(*(column.cells for column in self.columns), strict=True):
            told = [
                Text.assemble((name, "dim"), " ", _text(cell)) for name, cell in zip(names, others, strict=True) if cell
            ]
            yield _text(first)
            yield Padding(Text("  ", overflow="fold").join(told), (0, 0, 0, 2))


def _text(cell: Any) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))
