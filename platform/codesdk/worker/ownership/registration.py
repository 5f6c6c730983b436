"""Registers the worker's host under a new generation and locks the engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import IO

from codesdk.domain.ids import HostId, IdKind, Ids, SandboxId
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault
from codesdk.hosts import store
from codesdk.hosts.host import Capacity, HostRecord, HostState
from codesdk.hosts.store import HostLease
from codesdk.sandbox.port import SandboxSpec
from codesdk.sandbox.profiles.profile import Profile
from codesdk.settings import Settings
from codesdk.settings.process_lock import try_lock
from codesdk.storage.writer import Unit, Writer


class WorkerRunning(Fault):
    """Another worker serves this engine."""

    code = "WORKER_RUNNING"
    exit_code = ExitCode.UNAVAILABLE


class HostTaken(Fault):
    """The host name is registered for another engine, or the engine under another name."""

    code = "HOST_TAKEN"
    exit_code = ExitCode.UNAVAILABLE


class OwnedHost(FrozenModel):
    """An engine and its worker's fencing number."""

    id: HostId
    name: str
    generation: int
    """Higher than that of every worker before on this host: runners and rows obey the highest."""

    def spec(self, instance: str, owner: SandboxId, *, image: str, profile: Profile, uid: int) -> SandboxSpec:
        """The sandbox spec for a row, under this worker's generation."""
        return SandboxSpec(
            owner=owner, instance=instance, profile=profile, image=image, tool_uid=uid, generation=self.generation
        )


class HostOffer(FrozenModel):
    """What a worker reports about its host."""

    engine: str = ""
    """The engine's id. Empty: not checked."""
    capacity: Capacity = Capacity()
    labels: dict[str, str] = {}


NO_OFFER = HostOffer()


def host_offer(settings: Settings, engine: str) -> HostOffer:
    """Capacity and labels from the settings; `engine`: the engine's id."""
    capacity = Capacity(
        memory_bytes=settings.host_memory_bytes,
        millicpus=int(settings.host_cpus * 1000),
        sessions=settings.host_sessions,
    )
    return HostOffer(engine=engine, capacity=capacity, labels=settings.host_labels)


def lock_engine(path: Path) -> IO[str]:
    """Lock the engine until the returned file is closed.

    Raises:
        WorkerRunning: another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    held = try_lock(path)
    if isinstance(held, str):
        raise WorkerRunning(
            f"Another worker (process {held}) already serves this engine.",
            advice="Stop it first, or give this one another --data-dir and engine.",
        )
    return held


def register(
    writer: Writer,
    ids: Ids,
    name: str,
    images: dict[str, str],
    now: float,
    *,
    offer: HostOffer = NO_OFFER,
    holder: str = "",
    check: Callable[[HostLease | None], object] = lambda _held: None,
) -> OwnedHost:
    """Register the host, or take it over with the next generation.

    `images`: image ids on this host by name; sessions are placed and pinned by them.
    `holder`: identity of this worker's process. `check`: raises if the current holder must not be replaced.

    Raises:
        HostTaken: two engines would share a name, or two names an engine. Their tool uids and sweeps would collide.
    """
    columns = {
        "images": json.dumps(images),
        "engine": offer.engine,
        "labels": json.dumps(offer.labels),
        "memory_bytes": offer.capacity.memory_bytes,
        "millicpus": offer.capacity.millicpus,
        "most_sessions": offer.capacity.sessions,
        "holder": holder,
    }

    def enter(unit: Unit) -> OwnedHost:
        if offer.engine:
            _check_same_engine(store.lock_named(unit.connection, name), offer.engine)
            _check_same_name(store.find_by_engine(unit.connection, offer.engine, but=name), name)
        check(store.find_lease(unit.connection, name, lock=True))
        known = store.take_over(unit.connection, name, now, columns)
        if known is not None:
            return OwnedHost(id=known[0], name=name, generation=known[1])
        host = HostId(ids.new(IdKind.HOST))
        store.insert(unit.connection, host, name, now, columns)
        return OwnedHost(id=host, name=name, generation=1)

    return writer.run(enter)


def _check_same_engine(known: HostRecord | None, engine: str) -> None:
    if known is None or known.engine in ("", engine) or known.away or known.state is HostState.LOST:
        return
    raise HostTaken(
        f"The host `{known.name}` is another engine's ({known.engine}; this one is {engine}).",
        advice="Give this worker a name of its own with CODESDK_HOST_NAME; or, if that engine is gone for good,"
        f" `codesdk hosts lose {known.name}` first.",
    )


def _check_same_name(other: HostRecord | None, name: str) -> None:
    if other is not None:
        raise HostTaken(
            f"This engine is the host `{other.name}`, and this worker would call it `{name}`.",
            advice=f"Set CODESDK_HOST_NAME to `{other.name}`, or `codesdk hosts lose {other.name}` first. An engine whose"
            " machine was copied has its original's id: remove /var/lib/docker/engine-id there and restart it.",
        )
