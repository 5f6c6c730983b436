"""Which host a new session goes to. Pure: what hosts offer in, one of them or what is missing out (docs/adr/0028)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from codesdk.domain.ids import HostId
from codesdk.domain.model import FrozenModel
from codesdk.domain.sandbox_resources import Need
from codesdk.hosts.host import HostRecord, HostState


class PlacementRequest(FrozenModel):
    """What a session must have."""

    image: str
    """Name of the image; a host that lacks it is none for this session, since nothing is fetched at opening."""
    labels: Mapping[str, str]
    """All of which the host must have, with these values."""
    need: Need


class Placement(FrozenModel):
    """There."""

    host: HostId
    image: str
    """Id of the image on that host."""


class Unschedulable(FrozenModel):
    """No host takes it; `missing`: what was wanting -> on how many hosts, each counted once, for what came first."""

    missing: dict[str, int]


def place(hosts: Iterable[HostRecord], want: PlacementRequest) -> Placement | Unschedulable:
    """The host that is least full once the session is there; of equals the one with the fewest sessions, then by id.

    How full: the largest share of what its operator said that it has. Who said nothing is never full. One whose worker
    was stopped in order comes after all others: a session there waits for the next worker.
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
    """The first thing for which the host cannot take the session; None where it can."""
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
    """What is limited there, how much would be taken, of how much."""
    has, takes = host.capacity, host.reserved
    for name, taken, most in (
        ("memory", takes.memory_bytes + need.memory_bytes, has.memory_bytes),
        ("cpu", takes.millicpus + need.millicpus, has.millicpus),
        ("sessions", host.sessions + 1, has.sessions),
    ):
        if most:
            yield name, taken, most
