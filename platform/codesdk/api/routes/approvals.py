"""Approvals over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, cast

from fastapi import Query, Request, Response
from pydantic import Field
from starlette.responses import JSONResponse

from codesdk.api.access import Caller, LinkDep, ServicesDep, access_recheck, guarded_router
from codesdk.api.approval_stream import ApprovalStream, FeedPoller
from codesdk.api.cursor import CURSOR_PATTERN, encode_cursor, start_position
from codesdk.api.event_stream import OpenStreams
from codesdk.approvals import Approval, ApprovalState, GrantRequest, Verdict
from codesdk.approvals.feed import FeedEntry
from codesdk.bootstrap import Services
from codesdk.domain.model import FrozenModel
from codesdk.storage.writer import Unit
from codesdk.tenancy.access import Action
from codesdk.webhooks import OneTimeLink

router = guarded_router()


class ApprovalList(FrozenModel):
    """Approvals, newest first."""

    approvals: list[Approval]


class NewsPage(FrozenModel):
    """Up to 20 feed entries, in order. Pass `next` as `after` for the next page."""

    news: list[FeedEntry]
    next: str
    """Cursor after this page's last entry."""
    head: int
    """Number of the newest entry."""
    resync: str | None = None
    """Why the cursor couldn't be used, if so. The page then starts at the beginning."""


class Vote(FrozenModel):
    """A vote on exactly what the voter was shown."""

    verdict: Verdict
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    """The approval's `digest`. A vote with another digest is rejected."""
    comment: str | None = Field(default=None, max_length=2000)
    """Passed to the agent if the verdict is `reject`."""
    grant: GrantRequest | None = None
    """With `approve`: also approve further calls of the same kind, as far as the approval's `grant` allows."""


@router.get("/v1/approvals")
def list_approvals(
    caller: Caller,
    services: ServicesDep,
    *,
    state: Annotated[ApprovalState | None, Query()] = None,
    session_id: Annotated[str | None, Query(max_length=40)] = None,
    rule: Annotated[str | None, Query(max_length=80)] = None,
    before: Annotated[str | None, Query(max_length=40)] = None,
) -> ApprovalList:
    """List up to 200 of the tenant's approvals. For the next page, pass the last one's id as `before`."""
    return ApprovalList(approvals=services.approvals.listing(caller.tenant_id, state, session_id, rule, before))


@router.get("/v1/approvals/events", response_model=NewsPage, responses={200: {"content": {"text/event-stream": {}}}})
def follow_approvals(
    request: Request,
    caller: Caller,
    services: ServicesDep,
    *,
    session_id: Annotated[str | None, Query(max_length=40)] = None,
    after: Annotated[str | None, Query(pattern=CURSOR_PATTERN)] = None,
) -> Response:
    """Read the tenant's approval feed after a cursor. With `Accept: text/event-stream`, stream it.

    A stream without a cursor (`Last-Event-ID` or `after`) starts at the current end and sends its position first: list
    the pending approvals then, and follow. Do the same after a `resync`.
    """
    feeds = services.approvals.feeds
    epoch, last = feeds.place(caller.tenant_id)
    if "text/event-stream" in request.headers.get("accept", ""):
        given = request.headers.get("last-event-id", after)
        return ApprovalStream(
            feeds=feeds,
            poller=cast("FeedPoller", request.app.state.poller),
            readers=cast("OpenStreams", request.app.state.readers),
            tenant=caller.tenant_id,
            begin=None if given is None else start_position(given, epoch, last),
            session=session_id,
            recheck=access_recheck(request, Action.APPROVALS_READ),
        )
    begin = start_position(after, epoch, last)
    news = feeds.page(caller.tenant_id, begin.after)
    page = NewsPage(
        news=[each for each in news if session_id in (None, each.approval.session_id)],
        next=encode_cursor(epoch, news[-1].number if news else begin.after),
        head=last,
        resync=begin.resync,
    )
    return JSONResponse(page.model_dump(mode="json", exclude_none=True))


@router.get("/v1/approvals/{approval_id}")
def read_approval(approval_id: str, caller: Caller, services: ServicesDep) -> Approval:
    """Return one approval, with what would run and why it needs approval."""
    return services.approvals.find(caller.tenant_id, approval_id)


@router.post("/v1/approvals/{approval_id}/decision")
def decide_approval(approval_id: str, vote: Vote, caller: Caller, ticket: LinkDep, services: ServicesDep) -> Approval:
    """Approve or reject. The first vote counts: repeating it does nothing, a different one is a conflict.

    A delivery's one-time token can replace the API key. It votes once, as its principal.
    """
    return services.pipeline.vote(
        caller.tenant_id,
        approval_id,
        vote.verdict,
        digest=vote.digest,
        by=caller.id,
        comment=vote.comment,
        wish=vote.grant,
        before=redeem_link(services, ticket, approval=approval_id, digest=vote.digest),
    )


def redeem_link(
    services: Services, ticket: OneTimeLink | None, *, approval: str, digest: str
) -> Callable[[Unit], None]:
    """Return the vote's first step: use up the one-time link, if the vote came with one."""
    if ticket is None:
        return lambda _: None
    return lambda unit: services.one_time_links.use(unit, ticket, approval=approval, digest=digest)
