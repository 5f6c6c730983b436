"""This worker's host: registered with a new generation, held by a lock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

from codesdk.domain.decisions import Frozen
from codesdk.domain.ids import HostId, Ids, Kind
from codesdk.errors import ExitCode, Fault
from codesdk.settings.hold import hold
from codesdk.storage.writer import Unit, Writer
from codesdk.worker import store


class WorkerRunning(Fault):
    """Another worker holds this engine."""

    code = "WORKER_RUNNING"
    exit_code = ExitCode.UNAVAILABLE


class Host(Frozen):
    """An engine and its worker's fencing number."""

    id: HostId
    name: str
    generation: int
    """Higher than that of every worker before on this host: runners and rows obey the highest."""


def lock_engine(path: Path) -> IO[str]:
    """Hold the engine for the life of the returned file.

    Raises:
        WorkerRunning: another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    held = hold(path)
    if isinstance(held, str):
        raise WorkerRunning(
            f"Another worker (process {held}) already serves this engine.",
            advice="Stop it first, or give this one another --data-dir and engine.",
        )
    return held


def register(writer: Writer, ids: Ids, name: str, images: dict[str, str], now: float) -> Host:
    """Enter the host, or take it over with the next generation.

    `images`: image name -> image id on this host; sessions are placed and pinned by it.
    """

    def enter(unit: Unit) -> Host:
        known = store.take_over(unit.connection, name, json.dumps(images), now)
        if known is not None:
            return Host(id=known[0], name=name, generation=known[1])
        host = HostId(ids.new(Kind.HOST))
        store.insert(unit.connection, host, name, json.dumps(images), now)
        return Host(id=host, name=name, generation=1)

    return writer.run(enter)
