"""The page of an approval and its form. Viewing decides nothing, because scanners open links, too."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple, cast
from urllib.parse import parse_qs, urlsplit

from anyio import to_thread
from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from codesdk.api import approval_html
from codesdk.api.access import ServicesDep, authenticate, authenticate_by_link, guarded_router
from codesdk.api.approval_html import ApprovalView
from codesdk.api.routes.approvals import redeem_link
from codesdk.approvals import Approval, ApprovalConflict, ApprovalState, GrantRequest, Verdict
from codesdk.approvals.progress import missing_line
from codesdk.bootstrap import Services
from codesdk.domain.clock import Clock
from codesdk.domain.decisions import GrantKind
from codesdk.domain.ids import PrincipalId
from codesdk.errors import Fault, InternalFault
from codesdk.mcphost.server.throttle import Throttle
from codesdk.tenancy.access import Action
from codesdk.tenancy.principal import Principal, Unauthenticated
from codesdk.toolcalls.call_text import describe_call
from codesdk.toolcalls.records import store
from codesdk.webhooks import LinkMismatch, OneTimeLink

router = guarded_router()
_PROBLEM_STATUS = {401: 404}
"""The page can't ask for other credentials, so an invalid link is "not found"."""


_PAGE_STATUS = {401: 403}
"""An invalid key. With 401, a browser would ask for another kind of credential."""


class TooManyAttempts(Fault):
    """Too many answers came from one link, by one key or by invalid keys."""

    code = "TOO_MANY_ATTEMPTS"
    retryable = True
    status = 429


def answer_throttle(clock: Clock) -> Throttle:
    """Create the limit of answers per view-only link and key: a burst of ten, then one every six seconds.

    Invalid keys share one limit per link. Valid keys have their own, because agents see the link and could exhaust it.
    """
    return Throttle(clock, at_once=2, per_s=1 / 6, burst=10.0)


class ApprovalForm(NamedTuple):
    """A submitted form."""

    token: str
    key: str
    """An API key, for view-only links."""
    fields: dict[str, str]
    foreign: bool
    """Whether another site's page sent it."""


class CrossSiteForm(Fault):
    """The form was sent from another site's page."""

    code = "FOREIGN_FORM"
    status = 403


@router.get("/approve/{token}", response_class=HTMLResponse)
def show_approval(token: str, services: ServicesDep) -> Response:
    """Show what would run, why it needs approval, and two buttons. Changes nothing."""
    try:
        ticket, voter = authenticate_by_link(services, token, Action.APPROVALS_DECIDE)
        return _page(services, ticket, None if ticket.look_only else voter)
    except InternalFault:
        raise
    except Fault as fault:
        return _problem(fault)


@router.post("/approve/{token}", response_class=HTMLResponse)
async def answer_approval(token: str, request: Request, services: ServicesDep) -> Response:
    """Process the form's answer, and redirect the browser back to the page."""
    form = _form(token, request, await request.body(), services.settings.public_url)
    try:
        ticket, holder = await to_thread.run_sync(authenticate_by_link, services, token, Action.APPROVALS_DECIDE)
    except InternalFault:
        raise
    except Fault as fault:
        return _problem(fault)
    if not ticket.look_only:
        return await to_thread.run_sync(_answer, services, ticket, holder, form)
    voter = await to_thread.run_sync(_key_holder, services, ticket, form)
    if isinstance(voter, Fault) and voter.retryable:
        return _problem(voter)  # the key couldn't be checked, so it counts against no limit
    throttle = cast("Throttle", request.app.state.answer_throttle)
    whose = (ticket.id, None if isinstance(voter, Fault) else voter.id)
    if (wait_s := throttle.enter(whose)) > 0:
        slow = TooManyAttempts(
            "Too many answers came from this link with invalid keys."
            if isinstance(voter, Fault)
            else "Too many answers came from this link with this key.",
            advice=f"Try again in {ceil(wait_s)} seconds.",
        )
        page = await to_thread.run_sync(_page, services, ticket, None, slow)
        page.headers["retry-after"] = str(ceil(wait_s))
        return page
    try:
        return await to_thread.run_sync(_answer, services, ticket, voter, form)
    finally:
        throttle.leave(whose)


def _form(token: str, request: Request, body: bytes, public_url: str) -> ApprovalForm:
    fields = _form_fields(body.decode("utf-8", "replace"))
    # Programs send the key as a header, as for other routes; a browser's form can't.
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    key = given if scheme.lower() == "bearer" else fields.pop("api_key", "")
    return ApprovalForm(token, key.strip(), fields, foreign=not _same_site(request, public_url))


def _form_fields(body: str) -> dict[str, str]:
    try:
        return {name: values[0] for name, values in parse_qs(body, max_num_fields=8).items()}
    except ValueError:
        return {}  # no form of ours has so many fields


def _answer(services: Services, ticket: OneTimeLink, voter: Principal | Fault, form: ApprovalForm) -> Response:
    """Vote and answer. `voter`: the principal, or the fault why there is none."""
    # A view-only link has no voter: after a fault, its page asks for a key again.
    holder = None if ticket.look_only or isinstance(voter, Fault) else voter
    try:
        if form.foreign:
            raise CrossSiteForm(
                "This answer did not come from the approval's own page.", advice="Use the page's buttons."
            )
        if isinstance(voter, Fault):
            raise voter
        _vote(services, ticket, voter, form.fields)
    except InternalFault:
        raise
    except Fault as fault:
        return _page(services, services.one_time_links.find(ticket.id) or ticket, holder, fault)
    # Relative, because a proxy may have stripped a path prefix. Reloading the page then sends nothing again.
    return RedirectResponse(form.token, 303, headers=approval_html.PAGE_HEADERS)


def _key_holder(services: Services, ticket: OneTimeLink, form: ApprovalForm) -> Principal | Fault:
    """Return the principal of the form's key, or the fault. Checked before it counts against a limit."""
    try:
        voter = authenticate(services, form.key, Action.APPROVALS_DECIDE)
    except InternalFault:
        raise
    except Fault as fault:
        return fault
    if voter.tenant_id != ticket.tenant_id:
        return Unauthenticated("This key is not valid here.", advice="Use a key of the approval's tenant.")
    return voter


def _vote(services: Services, ticket: OneTimeLink, voter: Principal, fields: dict[str, str]) -> None:
    try:
        verdict = Verdict(fields.get("verdict", ""))
        kind = GrantKind(fields.get("grant", GrantKind.ONCE))
    except ValueError as error:
        raise ApprovalConflict("The form had no answer; nothing was changed.") from error
    digest = fields.get("digest", "")
    comment = fields.get("comment", "").replace("\r\n", "\n").strip()[: approval_html.MAX_COMMENT]
    if not digest.isascii():
        raise LinkMismatch("The form was changed; nothing was decided.")
    services.pipeline.vote(
        ticket.tenant_id,
        ticket.approval_id,
        verdict,
        digest=digest,
        by=voter.id,
        comment=comment or None,
        wish=GrantRequest(kind=kind),
        before=redeem_link(services, None if ticket.look_only else ticket, approval=ticket.approval_id, digest=digest),
    )


def _page(services: Services, ticket: OneTimeLink, voter: Principal | None, fault: Fault | None = None) -> Response:
    """Render the approval's page. `voter`: None for view-only links."""
    approval = services.approvals.find(ticket.tenant_id, ticket.approval_id)
    pending = approval.state is ApprovalState.PENDING
    waits = pending and ticket.used_at is None and not ticket.expired
    theirs = waits and (voter is None or services.approvals.can_vote(approval.id, voter.id))
    notice = str(fault) if fault else ""
    if not fault and pending and ticket.used_at is not None:
        notice = "Your answer was counted. Others must answer too."
    elif not fault and voter is not None and waits and not theirs:
        answered = any(vote.by == voter.id for vote in approval.votes)
        notice = (
            "You have answered this already."
            if answered
            else f"You cannot vote on this approval: it requires {missing_line(approval, services.clock.now().timestamp())}."
        )
    # A view-only link may be in the hands of the agent, so its page names no further people.
    names = voter is not None and pending
    view = ApprovalView(
        approval=approval,
        answers=theirs,
        voter=voter.name if voter else None,
        requester=_principal_name(services, approval.shown.get("principal")),
        now=services.clock.now().timestamp(),
        notice=notice,
        may_vote=tuple(services.approvals.eligible_voters(approval.id, approval_html.MAX_VOTERS + 1)) if names else (),
        call="" if pending else _call_text(services, approval),
    )
    status = _PAGE_STATUS.get(fault.status, fault.status) if fault else 200
    return HTMLResponse(approval_html.render(view), status, approval_html.PAGE_HEADERS)


def _problem(fault: Fault) -> Response:
    page = approval_html.render_problem("There is nothing to decide here", str(fault))
    return HTMLResponse(page, _PROBLEM_STATUS.get(fault.status, fault.status), approval_html.PAGE_HEADERS)


def _call_text(services: Services, approval: Approval) -> str:
    """What became of the call, in a sentence; empty if it is gone."""
    place = store.CallScope(approval.tenant_id, approval.session_id)
    with services.database.read() as connection:
        found = store.find_in_scope(connection, place, approval.tool_call_id)
    if found is None:
        return ""
    # If nobody approved the call, the approval's outcome already says why it was denied.
    approved = approval.state in (ApprovalState.APPROVED, ApprovalState.CONSUMED, ApprovalState.VOIDED)
    return describe_call(found.state, found.result if approved else None)


def _principal_name(services: Services, principal: object) -> str:
    try:
        return services.directory.active_principal(PrincipalId(str(principal))).name
    except Unauthenticated:
        return str(principal or "")


def _same_site(request: Request, public_url: str) -> bool:
    """Return whether our own page sent the form. Programs that send none of the headers are accepted: they have the link."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin", request.headers.get("referer"))
    # A proxy may have changed the Host header; the public URL is then the browser's origin.
    own = {request.headers.get("host"), urlsplit(public_url).netloc} - {None, ""}
    return origin is None or urlsplit(origin).netloc in own  # pages without an origin send `null`
