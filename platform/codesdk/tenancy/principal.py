"""Principals, roles, and the fault for failed authentication."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from codesdk.domain.decisions import GroupName
from codesdk.domain.ids import KeyId, PrincipalId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import Conflict, ExitCode, Fault, NotFound


class Role(StrEnum):
    """What a principal may do; each role grants permissions."""

    OPERATOR = "operator"
    POLICY_AUTHOR = "policy-author"
    APPROVER = "approver"
    DEVELOPER = "developer"
    AUDITOR = "auditor"


class PrincipalKind(StrEnum):
    """Whether a person or a program uses the principal."""

    PERSON = "person"
    PROGRAM = "program"


class Reach(StrEnum):
    """How far a principal's roles apply (docs/adr/0011)."""

    TENANT = "tenant"
    """In its own tenant."""
    INSTANCE = "instance"
    """Also the administration of every tenant, but the content of no other tenant."""


Name = Annotated[str, Field(pattern=r"^\w[\w @.+-]*$", max_length=120)]
"""Name of a tenant, principal or key: letters and digits of any script, spaces and @ . + - _, on one line."""


class Principal(FrozenModel):
    """A person or program of one tenant."""

    id: PrincipalId
    tenant_id: TenantId
    name: str
    roles: tuple[Role, ...]
    kind: PrincipalKind = PrincipalKind.PERSON
    reach: Reach = Reach.TENANT
    key_id: KeyId | None = None
    """The API key that authenticated it; None if this process acts on its behalf."""


class PrincipalRecord(FrozenModel):
    """A principal as shown to its tenant's operator."""

    id: PrincipalId
    tenant_id: TenantId
    name: str
    kind: PrincipalKind
    roles: tuple[Role, ...]
    reach: Reach
    created_at: float
    disabled_at: float | None = None
    """Since then its keys and session tokens don't work."""


class Group(FrozenModel):
    """Named set of a tenant's principals, for approval requirements. Exists as long as it has a member."""

    name: GroupName
    members: tuple[PrincipalId, ...]
    """Oldest member first. Disabled principals can't vote."""


class Unauthenticated(Fault):
    """The credential is missing, unknown, expired, revoked or suspended. The error doesn't tell which."""

    code = "UNAUTHENTICATED"
    status = 401
    exit_code = ExitCode.NO_PERMISSION


class PrincipalUnknown(NotFound):
    """No such principal in that tenant."""

    code = "PRINCIPAL_UNKNOWN"


class PrincipalTaken(Conflict):
    """The tenant already has a principal of that name."""

    code = "PRINCIPAL_TAKEN"
