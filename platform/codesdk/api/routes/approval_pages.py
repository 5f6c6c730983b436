"""The page of an approval, and the answer that its form gives. Looking decides nothing: links are opened by scanners too."""

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
from codesdk.approvals import ApprovalConflict, ApprovalState, GrantRequest, Verdict, describe_approvers
from codesdk.bootstrap import Services
from codesdk.domain.clock import Clock
from codesdk.domain.decisions import GrantKind
from codesdk.domain.ids import PrincipalId
from codesdk.errors import Fault, InternalFault
from codesdk.mcphost.server.throttle import Throttle
from codesdk.tenancy.access import Action
from codesdk.tenancy.principal import Principal, Unauthenticated
from codesdk.webhooks import LinkMismatch, OneTimeLink

router = guarded_router()
_PROBLEM_STATUS = {401: 404}
"""A person cannot give another credential here: what does not open is not found."""


_PAGE_STATUS = {401: 403}
"""A key that opens nothing: 401 would have a browser ask for another kind of credential."""


class TooManyAttempts(Fault):
    """More answers came from one link, by one key or by such as open nothing, than a person gives."""

    code = "TOO_MANY_ATTEMPTS"
    retryable = True
    status = 429


def answer_throttle(clock: Clock) -> Throttle:
    """How often one link that only shows may be answered by one key: ten times together, then once in six seconds.

    Keys that open nothing are counted together. Nobody's tries are taken from another's: the link is in an agent's hands.
    """
    return Throttle(clock, at_once=2, per_s=1 / 6, burst=10.0)


class ApprovalForm(NamedTuple):
    """What the page's form brought."""

    token: str
    key: str
    """An API key, where the link only shows."""
    said: dict[str, str]
    foreign: bool
    """Another site's page sent it."""


class CrossSiteForm(Fault):
    """The form was sent by another site's page."""

    code = "FOREIGN_FORM"
    status = 403


@router.get("/approve/{token}", response_class=HTMLResponse)
def show_approval(token: str, services: ServicesDep) -> Response:
    """What would run, why it is asked, and two buttons. Nothing is changed."""
    try:
        ticket, voter = authenticate_by_link(services, token, Action.APPROVALS_DECIDE)
        return _page(services, ticket, None if ticket.look_only else voter)
    except InternalFault:
        raise
    except Fault as fault:
        return _problem(fault)


@router.post("/approve/{token}", response_class=HTMLResponse)
async def answer_approval(token: str, request: Request, services: ServicesDep) -> Response:
    """The form's answer. Afterwards the browser looks at the page again."""
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
        return _problem(voter)  # nobody can say whether the key is good, so it counts against nobody
    tries = cast("Throttle", request.app.state.answer_throttle)
    whose = (ticket.id, None if isinstance(voter, Fault) else voter.id)
    if (wait_s := tries.enter(whose)) > 0:
        slow = TooManyAttempts(
            "Too many answers came from this link with keys that open nothing."
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
        tries.leave(whose)


def _form(token: str, request: Request, body: bytes, public_url: str) -> ApprovalForm:
    said = _form_fields(body.decode("utf-8", "replace"))
    # A program sends its key as everywhere else; a browser's form cannot.
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    key = given if scheme.lower() == "bearer" else said.pop("api_key", "")
    return ApprovalForm(token, key.strip(), said, foreign=not _same_site(request, public_url))


def _form_fields(body: str) -> dict[str, str]:
    try:
        return {name: values[0] for name, values in parse_qs(body, max_num_fields=8).items()}
    except ValueError:
        return {}  # no form of ours has so many fields: it says nothing


def _answer(services: Services, ticket: OneTimeLink, voter: Principal | Fault, form: ApprovalForm) -> Response:
    """`voter`: who answers; a fault: why nobody does."""
    # A link that only shows belongs to nobody: after a fault its page again asks for a key.
    holder = None if ticket.look_only or isinstance(voter, Fault) else voter
    try:
        if form.foreign:
            raise CrossSiteForm(
                "This answer did not come from the approval's own page.", advice="Use the page's buttons."
            )
        if isinstance(voter, Fault):
            raise voter
        _vote(services, ticket, voter, form.said)
    except InternalFault:
        raise
    except Fault as fault:
        return _page(services, services.one_time_links.find(ticket.id) or ticket, holder, fault)
    # Relative, since a proxy may have taken a part of the path off; and a reload then sends nothing again.
    return RedirectResponse(form.token, 303, headers=approval_html.PAGE_HEADERS)


def _key_holder(services: Services, ticket: OneTimeLink, form: ApprovalForm) -> Principal | Fault:
    """Whose key the form brings; else why it is refused, before anything is counted against anybody."""
    try:
        voter = authenticate(services, form.key, Action.APPROVALS_DECIDE)
    except InternalFault:
        raise
    except Fault as fault:
        return fault
    if voter.tenant_id != ticket.tenant_id:
        return Unauthenticated("This key opens nothing here.", advice="Give a key of the tenant whose approval it is.")
    return voter


def _vote(services: Services, ticket: OneTimeLink, voter: Principal, said: dict[str, str]) -> None:
    try:
        verdict = Verdict(said.get("verdict", ""))
        kind = GrantKind(said.get("grant", GrantKind.ONCE))
    except ValueError as error:
        raise ApprovalConflict("The form had no answer; nothing was changed.") from error
    digest = said.get("digest", "")
    comment = said.get("comment", "").replace("\r\n", "\n").strip()[: approval_html.MAX_COMMENT]
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
    """`voter`: None where the link only shows, so that nobody is known yet."""
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
            else f"You cannot vote on this approval: it takes {describe_approvers(approval)}."
        )
    view = ApprovalView(
        approval=approval,
        answers=theirs,
        voter=voter.name if voter else None,
        requester=_principal_label(services, approval.shown.get("principal")),
        now=services.clock.now().timestamp(),
        notice=notice,
    )
    status = _PAGE_STATUS.get(fault.status, fault.status) if fault else 200
    return HTMLResponse(approval_html.render(view), status, approval_html.PAGE_HEADERS)


def _problem(fault: Fault) -> Response:
    page = approval_html.render_problem("There is nothing to decide here", str(fault))
    return HTMLResponse(page, _PROBLEM_STATUS.get(fault.status, fault.status), approval_html.PAGE_HEADERS)


def _principal_label(services: Services, principal: object) -> str:
    try:
        return f"{services.directory.active_principal(PrincipalId(str(principal))).name} ({principal})"
    except Unauthenticated:
        return str(principal or "")


def _same_site(request: Request, public_url: str) -> bool:
    """Whether the page that sent the form was ours, as the browser says; a program that says nothing has the link."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    # A proxy may have changed the Host header; the public URL is then what the browser was on.
    own = {request.headers.get("host"), urlsplit(public_url).netloc} - {None, ""}
    return origin is None or urlsplit(origin).netloc in own  # of a page without an origin it is the word `null`
