"""Writes generated and private files, and crash logs with the traceback of a defect."""

from __future__ import annotations

import os
import tempfile
import traceback
from pathlib import Path

from rich.text import Text

from codesdk.cli.console.terminal import Printer
from codesdk.errors import ExitCode, Fault
from codesdk.settings import default_data_dir


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
        raise CannotWrite(f"{path} cannot be written: {error.strerror}.", advice="Choose another path.") from error
    Printer().out.print(Text(str(path)), soft_wrap=True)


def write_crash_log(defect: BaseException) -> Path:
    """Write the traceback and return its path. Falls back to a temporary directory rather than hide the defect."""
    text = "".join(traceback.format_exception(defect))
    name = f"crash-{os.getpid()}.log"
    for directory in (crash_log_directory(), Path(tempfile.gettempdir())):
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            # mkstemp: in a shared directory a fixed name could be another user's symlink.
            descriptor, path = tempfile.mkstemp(prefix=name + ".", dir=directory, text=True)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            continue
        return Path(path)
    return Path("/dev/null")


def crash_log_directory() -> Path:
    """Return the directory of crash logs, which doesn't depend on the data directory."""
    return default_data_dir() / "log"


def write_private_file(path: Path, text: str) -> None:
    """Write a file that only this user can read. A reader sees the old text or the new one."""
    fresh = path.with_name(f".{path.name}-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.rename(path)
