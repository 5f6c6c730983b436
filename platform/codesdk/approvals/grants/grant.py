"""The grant model: an approver's yes to calls beyond the one they saw."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from codesdk.domain.decisions import GrantKind
from codesdk.domain.ids import ApprovalId, GrantId, PrincipalId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import Fault


class GrantState(StrEnum):
    """State of a grant, computed on the database's clock when read."""

    ACTIVE = "active"
    USED_UP = "used_up"
    EXPIRED = "expired"
    ENDED = "ended"
    """Revoked, or voided because the tool has changed."""


class Grant(FrozenModel):
    """Turns an ask of its rules into an allow, for calls of one tool. Overrides neither a deny nor an ask with a floor."""

    id: GrantId
    tenant_id: TenantId
    principal_id: PrincipalId
    """The principal whose calls it covers."""
    session_id: SessionId | None = None
    """Only this session; None: any session of the principal."""
    approval_id: ApprovalId
    """The approval it was given with."""
    tool: str
    rules: dict[str, str]
    """Id and hash of each rule that asked. The grant covers what these rules match."""
    input_hash: str | None = None
    """Only this exact input; None: any input that the rules match."""
    behaviour_hash: str
    """Hash of the tool's behaviour: a changed schema, command or class voids the grant."""
    image: str
    """Sandbox image; calls under another image are not covered."""
    profile: str
    """The name of the sandbox's profile."""
    profile_hash: str
    """Hash of the whole profile; calls under a changed profile are not covered."""
    granted_by: PrincipalId
    reason: str
    state: GrantState
    created_at: float
    expires_at: float
    """Seconds since the epoch, on the database's clock."""
    max_uses: int | None = None
    uses: int
    """Calls started under it."""
    ended_at: float | None = None
    ended_by: PrincipalId | None = None
    """None if it was voided."""
    ended_why: str | None = None


class SkippedGrant(FrozenModel):
    """A grant for the call's tool that did not cover the call."""

    grant_id: GrantId
    because: Literal["tool", "image", "profile", "rules"]
    """What differs. `tool` has voided the grant; with the others the grant stays active."""


class GrantRequest(FrozenModel):
    """The grant that a vote asks for; at most what the approval's `grant` offers."""

    kind: GrantKind
    ttl_s: int | None = Field(default=None, ge=1)
    """Lifetime in seconds; default: the maximum of the offer."""
    max_uses: int | None = Field(default=None, ge=1)
    """Number of calls; default: the maximum of the offer."""
    same_input: bool = False
    """Only for calls with exactly this input."""


class GrantUnknown(Fault):
    """No such grant for this tenant."""

    code = "GRANT_UNKNOWN"
    status = 404


class GrantNotOffered(Fault):
    """The rules offer less than the requested grant. The vote was not counted."""

    code = "GRANT_NOT_OFFERED"
    status = 409
