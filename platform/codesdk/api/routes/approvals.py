"""Approvals over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Query
from pydantic import Field

from codesdk.api.access import Caller, Shown, Wired, guarded_router
from codesdk.approvals import Approval, ApprovalState, Verdict, Wish
from codesdk.bootstrap import Services
from codesdk.domain.decisions import Frozen
from codesdk.storage.writer import Unit
from codesdk.webhooks import Ticket

router = guarded_router()


class ApprovalList(Frozen):
    """Approvals, newest first."""

    approvals: list[Approval]


class Vote(Frozen):
    """A person's answer to exactly what they were shown."""

    verdict: Verdict
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    """The approval's own `digest`: a vote on anything else changes nothing."""
    comment: str | None = Field(default=None, max_length=2000)
    """Told to the agent where the verdict is `reject`."""
    grant: Wish | None = None
    """Of an `approve`: let calls of the same kind through as well, as far as the approval's `grant` offers."""


@router.get("/v1/approvals")
def list_approvals(
    caller: Caller,
    services: Wired,
    state: Annotated[ApprovalState | None, Query()] = None,
    session_id: Annotated[str | None, Query(max_length=40)] = None,
    rule: Annotated[str | None, Query(max_length=80)] = None,
) -> ApprovalList:
    """The tenant's approvals."""
    return ApprovalList(approvals=services.desk.listing(caller.tenant_id, state, session_id, rule))


@router.get("/v1/approvals/{approval_id}")
def read_approval(approval_id: str, caller: Caller, services: Wired) -> Approval:
    """One approval, with what would run and why it is asked."""
    return services.desk.find(caller.tenant_id, approval_id)


@router.post("/v1/approvals/{approval_id}/decision")
def decide_approval(approval_id: str, vote: Vote, caller: Caller, ticket: Shown, services: Wired) -> Approval:
    """Approve or reject. The first vote stands; the same vote again is no error, any other is a conflict.

    A ticket of a delivery does in place of a key: it votes once, as the principal that it was given for.
    """
    return services.pipeline.vote(
        caller.tenant_id,
        approval_id,
        vote.verdict,
        digest=vote.digest,
        by=caller.id,
        comment=vote.comment,
        wish=vote.grant,
        before=using(services, ticket, approval=approval_id, digest=vote.digest),
    )


def using(services: Services, ticket: Ticket | None, *, approval: str, digest: str) -> Callable[[Unit], None]:
    """The vote's first step, where it comes with a ticket."""
    if ticket is None:
        return lambda _: None
    return lambda unit: services.tickets.use(unit, ticket, approval=approval, digest=digest)
