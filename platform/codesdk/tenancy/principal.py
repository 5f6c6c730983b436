"""Who calls."""

from __future__ import annotations

from enum import StrEnum

from codesdk.domain.decisions import Frozen
from codesdk.domain.ids import PrincipalId, TenantId
from codesdk.errors import ExitCode, Fault


class Role(StrEnum):
    """What a principal may do."""

    OPERATOR = "operator"
    POLICY_AUTHOR = "policy-author"
    APPROVER = "approver"
    DEVELOPER = "developer"
    AUDITOR = "auditor"


class Principal(Frozen):
    """A person or a program of one tenant."""

    id: PrincipalId
    tenant_id: TenantId
    name: str
    roles: tuple[Role, ...]


class Unauthenticated(Fault):
    """No credential, or one that is unknown, expired or revoked; which of them is not told."""

    code = "UNAUTHENTICATED"
    status = 401
    exit_code = ExitCode.NO_PERMISSION
