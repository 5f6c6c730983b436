"""A lock file that one process holds and that names its holder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


def try_lock(path: Path) -> IO[str] | str:
    """The locked file, held until it is closed; or, if another process holds it, that process's pid as text."""
    lock = path.open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        return holder
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
