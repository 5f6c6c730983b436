"""Describes an approval's progress: who has voted, whose approval is missing, how it ended. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from codesdk.approvals.approval import Approval, ApprovalState, DemandProgress, Verdict, Vote

_ENDED = {
    ApprovalState.EXPIRED: "Expired: not enough people approved in time",
    ApprovalState.CANCELLED: "Withdrawn: the call was cancelled or its session was closed",
}
VOIDED = "Void: what would have run was no longer what was approved"


def progress_line(approval: Approval) -> str:
    """How many have approved: `1 of 2 have approved`, for each requirement."""
    if not approval.demands:
        return "0 of 1 have approved" if approval.state is ApprovalState.PENDING else ""
    several = len(approval.demands) > 1
    return "; ".join(_progress_of(demand, named=several) for demand in approval.demands)


def missing_line(approval: Approval, now: float) -> str:
    """Whose approval is still missing: `one more of finance or leads`. Empty if none is.

    A group that may answer only later is left out until it may. `now`: seconds since the epoch.
    """
    wanted = approval.demands or (DemandProgress(quorum=1, approved=0),)
    missing = " and ".join(_missing(demand, now) for demand in wanted if demand.quorum > demand.approved)
    return f"{missing}, other than who asks" if missing and approval.not_requester else missing


def vote_line(vote: Vote) -> str:
    """One vote: `Ann approved on 30 Nov 2026, 14:03 UTC: looks right`."""
    said = "approved" if vote.verdict is Verdict.APPROVE else "rejected it"
    return f"{vote.name} {said} on {moment(vote.at)}{f': {vote.comment}' if vote.comment else ''}"


def outcome_line(approval: Approval) -> str:
    """How the approval ended, by whom and when. Empty while it is pending."""
    if approval.state is ApprovalState.PENDING:
        return ""
    if approval.state in _ENDED:
        return _ENDED[approval.state]
    decisive = next((vote for vote in approval.votes if vote.by == approval.decided_by), None)
    by = f" by {decisive.name}" if decisive else ""
    at = f" on {moment(approval.decided_at)}" if approval.decided_at is not None else ""
    if approval.state is ApprovalState.VOIDED:
        return f"{VOIDED} (approved{by}{at})" if decisive else VOIDED
    return f"{'Rejected' if approval.state is ApprovalState.REJECTED else 'Approved'}{by}{at}"


def moment(seconds: float) -> str:
    """A time for people, to the minute: `30 Nov 2026, 14:03 UTC`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%d %b %Y, %H:%M UTC")


def _progress_of(demand: DemandProgress, *, named: bool) -> str:
    group = f"{demand.group or 'any approver'}: " if named else ""
    return f"{group}{min(demand.approved, demand.quorum)} of {demand.quorum} have approved"


def _missing(demand: DemandProgress, now: float) -> str:
    count = demand.quorum - demand.approved
    more = " more" if demand.approved else ""
    if demand.group is None:
        return f"one{more} approver" if count == 1 else f"{count}{more} approvers"
    escalated = demand.escalate_at is not None and demand.escalate_at <= now
    groups = f"{demand.group} or {demand.escalate_to}" if escalated and demand.escalate_to else demand.group
    return f"one{more} of {groups}" if count == 1 else f"{count}{more} people of {groups}"
