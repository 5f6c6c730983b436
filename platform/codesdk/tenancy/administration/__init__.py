"""Administration of tenants, principals, keys and limits, for the HTTP API and the command line."""

from codesdk.tenancy.administration.keys import KeyAdmin
from codesdk.tenancy.administration.tenants import TenantAdmin

__all__ = ["Administration"]


class Administration(TenantAdmin, KeyAdmin):
    """Administers tenants, quotas, principals, groups, keys and the audit trail."""
