"""What a test run that was killed leaves mounted beneath its directory, which pytest then fails to remove.

A dockerd mounts its data directory on itself, and a test's small disk is a mount too. pytest removes the directories of
runs long past at the end of a later one, where a mount that it cannot remove would be an error of that later run.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import shims
from codesdk.provision.system.command import root
from codesdk.provision.system.process_identity import mark, name, pid_in

ENGINES = {"dockerd", "containerd"}


def temporary_root() -> Path:
    """Where pytest keeps the directories of its runs."""
    place = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())
    return place.resolve() / f"pytest-of-{getpass.getuser()}"


def unmount(runs: Path) -> list[Path]:
    """Unmount what is left beneath the directories of runs that are over, once the engines that hold it have ended."""
    way = root()
    if way is None:
        return []
    left = [place for place in _mounts(runs) if not _in_use(runs / place.relative_to(runs).parts[0])]
    for place in reversed(left):  # the last mounted first
        for directory in place.parents[: -len(runs.parts)]:
            end_engine(directory)
        way.run("umount", "--lazy", str(place), deadline_s=20)
    return left


def end_engine(directory: Path) -> None:
    """End the dockerd and the containerd whose places are in this directory (`own_engine.OwnEngine`), if they run.

    So are the shims that they leave: nobody would ever end one that a killed containerd had just started.
    """
    for file in (directory / "dockerd.pid", directory / "exec" / "containerd" / "containerd.pid"):
        pid = pid_in(file.read_text(encoding="utf-8")) if file.exists() else None
        process = mark(pid) if pid is not None and name(pid) in ENGINES else None
        if process is not None:
            process.terminate(20)
    for shim in shims.of_engine(directory / "exec"):
        shim.end()


def _mounts(runs: Path) -> Iterator[Path]:
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        place = Path(line.split()[1])
        if runs in place.parents:
            yield place


def _in_use(run: Path) -> bool:
    """Whether the pytest that made this directory (its `.lock` holds the pid) still runs."""
    try:
        pid = pid_in((run / ".lock").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    return pid is not None and mark(pid) is not None
