"""Chooses the host for a new session. Pure (docs/adr/0028)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from codesdk.domain.ids import HostId
from codesdk.domain.model import FrozenModel
from codesdk.domain.sandbox_resources import Need
from codesdk.hosts.host import HostRecord, HostState


class PlacementRequest(FrozenModel):
    """What a session requires."""

    image: str
    """Image name. Hosts without the image are skipped: images are not pulled when a session opens."""
    labels: Mapping[str, str]
    """Labels that the host must have, with these values."""
    need: Need


class Placement(FrozenModel):
    """The chosen host."""

    host: HostId
    image: str
    """Id of the image on that host."""


class Unschedulable(FrozenModel):
    """No host fits. `missing`: number of hosts by the first requirement that each fails."""

    missing: dict[str, int]


def place(hosts: Iterable[HostRecord], want: PlacementRequest) -> Placement | Unschedulable:
    """Choose the least full host, counting the new session; ties go to the fewest sessions, then the lowest id.

    Fullness is the largest used share of any configured limit; a host without limits is never full. Hosts whose worker
    was stopped normally come last: a session there waits for the next worker.
    """
    unmet: Counter[str] = Counter()
    fitting = []
    for host in hosts:
        lack = unmet_requirement(host, want)
        if lack is None:
            fitting.append(host)
        else:
            unmet[lack] += 1
    if not fitting:
        return Unschedulable(missing=dict(sorted(unmet.items())))
    best = min(fitting, key=lambda host: (host.away, _fullness(host, want.need), host.sessions, host.id))
    return Placement(host=best.id, image=best.images[want.image])


def unmet_requirement(host: HostRecord, want: PlacementRequest) -> str | None:
    """The first requirement that the host fails. None if it fits."""
    if host.state is not HostState.ACTIVE:
        return host.state.value
    if want.image not in host.images:
        return "image"
    if any(host.labels.get(name) != value for name, value in want.labels.items()):
        return "labels"
    return next((name for name, taken, most in _limited_resources(host, want.need) if taken > most), None)


def _fullness(host: HostRecord, need: Need) -> float:
    return max((taken / most for _, taken, most in _limited_resources(host, need)), default=0.0)


def _limited_resources(host: HostRecord, need: Need) -> Iterator[tuple[str, int, int]]:
    """Name, use including the session, and limit of each limited resource."""
    has, takes = host.capacity, host.reserved
    for name, taken, most in (
        ("memory", takes.memory_bytes + need.memory_bytes, has.memory_bytes),
        ("cpu", takes.millicpus + need.millicpus, has.millicpus),
        ("sessions", host.sessions + 1, has.sessions),
    ):
        if most:
            yield name, taken, most
