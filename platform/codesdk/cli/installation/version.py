"""`codesdk version`."""

from __future__ import annotations

import sys
from importlib.metadata import version

from codesdk.cli.console.printer import Printer
from codesdk.domain.events import CONTRACT_VERSION


def show_version(*, as_json: bool) -> None:
    """Print the versions of the package, the event schema and Python."""
    printer = Printer(as_json=as_json)
    package = version("codesdk")
    python = sys.version.split()[0]
    if as_json:
        printer.emit({"version": package, "contract": CONTRACT_VERSION, "python": python})
    else:
        printer.out.print(f"codesdk {package} (runtime contract {CONTRACT_VERSION}, Python {python})")
