"""A directory comes to its name whole, and stays there through a power cut."""

from __future__ import annotations

import os
from pathlib import Path


def rename_durably(fresh: Path, target: Path) -> None:
    """Rename `fresh` to `target`, with all that is in it on the disk before its name is.

    Raises:
        OSError: it cannot be written, or something is there.
    """
    for folder, _, names in os.walk(fresh):
        for name in names:
            _sync(Path(folder, name))
        _sync(Path(folder))
    fresh.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
