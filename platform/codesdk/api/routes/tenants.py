"""Tenants and their quotas over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field, model_validator

from codesdk.api.access import Caller, ServicesDep, guarded_router
from codesdk.domain.ids import TenantId
from codesdk.domain.model import FrozenModel
from codesdk.domain.quotas import Resource
from codesdk.tenancy.principal import Name
from codesdk.tenancy.quotas import Quota
from codesdk.tenancy.tenant import Tenant, Weight

router = guarded_router()

TenantParam = Annotated[
    str | None, Query(max_length=40, description="A tenant; the caller's own where it is left out.")
]
Limit = Annotated[int, Field(ge=0, le=2**62)]


class NewTenant(FrozenModel):
    """A tenant to make."""

    name: Name


class TenantList(FrozenModel):
    """Tenants, oldest first."""

    tenants: list[Tenant]


class QuotaList(FrozenModel):
    """A tenant's limits, and how much of each is taken."""

    tenant_id: TenantId
    quotas: list[Quota]


class TenantChange(FrozenModel):
    """What to change of a tenant; what is not named stays."""

    weight: Weight | None = None
    """Calls that a host starts for it where it starts one for a tenant of weight 1, while both wait."""
    yolo: bool | None = None
    """Whether its sessions may have the permission mode `yolo`."""

    @model_validator(mode="after")
    def _check_any(self) -> TenantChange:
        if self.weight is None and self.yolo is None:
            raise ValueError("it names neither weight nor yolo")
        return self


class NewLimits(FrozenModel):
    """Limits to set; what is not named stays."""

    limits: dict[Resource, Limit | None]
    """0: no limit. Null: the installation's default again."""


@router.get("/v1/tenants")
def list_tenants(caller: Caller, services: ServicesDep) -> TenantList:
    """The caller's own tenant; all of them for an operator or auditor of the installation."""
    return TenantList(tenants=services.administration.tenants(caller))


@router.post("/v1/tenants", status_code=201)
def create_tenant(wish: NewTenant, caller: Caller, services: ServicesDep) -> Tenant:
    """A new tenant with nobody in it: make principals and keys next."""
    return services.administration.create_tenant(caller, wish.name)


@router.get("/v1/tenants/{tenant_id}")
def read_tenant(tenant_id: str, caller: Caller, services: ServicesDep) -> Tenant:
    """One tenant."""
    return services.administration.tenant(caller, tenant_id)


@router.patch("/v1/tenants/{tenant_id}")
def change_tenant(tenant_id: str, wish: TenantChange, caller: Caller, services: ServicesDep) -> Tenant:
    """Give it a larger or smaller share of each host; allow it the mode `yolo`, or not any more."""
    if wish.weight is not None:
        services.administration.set_weight(caller, tenant_id, wish.weight)
    if wish.yolo is not None:
        services.administration.allow_yolo(caller, tenant_id, allowed=wish.yolo)
    return services.administration.tenant(caller, tenant_id)


@router.post("/v1/tenants/{tenant_id}/suspend")
def suspend_tenant(tenant_id: str, caller: Caller, services: ServicesDep) -> Tenant:
    """From now on its keys and tokens open nothing, and none of its calls starts. What runs ends by itself."""
    return services.administration.suspend(caller, tenant_id)


@router.post("/v1/tenants/{tenant_id}/resume")
def resume_tenant(tenant_id: str, caller: Caller, services: ServicesDep) -> Tenant:
    """Its keys and tokens are good again."""
    return services.administration.resume(caller, tenant_id)


@router.get("/v1/quotas")
def read_quotas(caller: Caller, services: ServicesDep, tenant_id: TenantParam = None) -> QuotaList:
    """Every limit, and how much of it is taken."""
    tenant = tenant_id or caller.tenant_id
    return QuotaList(tenant_id=TenantId(tenant), quotas=services.administration.quotas(caller, tenant))


@router.patch("/v1/quotas")
def set_quotas(wish: NewLimits, caller: Caller, services: ServicesDep, tenant_id: TenantParam = None) -> QuotaList:
    """Give the tenant limits of its own. One below what is used takes nothing away; it lets nothing more be made."""
    tenant = tenant_id or caller.tenant_id
    return QuotaList(tenant_id=TenantId(tenant), quotas=services.administration.set_limits(caller, tenant, wish.limits))
