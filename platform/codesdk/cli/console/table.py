"""Rows for people: a table where all that one copies fits whole, two lines a row where it does not, a line a row for pipes."""

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
"""Columns of the terminal that a column which may fold gets at least; with fewer, words fall into pieces."""
_GAP = 2


class ResponsiveTable(Table):
    """Columns of which only those in `folds` may be broken: an id that is cut cannot be copied."""

    def __init__(self, *columns: str, folds: Collection[str] = ()) -> None:
        """The first column says what the row is."""
        super().__init__(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
        for column in columns:
            self.add_column(column, no_wrap=column not in folds, overflow="fold")

    def add_row(
        self, *renderables: RenderableType | None, style: StyleType | None = None, end_section: bool = False
    ) -> None:
        """A word is shown as it is: nothing in it is markup, and what would steer the terminal is written out."""
        cells = (Text(sanitize(each)) if isinstance(each, str) else each for each in renderables)
        super().add_row(*cells, style=style, end_section=end_section)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As the width allows."""
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
