"""Small answers."""

from __future__ import annotations

import sys
from importlib.metadata import version

from codesdk.cli.console.printer import Printer
from codesdk.domain.events import CONTRACT_VERSION


def show_version(*, as_json: bool) -> None:
    """Of the package, its contract and its Python."""
    printer = Printer(as_json=as_json)
    package = version("codesdk")
    python = sys.version.split()[0]
    if as_json:
        printer.emit({"version": package, "contract": CONTRACT_VERSION, "python": python})
    else:
        printer.out.print(f"codesdk {package} (runtime contract {CONTRACT_VERSION}, Python {python})")
