"""Where the traceback of a defect goes."""

from __future__ import annotations

import os
import tempfile
import traceback
from pathlib import Path

from codesdk.settings import default_data_dir


def write_crash_log(defect: BaseException) -> Path:
    """Write the traceback down and say where; a directory that cannot be written must not hide the defect."""
    text = "".join(traceback.format_exception(defect))
    name = f"crash-{os.getpid()}.log"
    for directory in (crash_log_directory(), Path(tempfile.gettempdir())):
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Through mkstemp: in a shared directory a fixed name could be somebody's link.
            descriptor, path = tempfile.mkstemp(prefix=name + ".", dir=directory, text=True)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            continue
        return Path(path)
    return Path("/dev/null")


def crash_log_directory() -> Path:
    """Where logs of what went wrong are kept, whatever data directory a run used."""
    return default_data_dir() / "log"
