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

__all__ = [
    "Approval",
    "ApprovalConflict",
    "ApprovalState",
    "ApprovalUnknown",
    "Desk",
    "NotAnApprover",
    "Standing",
    "Verdict",
    "Vote",
    "needs",
    "who",
]
