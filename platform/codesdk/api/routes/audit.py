"""The audit trail over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from codesdk.api.access import Caller, ServicesDep, guarded_router
from codesdk.domain.model import FrozenModel
from codesdk.eventlog.audit import Entry
from codesdk.eventlog.log import PAGE_SIZE

router = guarded_router()
Chain = Annotated[
    str | None,
    Query(max_length=40, description="A tenant, or `installation`; default: the caller's own tenant."),
]


class EntryPage(FrozenModel):
    """Audit entries, in order. Pass `next` as `after` for the next page."""

    entries: list[Entry]
    next: int
    """Number of this page's last entry."""


@router.get("/v1/audit")
def read_audit(
    caller: Caller,
    services: ServicesDep,
    *,
    tenant_id: Chain = None,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_SIZE)] = 100,
) -> EntryPage:
    """List the audited actions on a tenant, its keys, quotas, policy and sessions."""
    found = services.administration.audit(caller, tenant_id or caller.tenant_id, after, limit)
    return EntryPage(entries=found, next=found[-1].number if found else after)
