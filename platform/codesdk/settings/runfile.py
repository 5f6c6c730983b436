"""`run/<name>.json` in the data directory: what a process says of itself once it is ready."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def path_of(data_dir: Path, name: str) -> Path:
    """Where the process of that name says it."""
    return data_dir / "run" / f"{name}.json"


def write(data_dir: Path, name: str, content: dict[str, Any]) -> Path:
    """Say it, atomically; returns the file, which the process removes when it ends."""
    path = path_of(data_dir, name)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(json.dumps(content))
    fresh.rename(path)
    return path


def read(data_dir: Path, name: str) -> dict[str, Any] | None:
    """What the process of that name said, if it is still alive; a file left by a killed one does not count."""
    try:
        content: dict[str, Any] = json.loads(path_of(data_dir, name).read_text())
        os.kill(int(content["pid"]), 0)
    except (FileNotFoundError, ValueError, TypeError, KeyError, ProcessLookupError):
        return None
    except PermissionError:
        return content  # alive, and another user's
    return content
