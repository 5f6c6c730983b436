"""Prints progress on stderr and answers on stdout, both through rich."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from codesdk.cli.console.table import ResponsiveTable


class Printer:
    """Prints for people; with `as_json`, stdout carries only JSON."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self._quiet = quiet
        self.out = Console(highlight=False)
        self.err = Console(stderr=True, highlight=False)

    def progress(self, line: str) -> None:
        """Print what is about to happen or just did."""
        if not self._quiet:
            self._print_status(Text.assemble(("·", "dim"), " ", line))

    def warn(self, line: str) -> None:
        """Print a warning."""
        self._print_status(Text.assemble(("!", "yellow"), " ", line))

    def _print_status(self, line: Text) -> None:
        # Cleanup must go on even if the terminal was closed.
        with contextlib.suppress(OSError):
            self.err.print(line, soft_wrap=True)

    def rows(self, listing: ResponsiveTable) -> None:
        """Print a listing; in a pipe, one line per row."""
        self.out.print(listing, soft_wrap=not self.out.is_terminal)

    def emit(self, answer: Any) -> None:
        """Print a JSON answer on one line, never wrapped or coloured."""
        sys.stdout.write(json.dumps(answer, ensure_ascii=False, default=str) + "\n")
        sys.stdout.flush()
