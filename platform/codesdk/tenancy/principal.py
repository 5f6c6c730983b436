"""Principals, roles, and the fault for failed authentication."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from codesdk.domain.decisions import GroupName
from codesdk.domain.ids import KeyId, PrincipalId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault


class Role(StrEnum):
    """What a principal may do."""

    OPERATOR = "operator"
    POLICY_AUTHOR = "policy-author"
    APPROVER = "approver"
    DEVELOPER = "developer"
    AUDITOR = "auditor"


class PrincipalKind(StrEnum):
    """What stands behind it."""

    PERSON = "person"
    PROGRAM = "program"


class Reach(StrEnum):
    """How far its roles go (docs/adr/0011)."""

    TENANT = "tenant"
    """Its own tenant."""
    INSTANCE = "instance"
    """Every tenant's administration as well, and no tenant's content but its own."""


Name = Annotated[str, Field(pattern=r"^\w[\w @.+-]*$", max_length=120)]
"""Of a tenant, a principal or a key: letters and digits of any script, blanks and @ . + - _, on one line."""


class Principal(FrozenModel):
    """A person or a program of one tenant."""

    id: PrincipalId
    tenant_id: TenantId
    name: str
    roles: tuple[Role, ...]
    kind: PrincipalKind = PrincipalKind.PERSON
    reach: Reach = Reach.TENANT
    key_id: KeyId | None = None
    """The API key that it came with; none where this process speaks for it."""


class PrincipalRecord(FrozenModel):
    """A principal as its tenant's operator sees it."""

    id: PrincipalId
    tenant_id: TenantId
    name: str
    kind: PrincipalKind
    roles: tuple[Role, ...]
    reach: Reach
    created_at: float
    disabled_at: float | None = None
    """Since then its keys open nothing, nor do the tokens of its sessions."""


class Group(FrozenModel):
    """Principals of a tenant under one name, which policy may ask; it is there as long as somebody is in it."""

    name: GroupName
    members: tuple[PrincipalId, ...]
    """In the order in which they came; a disabled one answers nothing."""


class Unauthenticated(Fault):
    """No credential, or one that is unknown, expired, revoked or suspended; which of them is not told."""

    code = "UNAUTHENTICATED"
    status = 401
    exit_code = ExitCode.NO_PERMISSION


class PrincipalUnknown(Fault):
    """No such principal in that tenant."""

    code = "PRINCIPAL_UNKNOWN"
    status = 404
    exit_code = ExitCode.FAILED


class PrincipalTaken(Fault):
    """The tenant has a principal of that name."""

    code = "PRINCIPAL_TAKEN"
    status = 409
    exit_code = ExitCode.FAILED
