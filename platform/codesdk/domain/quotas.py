"""The quota port. Code that creates a limited resource reserves it in the same unit of work."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from codesdk.domain.ids import TenantId
from codesdk.errors import Conflict

UnitT_contra = TypeVar("UnitT_contra", contravariant=True)


class Resource(StrEnum):
    """A limited resource."""

    SESSIONS = "sessions"
    """Open sessions."""
    QUEUED_CALLS = "queued_calls"
    """Calls that wait for an approval or for a worker."""
    RUNNING_CALLS = "running_calls"
    """Running calls. A call above this limit stays queued until another ends."""
    ARTIFACT_BYTES = "artifact_bytes"
    """Total size of all artifacts."""
    LOG_BYTES = "log_bytes"
    """Bytes of its sessions' events, and of its calls' inputs, results and approvals. A call in progress may exceed it."""
    API_KEYS = "api_keys"
    """API keys that are neither revoked nor expired."""
    SANDBOX_MEMORY_BYTES = "sandbox_memory_bytes"
    """Memory and swap of the sandboxes' profiles, from opening the session until the sandbox is removed."""
    SANDBOX_MILLICPUS = "sandbox_millicpus"
    """Likewise, in thousandths of a CPU."""
    WORKSPACE_BYTES = "workspace_bytes"
    """Maximum size of the sandboxes' workspaces, likewise. A workspace without a limit counts as 0."""
    EGRESS_BYTES_A_DAY = "egress_bytes_a_day"
    """Bytes that its sandboxes sent or received through the proxy since midnight (UTC, the database's clock).

    Includes what open connections have reserved and not used yet.
    """


class QuotaExceeded(Conflict):
    """The tenant has reached a limit; nothing was created."""

    code = "QUOTA_EXCEEDED"

    def __init__(self, resource: Resource, *, used: int, limit: int, asked: int, advice: str) -> None:
        """`used` of `limit` are in use, and `asked` more were requested."""
        what = resource.value.replace("_", " ")
        super().__init__(
            f"The tenant's quota of {what} is used up: {used} of {limit}, and {asked} more are needed.",
            advice=advice,
            details={"resource": resource.value, "used": used, "limit": limit, "asked": asked},
        )
        self.resource = resource


QUEUE_RETRY_S = 5.0
"""Seconds (`Retry-After`) for a caller that met a full queue: by then some calls have usually ended."""


class QueueFull(QuotaExceeded):
    """The tenant's queue of waiting calls is full. Retry later."""

    code = "QUEUE_FULL"
    retryable = True
    status = 429
    retry_after_s = QUEUE_RETRY_S


class EgressReservation(NamedTuple):
    """Egress bytes that were reserved in advance."""

    amount: int
    day: int
    """The day that the bytes count towards: days since the epoch, on the database's clock."""


class Quotas(Protocol[UnitT_contra]):
    """Enforces a tenant's limits; implemented by `codesdk.tenancy.quotas`.

    All units of work on one database together never exceed a limit, in any number of processes.
    """

    def reserve(self, unit: UnitT_contra, tenant: TenantId, resource: Resource, amount: int = 1) -> None:
        """Reserve `amount` for what `unit` creates, or refuse. If the unit fails, the reservation is rolled back.

        Raises:
            QuotaExceeded: with the resource, the usage and advice.
        """
        ...

    def release(self, unit: UnitT_contra, tenant: TenantId, resource: Resource, amount: int) -> None:
        """Release what `unit` removes. Only artifact bytes need it; other resources are counted from rows."""
        ...

    def lock_tenant(self, unit: UnitT_contra, tenant: TenantId) -> None:
        """Lock the tenant's quotas until `unit` ends. Call this before locking other rows when releasing."""
        ...

    def reserve_egress(self, unit: UnitT_contra, tenant: TenantId, asked: int, *, least: int = 1) -> EgressReservation:
        """Reserve up to `asked` egress bytes: fewer if little of the day's limit is left, never below `least`.

        Raises:
            QuotaExceeded: fewer than `least` are left.
        """
        ...

    def give_back(self, unit: UnitT_contra, tenant: TenantId, taken: EgressReservation) -> None:
        """Release reserved egress bytes that weren't used. Bytes of a past day are ignored."""
        ...


class UnlimitedQuotas:
    """No limits: for embedding without tenants, and for tests."""

    def lock_tenant(self, unit: object, tenant: TenantId) -> None:
        """Lock nothing."""

    def reserve(self, unit: object, tenant: TenantId, resource: Resource, amount: int = 1) -> None:
        """Reserve nothing; never refuse."""

    def release(self, unit: object, tenant: TenantId, resource: Resource, amount: int) -> None:
        """Do nothing."""

    def reserve_egress(self, unit: object, tenant: TenantId, asked: int, *, least: int = 1) -> EgressReservation:  # noqa: ARG002 - the port's
        """Grant the full amount."""
        return EgressReservation(max(asked, least), day=0)

    def give_back(self, unit: object, tenant: TenantId, taken: EgressReservation) -> None:
        """Do nothing."""
