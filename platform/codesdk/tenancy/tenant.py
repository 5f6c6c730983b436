"""A tenant: whose sessions, principals and quotas are kept apart from everybody else's."""

from __future__ import annotations

from codesdk.domain.decisions import Frozen
from codesdk.domain.ids import TenantId
from codesdk.errors import ExitCode, Fault

DEFAULT_TENANT = "default"
"""The one that a new installation has."""


class Tenant(Frozen):
    """Its record."""

    id: TenantId
    name: str
    created_at: float
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
