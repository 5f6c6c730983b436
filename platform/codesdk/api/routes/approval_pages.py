"""The page of an approval, and the answer that its form gives. Looking decides nothing: links are opened by scanners too."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from anyio import to_thread
from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from codesdk.api import approval_page
from codesdk.api.access import Wired, guarded_router, let_in_by_ticket
from codesdk.api.approval_page import View
from codesdk.api.routes.approvals import using
from codesdk.approvals import ApprovalConflict, ApprovalState, Verdict, Wish, who
from codesdk.bootstrap import Services
from codesdk.domain.decisions import GrantKind
from codesdk.domain.ids import PrincipalId
from codesdk.errors import Fault, InternalFault
from codesdk.tenancy.access import Action
from codesdk.tenancy.principal import Principal, Unauthenticated
from codesdk.webhooks import Ticket, TicketElsewhere

router = guarded_router()
_SHOW = {401: 404}
"""A person cannot give another credential here: what does not open is not found."""


class ForeignForm(Fault):
    """The form was sent by another site's page."""

    code = "FOREIGN_FORM"
    status = 403


@router.get("/approve/{token}", response_class=HTMLResponse)
def show_approval(token: str, services: Wired) -> Response:
    """What would run, why it is asked, and two buttons. Nothing is changed."""
    try:
        ticket, voter = let_in_by_ticket(services, token, Action.APPROVALS_DECIDE)
        return _page(services, ticket, voter)
    except InternalFault:
        raise
    except Fault as fault:
        return _problem(fault)


@router.post("/approve/{token}", response_class=HTMLResponse)
async def answer_approval(token: str, request: Request, services: Wired) -> Response:
    """The form's answer. Afterwards the browser looks at the page again."""
    said = _said((await request.body()).decode("utf-8", "replace"))
    foreign = not _own_form(request, services.settings.public_url)
    return await to_thread.run_sync(_answer, services, token, said, foreign)


def _said(body: str) -> dict[str, str]:
    try:
        return {name: values[0] for name, values in parse_qs(body, max_num_fields=8).items()}
    except ValueError:
        return {}  # no form of ours has so many fields: it says nothing


def _answer(services: Services, token: str, said: dict[str, str], foreign: bool) -> Response:
    try:
        ticket, voter = let_in_by_ticket(services, token, Action.APPROVALS_DECIDE)
    except InternalFault:
        raise
    except Fault as fault:
        return _problem(fault)
    try:
        if foreign:
            raise ForeignForm(
                "This answer did not come from the approval's own page.", advice="Use the page's buttons."
            )
        _vote(services, ticket, voter, said)
    except InternalFault:
        raise
    except Fault as fault:
        return _page(services, services.tickets.find(ticket.id) or ticket, voter, fault)
    # Relative, since a proxy may have taken a part of the path off; and a reload then sends nothing again.
    return RedirectResponse(token, 303, headers=approval_page.HEADERS)


def _vote(services: Services, ticket: Ticket, voter: Principal, said: dict[str, str]) -> None:
    try:
        verdict = Verdict(said.get("verdict", ""))
        kind = GrantKind(said.get("grant", GrantKind.ONCE))
    except ValueError as error:
        raise ApprovalConflict("The form had no answer; nothing was changed.") from error
    digest = said.get("digest", "")
    comment = said.get("comment", "").replace("\r\n", "\n").strip()[: approval_page.MAX_COMMENT]
    if not digest.isascii():
        raise TicketElsewhere("The form was changed; nothing was decided.")
    services.pipeline.vote(
        ticket.tenant_id,
        ticket.approval_id,
        verdict,
        digest=digest,
        by=voter.id,
        comment=comment or None,
        wish=Wish(kind=kind),
        before=using(services, ticket, approval=ticket.approval_id, digest=digest),
    )


def _page(services: Services, ticket: Ticket, voter: Principal, fault: Fault | None = None) -> Response:
    approval = services.desk.find(ticket.tenant_id, ticket.approval_id)
    pending = approval.state is ApprovalState.PENDING
    waits = pending and ticket.used_at is None and not ticket.expired
    theirs = waits and services.desk.may_answer(approval.id, voter.id)
    notice = str(fault) if fault else ""
    if not fault and pending and ticket.used_at is not None:
        notice = "Your answer was counted. Others must answer too."
    elif not fault and waits and not theirs:
        answered = any(vote.by == voter.id for vote in approval.votes)
        notice = (
            "You have answered this already." if answered else f"This is not yours to answer: it takes {who(approval)}."
        )
    view = View(
        approval=approval,
        answers=theirs,
        voter=voter.name,
        requester=_name(services, approval.shown.get("principal")),
        now=services.clock.now().timestamp(),
        notice=notice,
    )
    return HTMLResponse(approval_page.render(view), fault.status if fault else 200, approval_page.HEADERS)


def _problem(fault: Fault) -> Response:
    page = approval_page.render_problem("There is nothing to decide here", str(fault))
    return HTMLResponse(page, _SHOW.get(fault.status, fault.status), approval_page.HEADERS)


def _name(services: Services, principal: object) -> str:
    try:
        return f"{services.directory.acting(PrincipalId(str(principal))).name} ({principal})"
    except Unauthenticated:
        return str(principal or "")


def _own_form(request: Request, public_url: str) -> bool:
    """Whether the page that sent the form was ours, as the browser says; a program that says nothing has the link."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    # A proxy may have changed the Host header; the public URL is then what the browser was on.
    own = {request.headers.get("host"), urlsplit(public_url).netloc} - {None, ""}
    return origin is None or urlsplit(origin).netloc in own  # of a page without an origin it is the word `null`
