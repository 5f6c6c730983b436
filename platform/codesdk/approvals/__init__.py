"""Durable approvals, votes and grants. Votes, decisions and uses are conditional writes on the database's clock."""

from codesdk.approvals.approval import (
    Approval,
    ApprovalConflict,
    ApprovalState,
    ApprovalUnknown,
    DemandProgress,
    NotAnApprover,
    Verdict,
    Vote,
    describe_approvers,
    describe_requirement,
)
from codesdk.approvals.grants.grant import Grant, GrantNotOffered, GrantRequest, GrantState, GrantUnknown, SkippedGrant
from codesdk.approvals.grants.service import NO_COVERAGE, GrantContext, GrantCoverage, GrantService
from codesdk.approvals.service import ApprovalService

__all__ = [
    "NO_COVERAGE",
    "Approval",
    "ApprovalConflict",
    "ApprovalService",
    "ApprovalState",
    "ApprovalUnknown",
    "DemandProgress",
    "Grant",
    "GrantContext",
    "GrantCoverage",
    "GrantNotOffered",
    "GrantRequest",
    "GrantService",
    "GrantState",
    "GrantUnknown",
    "NotAnApprover",
    "SkippedGrant",
    "Verdict",
    "Vote",
    "describe_approvers",
    "describe_requirement",
]
