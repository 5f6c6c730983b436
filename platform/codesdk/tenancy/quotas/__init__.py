"""Tenant limits: rows counted under the tenant's row lock, and one counter for artifact bytes."""

from codesdk.tenancy.quotas.tenant_quotas import Quota, TenantQuotas

__all__ = ["Quota", "TenantQuotas"]
