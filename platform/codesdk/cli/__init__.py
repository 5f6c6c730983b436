"""The `codesdk` command, a thin layer over the services and the HTTP API."""

from __future__ import annotations

import sys


def main() -> None:
    """Run one command and exit with its code."""
    try:
        from codesdk.cli.entrypoint import run  # noqa: PLC0415 (importing the package must not build the command tree)
    except KeyboardInterrupt:
        sys.exit(130)  # Ctrl-C while the modules load, which takes a second, isn't a defect
    run()
