"""A separate disk for one test, which can be filled or made read-only, on machines that allow mounting one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """`place` as a disk of that size (`1m`); skips the test where nobody may mount one."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this machine lets nobody mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        if place.is_mount():  # else the test was about one who unmounts it, or moved it
            subprocess.run(["umount", str(place)], check=True)


def remount(place: Path, how: str) -> None:
    """`ro` or `rw`."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True)


def fill(ballast: Path) -> None:
    """Leave no room."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return
