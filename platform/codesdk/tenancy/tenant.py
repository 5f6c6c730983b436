"""Tenants: the unit of isolation for sessions, principals and quotas."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from codesdk.domain.ids import TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault

DEFAULT_TENANT = "default"
"""The one that a new installation has."""

Weight = Annotated[int, Field(ge=1, le=100)]
"""A tenant's share; the bound keeps one tenant from being served a hundred times before the next."""


class Tenant(FrozenModel):
    """Its record."""

    id: TenantId
    name: str
    created_at: float
    weight: Weight = 1
    """Calls that a host starts for it where it starts one for a tenant of weight 1, while both wait."""
    yolo: bool = False
    """Whether its sessions may have the permission mode `yolo`. Where not, those that have it behave as in `auto`."""
    suspended_at: float | None = None
    """Since then none of its keys and tokens opens anything, and none of its calls starts."""


class TenantUnknown(Fault):
    """No such tenant, for this caller."""

    code = "TENANT_UNKNOWN"
    status = 404
    exit_code = ExitCode.FAILED


class TenantTaken(Fault):
    """There is a tenant of that name."""

    code = "TENANT_TAKEN"
    status = 409
    exit_code = ExitCode.FAILED


class OwnTenant(Fault):
    """A caller would suspend the tenant that it belongs to, and could not undo it."""

    code = "OWN_TENANT"
    status = 409
    exit_code = ExitCode.FAILED


class YoloNotAllowed(Fault):
    """A session would be opened in the permission mode `yolo`, and its tenant is not allowed that."""

    code = "YOLO_NOT_ALLOWED"
    status = 403
    exit_code = ExitCode.NO_PERMISSION
