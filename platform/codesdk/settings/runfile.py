"""`run/<name>.json` in the data directory: a process writes its pid and address there once it is ready."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def path_of(data_dir: Path, name: str) -> Path:
    """The run file of the process with that name."""
    return data_dir / "run" / f"{name}.json"


def write(data_dir: Path, name: str, content: dict[str, Any]) -> Path:
    """Write the run file atomically and return its path; the process removes it when it ends."""
    path = path_of(data_dir, name)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(json.dumps(content))
    fresh.rename(path)
    return path


def read(data_dir: Path, name: str) -> dict[str, Any] | None:
    """The content of the run file; None if there is none, or its process was killed."""
    try:
        content: dict[str, Any] = json.loads(path_of(data_dir, name).read_text())
        os.kill(int(content["pid"]), 0)
    except (FileNotFoundError, ValueError, TypeError, KeyError, ProcessLookupError):
        return None
    except PermissionError:
        return content  # alive, but owned by another user
    return content
