"""Durable approvals: each vote is one conditional write, one decides, one consumes."""

from codesdk.approvals.approval import (
    Approval,
    ApprovalConflict,
    ApprovalState,
    ApprovalUnknown,
    DemandProgress,
    NotAnApprover,
    Verdict,
    Vote,
    needs,
    who,
)
from codesdk.approvals.desk import Desk
from codesdk.approvals.grant import Grant, GrantNotOffered, GrantState, GrantUnknown, PassedOver, Wish
from codesdk.approvals.grants import NO_COVER, Asked, Cover, Grants

__all__ = [
    "NO_COVER",
    "Approval",
    "ApprovalConflict",
    "ApprovalState",
    "ApprovalUnknown",
    "Asked",
    "Cover",
    "DemandProgress",
    "Desk",
    "Grant",
    "GrantNotOffered",
    "GrantState",
    "GrantUnknown",
    "Grants",
    "NotAnApprover",
    "PassedOver",
    "Verdict",
    "Vote",
    "Wish",
    "needs",
    "who",
]
