"""Holds something for one process: a locked file that says who has it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


def try_lock(path: Path) -> IO[str] | str:
    """The locked file, held until it is closed; or what its holder wrote into it, where another process has it."""
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
