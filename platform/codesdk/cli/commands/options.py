"""Options that several groups of commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def parse_path(text: str) -> Path:
    """A path that a person gave.

    Raises:
        BadParameter: it is empty.
    """
    if not text:  # the current directory otherwise, which nobody means by `--data-dir "$UNSET"`
        raise typer.BadParameter("It is empty; give a path, or leave the option out.")
    return Path(text)


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        parser=parse_path,
        metavar="PATH",
        help="Where database, keys and logs are. Unset, the user's state directory.",
        envvar="CODESDK_DATA_DIR",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
