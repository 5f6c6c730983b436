"""Durable approvals: one conditional write decides, one consumes."""

from codesdk.approvals.approval import Approval, ApprovalConflict, ApprovalState, ApprovalUnknown, Verdict
from codesdk.approvals.desk import Desk

__all__ = ["Approval", "ApprovalConflict", "ApprovalState", "ApprovalUnknown", "Desk", "Verdict"]
