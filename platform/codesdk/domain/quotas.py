"""The quota port. Code that creates a limited resource reserves it in the same unit of work."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from codesdk.domain.ids import TenantId
from codesdk.errors import ExitCode, Fault

UnitT_contra = TypeVar("UnitT_contra", contravariant=True)


class Resource(StrEnum):
    """What is limited."""

    SESSIONS = "sessions"
    """Open sessions."""
    QUEUED_CALLS = "queued_calls"
    """Calls that wait, for a person or for a worker."""
    RUNNING_CALLS = "running_calls"
    """A call above this one is not refused: it stays queued until another has ended."""
    ARTIFACT_BYTES = "artifact_bytes"
    """Sizes of all artifacts on record."""
    API_KEYS = "api_keys"
    """Keys that are neither revoked nor expired."""
    SANDBOX_MEMORY_BYTES = "sandbox_memory_bytes"
    """Memory and swap that the profiles of the sandboxes allow, from the session's opening until they are removed."""
    SANDBOX_MILLICPUS = "sandbox_millicpus"
    """Likewise, thousandths of a CPU."""
    WORKSPACE_BYTES = "workspace_bytes"
    """What the workspaces of the sandboxes may grow to, likewise; one that its profile caps at nothing counts nothing."""
    EGRESS_BYTES_A_DAY = "egress_bytes_a_day"
    """Bytes that left its sandboxes through the proxy, or came in, since midnight (UTC, the database's clock).

    With them what open connections have taken ahead and not moved yet.
    """


class QuotaExceeded(Fault):
    """The tenant has as much of something as it may have; nothing was made."""

    code = "QUOTA_EXCEEDED"
    status = 409
    exit_code = ExitCode.FAILED

    def __init__(self, resource: Resource, *, used: int, limit: int, asked: int, advice: str) -> None:
        """`used` of `limit` are taken, and `asked` more were wanted."""
        what = resource.value.replace("_", " ")
        super().__init__(
            f"The tenant's quota of {what} is used up: {used} of {limit}, and {asked} more would be needed.",
            advice=advice,
            details={"resource": resource.value, "used": used, "limit": limit, "asked": asked},
        )
        self.resource = resource


QUEUE_RETRY_S = 5.0
"""Seconds after which a caller that met a full queue may try again: some calls have ended by then, mostly."""


class QueueFull(QuotaExceeded):
    """As many of the tenant's calls wait as may; it gets better by itself."""

    code = "QUEUE_FULL"
    retryable = True
    status = 429
    retry_after_s = QUEUE_RETRY_S


class EgressReservation(NamedTuple):
    """Bytes of egress that were taken ahead."""

    amount: int
    day: int
    """Days since the epoch, on the database's clock: which day's they are."""


class Quotas(Protocol[UnitT_contra]):
    """Says whether a tenant may have more; implemented by `codesdk.tenancy.quotas`.

    What the units of work of one database make together never exceeds a limit, in however many processes they run.
    """

    def reserve(self, unit: UnitT_contra, tenant: TenantId, resource: Resource, amount: int = 1) -> None:
        """Let `unit` make `amount` more, or refuse. If the unit fails afterwards, nothing stays reserved.

        Raises:
            QuotaExceeded: says which, how much is used, and what to do.
        """
        ...

    def release(self, unit: UnitT_contra, tenant: TenantId, resource: Resource, amount: int) -> None:
        """Give back what `unit` removes. Only artifact bytes need it: of all else the rows' states are counted."""
        ...

    def lock_tenant(self, unit: UnitT_contra, tenant: TenantId) -> None:
        """Let nobody else reserve anything of this tenant until `unit` has ended. Who releases holds before other rows."""
        ...

    def reserve_egress(self, unit: UnitT_contra, tenant: TenantId, asked: int, *, least: int = 1) -> EgressReservation:
        """Let `unit` take up to `asked` bytes of egress ahead: fewer where little is left of the day, never below `least`.

        Raises:
            QuotaExceeded: there are not so many left.
        """
        ...

    def give_back(self, unit: UnitT_contra, tenant: TenantId, taken: EgressReservation) -> None:
        """Give back bytes of egress that were taken and not moved. Those of a day that is over are forgotten."""
        ...


class UnlimitedQuotas:
    """Lets everything through: for embedding without tenants, and for tests of other things."""

    def lock_tenant(self, unit: object, tenant: TenantId) -> None:
        """Nobody stands in line."""

    def reserve(self, unit: object, tenant: TenantId, resource: Resource, amount: int = 1) -> None:
        """Yes."""

    def release(self, unit: object, tenant: TenantId, resource: Resource, amount: int) -> None:
        """Nothing is kept."""

    def reserve_egress(self, unit: object, tenant: TenantId, asked: int, *, least: int = 1) -> EgressReservation:  # noqa: ARG002 - the port's
        """All of it."""
        return EgressReservation(max(asked, least), day=0)

    def give_back(self, unit: object, tenant: TenantId, taken: EgressReservation) -> None:
        """Nothing is kept."""
