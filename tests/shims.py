"""Finds containerd's shims, which run between an engine and a container, and the processes that they supervise.

A shim outlives its engine, which finds it again. If containerd is killed while it starts or removes a container,
nothing finds the shim any more, and it waits forever, without a process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from codesdk.provision.system.process_identity import mark

END_S = 20.0
"""Seconds in which a process that was killed is gone."""


class Shim(NamedTuple):
    """One of them."""

    pid: int
    container: str
    """The id of the container that it serves."""

    def processes(self) -> list[int]:
        """The containers' processes beneath it that live: those of which it is the parent."""
        return [pid for pid in _pids() if _parent(pid) == self.pid and mark(pid) is not None]

    def is_of(self, containers: Collection[str]) -> bool:
        """Whether a container is behind it: one that runs, or one of these, which its engine knows."""
        return self.container in containers or bool(self.processes())

    def end(self) -> None:
        """Kill what it looks after, then itself."""
        for pid in (*self.processes(), self.pid):
            process = mark(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if process is not None:
                process.wait(END_S)


def of_engine(exec_root: Path) -> list[Shim]:
    """Those of the engine that has its sockets there, whether it runs or not."""
    address = str(exec_root / "containerd" / "containerd.sock")
    return [shim for pid in _pids() if (shim := _shim(pid, address)) is not None]


def _shim(pid: int, address: str) -> Shim | None:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return None
    said = dict(pairwise(words))
    if not words[0].rpartition("/")[2].startswith("containerd-shim") or said.get("-address") != address:
        return None
    return Shim(pid, said.get("-id", ""))


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))


def _parent(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])
