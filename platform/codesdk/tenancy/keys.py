"""API keys: the stored record, and the new key that is displayed once."""

from __future__ import annotations

from codesdk.domain.ids import KeyId, PrincipalId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault


class ApiKey(FrozenModel):
    """A key's record. The key itself is not in it: nobody has it but its holder."""

    id: KeyId
    tenant_id: TenantId
    principal_id: PrincipalId
    name: str
    prefix: str
    """How the key begins, for recognising it; empty for keys of before this was kept."""
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    """The beginning of the hour in which it was last used."""
    revoked_at: float | None = None


class NewKey(FrozenModel):
    """A key that was just made."""

    key: ApiKey
    secret: str
    """The key itself, shown this once."""


class KeyUnknown(Fault):
    """No such key, for this caller."""

    code = "KEY_UNKNOWN"
    status = 404
    exit_code = ExitCode.FAILED
