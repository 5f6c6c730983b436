"""Wheels as in a package index, and a folder of them in an index's place."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path


def wheel(folder: Path, name: str, version: str, *, needs: Collection[str] = (), text: str = "x = 1") -> Path:
    """A wheel of one module, as an index would have it."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    needed = "".join(f"Requires-Dist: {each}\n" for each in needs)
    files = {
        f"{module}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(said.encode()).digest()).decode().rstrip('=')},{len(said)}"
        for path, said in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    place = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as packed:
        for path, said in files.items():
            packed.writestr(path, said)
    return place


def tiny_index(place: Path, setenv: Callable[[str, str], None]) -> Path:
    """A folder that pip takes for its only index, with `tiny-server` 1.0 and the part that it needs."""
    place.mkdir()
    wheel(place, "tiny-server", "1.0", needs=["tiny-part>=1"])
    wheel(place, "tiny-part", "1.1")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(place), "PIP_CONFIG_FILE": "/dev/null"}.items():
        setenv(name, value)
    return place
