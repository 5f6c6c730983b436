"""Tenants: the unit of isolation for sessions, principals and quotas."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from codesdk.domain.ids import TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import Conflict, NotFound, NotPermitted

DEFAULT_TENANT = "default"
"""Name of the tenant that a new installation has."""

Weight = Annotated[int, Field(ge=1, le=100)]
"""A tenant's share of a host's calls. The bound limits how many run before another tenant's next one."""


class Tenant(FrozenModel):
    """A tenant's record."""

    id: TenantId
    name: str
    created_at: float
    weight: Weight = 1
    """Calls that a host starts for each one of a tenant of weight 1, while both have queued calls."""
    yolo: bool = False
    """Whether its sessions may use the permission mode `yolo`. If not, such sessions behave as in `auto`."""
    suspended_at: float | None = None
    """Since then its keys and tokens don't work, and none of its calls starts."""


class TenantUnknown(NotFound):
    """No such tenant for this caller."""

    code = "TENANT_UNKNOWN"


class TenantTaken(Conflict):
    """A tenant of that name exists."""

    code = "TENANT_TAKEN"


class OwnTenant(Conflict):
    """A caller can't suspend its own tenant, because it couldn't resume it."""

    code = "OWN_TENANT"


class YoloNotAllowed(NotPermitted):
    """The tenant may not use the permission mode `yolo`."""

    code = "YOLO_NOT_ALLOWED"
