"""Terminal output: progress on stderr, answers on stdout, tables that fit the terminal, and untrusted text made safe."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

NARROWEST = 12
"""Minimum width of a folding column in terminal columns; narrower ones break words apart."""
_GAP = 2
_Item = TypeVar("_Item")


class Printer:
    """Prints for people; with `as_json`, stdout carries only JSON."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.out = Console(highlight=False)
        self.err = Console(stderr=True, highlight=False)

    def progress(self, line: str) -> None:
        """Print what is about to happen or just did."""
        self._print_status(Text.assemble(("·", "dim"), " ", line))

    def warn(self, line: str) -> None:
        """Print a warning."""
        self._print_status(Text.assemble(("!", "yellow"), " ", line))

    def _print_status(self, line: Text) -> None:
        # Cleanup must go on even if the terminal was closed.
        with contextlib.suppress(OSError):
            self.err.print(line, soft_wrap=True)

    def answer(self, answer: Any, text: str) -> None:
        """Print one answer: as JSON, or the text for people."""
        if self.as_json:
            self.emit(answer)
        else:
            self.out.print(Text(text), soft_wrap=True)

    def listing(self, name: str, items: Sequence[_Item], table: Callable[[Sequence[_Item]], Table], empty: str) -> None:
        """Print a list: as JSON under `name`, or as a table; for people, the text `empty` if it has no items."""
        if self.as_json:
            self.emit({name: items})
        elif items:
            self.rows(table(items))
        else:
            self.out.print(empty)

    def rows(self, table: Table) -> None:
        """Print a table; in a pipe, one line per row."""
        self.out.print(table, soft_wrap=not self.out.is_terminal)

    def emit(self, answer: Any) -> None:
        """Print a JSON answer, which may contain models, on one line, never wrapped or coloured."""
        sys.stdout.write(json.dumps(answer, ensure_ascii=False, default=_to_json) + "\n")
        sys.stdout.flush()


class ResponsiveTable(Table):
    """A table in which only the columns in `folds` may wrap: a truncated id can't be copied.

    On a terminal that is too narrow for the other columns, each row takes two lines; in a pipe, always one.
    """

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
            cells = [
                Text.assemble((name, "dim"), " ", _text(cell)) for name, cell in zip(names, others, strict=True) if cell
            ]
            yield _text(first)
            yield Padding(Text("  ", overflow="fold").join(cells), (0, 0, 0, 2))


def pluralize(number: int, one: str, many: str | None = None) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def sanitize(text: str) -> str:
    """Return the text on one line, with control and bidirectional-override characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def format_time(moment: float | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format seconds since the epoch in UTC; empty for None."""
    return "" if moment is None else datetime.fromtimestamp(moment, UTC).strftime(form)


def _text(cell: Any) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def _to_json(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
