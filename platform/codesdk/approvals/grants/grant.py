"""A grant: one person's yes to more calls than the one that they saw."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from codesdk.domain.decisions import GrantKind
from codesdk.domain.ids import ApprovalId, GrantId, PrincipalId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import Fault


class GrantState(StrEnum):
    """Judged on the database's clock whenever it is read."""

    ACTIVE = "active"
    USED_UP = "used_up"
    EXPIRED = "expired"
    ENDED = "ended"
    """Revoked, or void because what it was given for has changed."""


class Grant(FrozenModel):
    """Turns an ask of its rules into an allow, for calls of one tool. Never a deny, and no ask that has a floor."""

    id: GrantId
    tenant_id: TenantId
    principal_id: PrincipalId
    """Whose calls."""
    session_id: SessionId | None = None
    """Of this session alone; none: of any session of that principal."""
    approval_id: ApprovalId
    """With whose answer it was given."""
    tool: str
    rules: dict[str, str]
    """Id and hash of each rule that asked. What these rules match is what it covers."""
    input_hash: str | None = None
    """Only this very input; none: whatever the rules match."""
    behaviour_hash: str
    """Of the tool as it was: another schema, command or class voids it."""
    image: str
    """Of the sandbox; it does not count for a call under another one."""
    profile: str
    """The name of the sandbox's profile."""
    profile_hash: str
    """Of all that the profile said; it does not count for a call under one that says something else."""
    granted_by: PrincipalId
    reason: str
    state: GrantState
    created_at: float
    expires_at: float
    """Seconds since the epoch, on the database's clock."""
    max_uses: int | None = None
    uses: int
    """Calls that it has let start."""
    ended_at: float | None = None
    ended_by: PrincipalId | None = None
    """None where nobody did: it was voided."""
    ended_why: str | None = None


class SkippedGrant(FrozenModel):
    """A grant that a call of its tool did not use."""

    grant_id: GrantId
    because: Literal["tool", "image", "profile", "rules"]
    """What is another one now. `tool` ended the grant; with the others it goes on for the calls that it is for."""


class GrantRequest(FrozenModel):
    """What a vote gives beyond the one call; never more than the approval's `grant` offers."""

    kind: GrantKind
    ttl_s: int | None = Field(default=None, ge=1)
    """Seconds that it lives; as long as the rule lets it where it is missing."""
    max_uses: int | None = Field(default=None, ge=1)
    """Calls; as many as the rule lets it where it is missing."""
    same_input: bool = False
    """Only for calls with this very input."""


class GrantUnknown(Fault):
    """No such grant for this tenant."""

    code = "GRANT_UNKNOWN"
    status = 404


class GrantNotOffered(Fault):
    """The rule does not let an approver give that much; nothing was counted."""

    code = "GRANT_NOT_OFFERED"
    status = 409
