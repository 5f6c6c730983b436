"""Finds what a test run leaves: processes at its end, and mounts beneath its directory if it was killed.

A dockerd mounts its data directory on itself, and a test's small disk is a mount too. pytest removes the directories of
old runs at the end of a later one, where a mount that it can't remove would be an error of that later run.
"""

from __future__ import annotations

import getpass
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import shims
from codesdk.provision.system.command import root
from codesdk.provision.system.process_identity import mark, name, pid_in

ENGINES = {"dockerd", "containerd"}
RUN = "PYTEST_RUN_ID"
"""The environment variable that every process of a run inherits, with a value of its own."""
ENDING_S = 30.0
"""Seconds for what is just ending."""
OF_THE_MACHINE = {*ENGINES, "containerd-shim", "containerd-shim-runc-v2", "docker-proxy", "docker-init"}
"""An engine that this run started and that another process uses now."""


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


def end_processes(run: str, directory: Path | None) -> list[str]:
    """End what still runs of that run, and tell what it was; `directory`: where its tests have engines of their own."""
    until = time.monotonic() + ENDING_S
    while (left := _processes(run, directory)) and time.monotonic() < until:
        time.sleep(0.1)
    for pid in left:
        known = mark(pid)
        if known is not None:
            known.kill()
    return list(left.values())


def _processes(run: str, directory: Path | None) -> dict[int, str]:
    """By pid: command lines of processes of that run, but for this one."""
    wanted = f"{RUN}={run}".encode()
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        pid = int(place.name)
        try:
            if pid == os.getpid() or wanted not in (place / "environ").read_bytes().split(b"\0"):
                continue
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        shared = name(pid)[:15] in {each[:15] for each in OF_THE_MACHINE}
        if mark(pid) is not None and not (shared and (directory is None or str(directory) not in line)):
            found[pid] = f"{pid} {line[:200]}"
    return found


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
