"""The `codesdk` command: a thin face over the services and the HTTP API."""

from __future__ import annotations


def main() -> None:
    """Run one command and exit with its code."""
    from codesdk.cli.ending import run  # noqa: PLC0415 (importing the package must not build the whole command tree)

    run()
