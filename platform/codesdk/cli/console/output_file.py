"""Writes generated files."""

from __future__ import annotations

import os
from pathlib import Path

from rich.text import Text

from codesdk.cli.console.terminal import Printer
from codesdk.errors import ExitCode, Fault


class CannotWrite(Fault):
    """An output file can't be written."""

    code = "CANNOT_WRITE"
    status = 400
    exit_code = ExitCode.CANNOT_WRITE


def private_opener(path: str, flags: int) -> int:
    """Open a file with mode 0600, for content that agents produced."""
    return os.open(path, flags, 0o600)


def write(path: Path, text: str, *, secret: bool = False) -> None:
    """Write the text and print the path. `secret`: a new file is readable by its owner only.

    Raises:
        CannotWrite: the file can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8", opener=private_opener if secret else None) as file:
            file.write(text)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}.", advice="Name another place.") from error
    Printer().out.print(Text(str(path)), soft_wrap=True)
