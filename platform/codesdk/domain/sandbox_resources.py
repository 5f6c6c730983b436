"""Resources that one sandbox takes from its host and its tenant's quotas, derived from its profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from codesdk.domain.ids import TenantId
from codesdk.domain.quotas import Quotas, Resource

UnitT = TypeVar("UnitT")


class Need(NamedTuple):
    """Amounts reserved from opening a session until its sandbox is removed."""

    memory_bytes: int = 0
    """Memory and swap."""
    millicpus: int = 0
    """Thousandths of a CPU."""
    workspace_bytes: int = 0
    """Maximum size of the workspace; 0 if the profile sets none."""


def profile_needs(profile: Mapping[str, Any]) -> Need:
    """Return the need of a sandbox with that profile (its JSON). A field that an older profile lacks counts as 0."""
    return Need(
        memory_bytes=int(profile.get("memory_bytes", 0)) + int(profile.get("swap_bytes", 0)),
        millicpus=int(float(profile.get("cpus", 0)) * 1000),
        workspace_bytes=int(profile.get("workspace_bytes", 0)),
    )


def total_need(needs: Iterable[tuple[Need, int]]) -> Need:
    """Return the sum of all needs, each multiplied by its count."""
    found = list(needs)
    return Need(*(sum(need[field] * times for need, times in found) for field in range(len(Need._fields))))


def reserve_sandbox(quotas: Quotas[UnitT], unit: UnitT, tenant: TenantId, profile: Mapping[str, Any]) -> None:
    """Reserve the resources of one sandbox for `unit`, or refuse. Every creation of a sandbox goes through here.

    Raises:
        QuotaExceeded: names the resource; nothing stays reserved.
    """
    need = profile_needs(profile)
    quotas.reserve(unit, tenant, Resource.SANDBOX_MEMORY_BYTES, need.memory_bytes)
    quotas.reserve(unit, tenant, Resource.SANDBOX_MILLICPUS, need.millicpus)
    quotas.reserve(unit, tenant, Resource.WORKSPACE_BYTES, need.workspace_bytes)
