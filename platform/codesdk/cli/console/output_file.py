"""Where what is generated goes."""

from __future__ import annotations

import os
from pathlib import Path

from rich.text import Text

from codesdk.cli.console.printer import Printer
from codesdk.errors import ExitCode, Fault


class CannotWrite(Fault):
    """A file that a command should write cannot be written."""

    code = "CANNOT_WRITE"
    status = 400
    exit_code = ExitCode.CANNOT_WRITE


def private_opener(path: str, flags: int) -> int:
    """An opener of files that hold what agents did: for their owner's eyes."""
    return os.open(path, flags, 0o600)


def write(path: Path, text: str, *, secret: bool = False) -> None:
    """Write it, and say where; `secret` for the owner alone, where the file is new.

    Raises:
        CannotWrite: the place does not let itself be written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8", opener=private_opener if secret else None) as file:
            file.write(text)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}.", advice="Name another place.") from error
    Printer().out.print(Text(str(path)), soft_wrap=True)
