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

TenantParam = Annotated[str | None, Query(max_length=40, description="A tenant id; default: the caller's own tenant.")]
Limit = Annotated[int, Field(ge=0, le=2**62)]


class NewTenant(FrozenModel):
    """A tenant to create."""

    name: Name


class TenantList(FrozenModel):
    """Tenants, oldest first."""

    tenants: list[Tenant]


class QuotaList(FrozenModel):
    """A tenant's limits and usage."""

    tenant_id: TenantId
    quotas: list[Quota]


class TenantChange(FrozenModel):
    """Changes to a tenant. Missing fields stay unchanged."""

    weight: Weight | None = None
    """Calls that a host starts for each one of a tenant of weight 1, while both have queued calls."""
    yolo: bool | None = None
    """Whether its sessions may use the permission mode `yolo`."""

    @model_validator(mode="after")
    def _check_any(self) -> TenantChange:
        if self.weight is None and self.yolo is None:
            raise ValueError("it has neither weight nor yolo")
        return self


class NewLimits(FrozenModel):
    """Limits to set. Missing resources stay unchanged."""

    limits: dict[Resource, Limit | None]
    """0: unlimited. Null: the installation's default."""


@router.get("/v1/tenants")
def list_tenants(caller: Caller, services: ServicesDep) -> TenantList:
    """List the caller's own tenant, or all tenants for an operator or auditor of the installation."""
    return TenantList(tenants=services.administration.tenants(caller))


@router.post("/v1/tenants", status_code=201)
def create_tenant(wish: NewTenant, caller: Caller, services: ServicesDep) -> Tenant:
    """Create a tenant without principals. Create principals and keys next."""
    return services.administration.create_tenant(caller, wish.name)


@router.get("/v1/tenants/{tenant_id}")
def read_tenant(tenant_id: str, caller: Caller, services: ServicesDep) -> Tenant:
    """Return a tenant."""
    return services.administration.tenant(caller, tenant_id)


@router.patch("/v1/tenants/{tenant_id}")
def change_tenant(tenant_id: str, wish: TenantChange, caller: Caller, services: ServicesDep) -> Tenant:
    """Change a tenant's weight, or whether it may use the `yolo` mode."""
    if wish.weight is not None:
        services.administration.set_weight(caller, tenant_id, wish.weight)
    if wish.yolo is not None:
        services.administration.allow_yolo(caller, tenant_id, allowed=wish.yolo)
    return services.administration.tenant(caller, tenant_id)


@router.post("/v1/tenants/{tenant_id}/suspend")
def suspend_tenant(tenant_id: str, caller: Caller, services: ServicesDep) -> Tenant:
    """Suspend a tenant: its keys and tokens stop working, and none of its calls starts. Running calls finish."""
    return services.administration.suspend(caller, tenant_id)


@router.post("/v1/tenants/{tenant_id}/resume")
def resume_tenant(tenant_id: str, caller: Caller, services: ServicesDep) -> Tenant:
    """Resume a suspended tenant. Its keys and tokens work again."""
    return services.administration.resume(caller, tenant_id)


@router.get("/v1/quotas")
def read_quotas(caller: Caller, services: ServicesDep, tenant_id: TenantParam = None) -> QuotaList:
    """List the tenant's limits and usage."""
    tenant = tenant_id or caller.tenant_id
    return QuotaList(tenant_id=TenantId(tenant), quotas=services.administration.quotas(caller, tenant))


@router.patch("/v1/quotas")
def set_quotas(wish: NewLimits, caller: Caller, services: ServicesDep, tenant_id: TenantParam = None) -> QuotaList:
    """Set the tenant's own limits. A limit below the current usage removes nothing; it only prevents more."""
    tenant = tenant_id or caller.tenant_id
    return QuotaList(tenant_id=TenantId(tenant), quotas=services.administration.set_limits(caller, tenant, wish.limits))
