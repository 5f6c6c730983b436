"""Grants over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from codesdk.api.access import Caller, ServicesDep, guarded_router
from codesdk.approvals import Grant
from codesdk.domain.model import FrozenModel

router = guarded_router()


class GrantList(FrozenModel):
    """Grants, newest first."""

    grants: list[Grant]


@router.get("/v1/grants")
def list_grants(
    caller: Caller,
    services: ServicesDep,
    *,
    session_id: Annotated[str | None, Query(max_length=40)] = None,
    active: Annotated[bool, Query()] = False,
) -> GrantList:
    """List the tenant's grants. `active`: only those that are in effect."""
    return GrantList(grants=services.approvals.grants.listing(caller.tenant_id, session_id, active=active))


@router.get("/v1/grants/{grant_id}")
def read_grant(grant_id: str, caller: Caller, services: ServicesDep) -> Grant:
    """Return a grant: what it covers, for whom, until when, and how often it was used."""
    return services.approvals.grants.find(caller.tenant_id, grant_id)


@router.delete("/v1/grants/{grant_id}")
def revoke_grant(grant_id: str, caller: Caller, services: ServicesDep) -> Grant:
    """Revoke a grant, effective at once. Revoking a revoked grant does nothing."""
    return services.writer.run(
        lambda unit: services.approvals.grants.revoke(unit, caller.tenant_id, grant_id, by=caller.id, why="Revoked.")
    )
