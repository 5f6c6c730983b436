"""Tenants, principals, keys and limits, made and ended by whoever may: HTTP and the command line both come here."""

from codesdk.tenancy.administration.audit import AuditDesk
from codesdk.tenancy.administration.keys import KeyDesk
from codesdk.tenancy.administration.tenants import TenantDesk

__all__ = ["Administration"]


class Administration(TenantDesk, KeyDesk, AuditDesk):
    """All of it: tenants with their quotas, principals with their groups, keys, the audit."""
