"""API keys: the stored record, and the new key that is displayed once."""

from __future__ import annotations

from codesdk.domain.ids import KeyId, PrincipalId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import NotFound


class ApiKey(FrozenModel):
    """A key's record. It doesn't contain the key, which only its holder has."""

    id: KeyId
    tenant_id: TenantId
    principal_id: PrincipalId
    name: str
    prefix: str
    """The beginning of the key, to recognise it. Empty for keys of older versions."""
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    """When it was last used, rounded down to the hour."""
    revoked_at: float | None = None


class NewKey(FrozenModel):
    """A key that was just created."""

    key: ApiKey
    secret: str
    """The key itself. It can't be read again."""


class KeyUnknown(NotFound):
    """No such key for this caller."""

    code = "KEY_UNKNOWN"
