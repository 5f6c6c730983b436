"""Durable approvals: each vote is one conditional write, one decides, one consumes."""

from codesdk.approvals.approval import (
    Approval,
    ApprovalConflict,
    ApprovalState,
    ApprovalUnknown,
    NotAnApprover,
    Standing,
    Verdict,
    Vote,
    needs,
    who,
)
from codesdk.approvals.desk import Desk
from codesdk.approvals.grant import Grant, GrantNotOffered, GrantState, GrantUnknown, Wish
from codesdk.approvals.grants import Asked, Grants

__all__ = [
    "Approval",
    "ApprovalConflict",
    "ApprovalState",
    "ApprovalUnknown",
    "Asked",
    "Desk",
    "Grant",
    "GrantNotOffered",
    "GrantState",
    "GrantUnknown",
    "Grants",
    "NotAnApprover",
    "Standing",
    "Verdict",
    "Vote",
    "Wish",
    "needs",
    "who",
]
