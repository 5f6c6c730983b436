"""Tenants, principals, keys and limits, made and ended by whoever may: HTTP and the command line both come here."""

from codesdk.tenancy.administration.audit import AuditAdmin
from codesdk.tenancy.administration.keys import KeyAdmin
from codesdk.tenancy.administration.tenants import TenantAdmin

__all__ = ["Administration"]


class Administration(TenantAdmin, KeyAdmin, AuditAdmin):
    """All of it: tenants with their quotas, principals with their groups, keys, the audit."""
