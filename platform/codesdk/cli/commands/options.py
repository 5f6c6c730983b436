"""Options that several groups of commands share, without the code behind them, which is slow to import."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from codesdk.domain.decisions import PermissionMode


class SandboxKind(StrEnum):
    """Where sandboxes run: the values of `--sandbox`."""

    DOCKER = "docker"
    LOCAL = "local"
    """Processes of this machine behind bubblewrap."""
    PLAIN = "plain"
    """Processes of this machine without isolation."""


def parse_path(text: str) -> Path:
    """Parse a path.

    Raises:
        BadParameter: it's empty.
    """
    if not text:  # Path("") is the current directory, which nobody means by `--data-dir "$UNSET"`
        raise typer.BadParameter("It is empty; give a path, or leave the option out.")
    return Path(text)


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        parser=parse_path,
        metavar="PATH",
        help="Directory of database, keys and logs (default: the user's state directory).",
        envvar="CODESDK_DATA_DIR",
    ),
]
Mode = Annotated[PermissionMode, typer.Option("--mode", help="Permission mode: when the session asks for approval.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
