"""Writes tracebacks of defects to files."""

from __future__ import annotations

import os
import tempfile
import traceback
from pathlib import Path

from codesdk.settings import default_data_dir


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
