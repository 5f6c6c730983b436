"""Where what is generated goes."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from codesdk.cli.voice import Voice
from codesdk.errors import ExitCode, Fault


class CannotWrite(Fault):
    """A file that a command should write cannot be written."""

    code = "CANNOT_WRITE"
    status = 400
    exit_code = ExitCode.CANNOT_WRITE


def write(path: Path, text: str) -> None:
    """Write it, and say where.

    Raises:
        CannotWrite: the place does not let itself be written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}.", advice="Name another place.") from error
    Voice().out.print(Text(str(path)), soft_wrap=True)
