"""The action of `tenancy.access` that each route performs. Creating a route that is missing here fails."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Annotated, Any, cast

from anyio import to_thread
from fastapi import Depends, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message

from codesdk.api.problems import InvalidRequest, internal_error
from codesdk.api.tenant_slots import TenantSlots
from codesdk.bootstrap import Services
from codesdk.documents import nearest
from codesdk.errors import Fault, InternalFault
from codesdk.tenancy.access import AccessAllowed, AccessDenied, Action, Forbidden, may_attempt
from codesdk.tenancy.principal import Principal, Unauthenticated
from codesdk.webhooks import LINK_TOKEN_PREFIX, OneTimeLink

MAX_JSON_BODY = 1024 * 1024
"""Maximum bytes of a request body, unless the route streams it."""
MAX_NAME = 64
MAX_NAMES = 8
"""Unknown parameters that an error repeats, and characters of each."""
CALLS = "/v1/sessions/{session_id}/calls"
FILES = "/v1/sessions/{session_id}/files"
STREAMED_BODIES = frozenset({"/v1/artifacts", FILES, f"{FILES}/tree"})
"""Routes that stream their bodies and limit them themselves."""


class RouteAuth(Enum):
    """How a route that no role grants is authenticated."""

    OPEN = "anybody"
    SESSION_TOKEN = "a session's token or a login, checked by the MCP host"  # noqa: S105 (no secret)
    TICKET = "the ticket in its path, checked by the page"


ROUTE_RULES: dict[tuple[str, str], Action | RouteAuth] = {
    ("GET", "/health"): RouteAuth.OPEN,  # tells only whether the service works
    ("GET", "/openapi.json"): RouteAuth.OPEN,  # public, like the source
    ("GET", "/.well-known/oauth-protected-resource"): RouteAuth.OPEN,  # requested before login (RFC 9728)
    ("GET", "/.well-known/oauth-protected-resource/mcp"): RouteAuth.OPEN,
    ("*", "/mcp"): RouteAuth.SESSION_TOKEN,
    ("GET", "/v1/tools"): Action.TOOLS_READ,
    ("POST", "/v1/sessions"): Action.SESSIONS_OPEN,
    ("GET", "/v1/sessions"): Action.SESSIONS_READ,
    ("GET", "/v1/sessions/{session_id}"): Action.SESSIONS_READ,
    ("DELETE", "/v1/sessions/{session_id}"): Action.SESSIONS_CLOSE,
    ("POST", "/v1/sessions/{session_id}/tokens"): Action.SESSIONS_OPEN,
    ("GET", "/v1/sessions/{session_id}/sandbox"): Action.SESSIONS_READ,
    ("POST", "/v1/sessions/{session_id}/sandbox/stop"): Action.SANDBOXES_START_STOP,
    ("POST", "/v1/sessions/{session_id}/sandbox/start"): Action.SANDBOXES_START_STOP,
    ("GET", "/v1/sessions/{session_id}/events"): Action.EVENTS_READ,
    ("POST", CALLS): Action.CALLS_MAKE,
    ("GET", CALLS): Action.CALLS_READ,
    ("GET", f"{CALLS}/{{call_id}}"): Action.CALLS_READ,
    ("GET", f"{CALLS}/{{call_id}}/events"): Action.EVENTS_READ,
    ("POST", f"{CALLS}/{{call_id}}/cancel"): Action.CALLS_CANCEL,
    ("GET", FILES): Action.CALLS_MAKE,
    ("HEAD", FILES): Action.CALLS_MAKE,
    ("PUT", FILES): Action.CALLS_MAKE,
    ("DELETE", FILES): Action.CALLS_MAKE,
    ("GET", f"{FILES}/list"): Action.CALLS_MAKE,
    ("GET", f"{FILES}/stat"): Action.CALLS_MAKE,
    ("POST", f"{FILES}/move"): Action.CALLS_MAKE,
    ("GET", f"{FILES}/tree"): Action.CALLS_MAKE,
    ("PUT", f"{FILES}/tree"): Action.CALLS_MAKE,
    ("GET", "/v1/approvals"): Action.APPROVALS_READ,
    ("GET", "/v1/approvals/events"): Action.APPROVALS_READ,
    ("GET", "/v1/approvals/{approval_id}"): Action.APPROVALS_READ,
    ("POST", "/v1/approvals/{approval_id}/decision"): Action.APPROVALS_DECIDE,
    ("GET", "/approve/{token}"): RouteAuth.TICKET,
    ("POST", "/approve/{token}"): RouteAuth.TICKET,
    ("GET", "/v1/grants"): Action.GRANTS_READ,
    ("GET", "/v1/grants/{grant_id}"): Action.GRANTS_READ,
    ("DELETE", "/v1/grants/{grant_id}"): Action.GRANTS_REVOKE,
    ("GET", "/v1/policy"): Action.POLICY_READ,
    ("POST", "/v1/policy/decide"): Action.POLICY_DECIDE,
    ("POST", "/v1/policy/explain"): Action.POLICY_EXPLAIN,
    ("GET", "/v1/policy/versions"): Action.POLICY_READ,
    ("POST", "/v1/policy/diff"): Action.POLICY_DIFF,
    ("POST", "/v1/policy/promote"): Action.POLICY_PROMOTE,
    ("POST", "/v1/policy/rollback"): Action.POLICY_PROMOTE,
    ("GET", "/v1/policy/shadow"): Action.POLICY_READ,
    ("POST", "/v1/policy/shadow"): Action.POLICY_PROMOTE,
    ("DELETE", "/v1/policy/shadow"): Action.POLICY_PROMOTE,
    ("POST", "/v1/artifacts"): Action.ARTIFACTS_WRITE,
    ("GET", "/v1/artifacts"): Action.ARTIFACTS_READ,
    ("GET", "/v1/artifacts/{artifact_id}"): Action.ARTIFACTS_READ,
    ("HEAD", "/v1/artifacts/{artifact_id}"): Action.ARTIFACTS_READ,
    ("DELETE", "/v1/artifacts/{artifact_id}"): Action.ARTIFACTS_DELETE,
    ("GET", "/v1/webhooks"): Action.WEBHOOKS_READ,
    ("POST", "/v1/webhooks"): Action.WEBHOOKS_MANAGE,
    ("GET", "/v1/webhooks/{endpoint_id}"): Action.WEBHOOKS_READ,
    ("DELETE", "/v1/webhooks/{endpoint_id}"): Action.WEBHOOKS_MANAGE,
    ("POST", "/v1/webhooks/{endpoint_id}/rotate"): Action.WEBHOOKS_MANAGE,
    ("POST", "/v1/webhooks/{endpoint_id}/enable"): Action.WEBHOOKS_MANAGE,
    ("POST", "/v1/webhooks/{endpoint_id}/disable"): Action.WEBHOOKS_MANAGE,
    ("POST", "/v1/webhooks/{endpoint_id}/test"): Action.WEBHOOKS_MANAGE,
    ("GET", "/v1/webhooks/{endpoint_id}/deliveries"): Action.WEBHOOKS_READ,
    ("GET", "/v1/webhooks/{endpoint_id}/deliveries/{delivery_id}"): Action.WEBHOOKS_READ,
    ("POST", "/v1/webhooks/{endpoint_id}/deliveries/{delivery_id}/replay"): Action.WEBHOOKS_MANAGE,
    ("GET", "/v1/tenants"): Action.TENANTS_READ,
    ("POST", "/v1/tenants"): Action.TENANTS_MANAGE,
    ("GET", "/v1/tenants/{tenant_id}"): Action.TENANTS_READ,
    ("PATCH", "/v1/tenants/{tenant_id}"): Action.TENANTS_MANAGE,
    ("POST", "/v1/tenants/{tenant_id}/suspend"): Action.TENANTS_MANAGE,
    ("POST", "/v1/tenants/{tenant_id}/resume"): Action.TENANTS_MANAGE,
    ("GET", "/v1/quotas"): Action.QUOTAS_READ,
    ("PATCH", "/v1/quotas"): Action.QUOTAS_SET,
    ("GET", "/v1/principals"): Action.PRINCIPALS_READ,
    ("POST", "/v1/principals"): Action.PRINCIPALS_MANAGE,
    ("GET", "/v1/principals/{principal_id}"): Action.PRINCIPALS_READ,
    ("POST", "/v1/principals/{principal_id}/disable"): Action.PRINCIPALS_MANAGE,
    ("GET", "/v1/groups"): Action.PRINCIPALS_READ,
    ("PATCH", "/v1/principals/{principal_id}/groups"): Action.PRINCIPALS_MANAGE,
    ("GET", "/v1/keys"): Action.KEYS_READ,
    ("POST", "/v1/keys"): Action.KEYS_MANAGE,
    ("DELETE", "/v1/keys/{key_id}"): Action.KEYS_MANAGE,
    ("GET", "/v1/audit"): Action.AUDIT_READ,
    ("GET", "/v1/hosts"): Action.HOSTS_READ,
    ("GET", "/v1/hosts/{host_id}"): Action.HOSTS_READ,
    ("GET", "/v1/mcp-servers"): Action.HOSTS_READ,
    ("POST", "/v1/hosts/{host_id}/drain"): Action.HOSTS_MANAGE,
    ("POST", "/v1/hosts/{host_id}/activate"): Action.HOSTS_MANAGE,
    ("POST", "/v1/hosts/{host_id}/lose"): Action.HOSTS_MANAGE,
    ("GET", "/metrics"): Action.METRICS_READ,
}
"""The action of each route; `tenancy.access.PERMISSIONS` defines who may perform it."""


ONE_TIME_LINK_ROUTES = frozenset({("POST", "/v1/approvals/{approval_id}/decision")})
"""Routes that also accept a one-time link's token. It acts for its principal, whose role is checked as usual."""


WAITING_ROUTES = frozenset({("POST", CALLS), *(route for route in ROUTE_RULES if route[1].startswith(FILES))})
"""Routes that wait for a call's end, and take a slot only while they work on a thread; see `slots_of`."""


class RouteWithoutRule(InternalFault):
    """A route is missing in the table; the application is not created."""

    code = "ROUTE_WITHOUT_RULE"


class GuardedRoute(APIRoute):
    """Authorizes the caller before the request's body is read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the route's handler behind its authorization rule.

        Raises:
            RouteWithoutRule: the route is missing in the table.
        """
        handle = super().get_route_handler()
        methods = sorted(self.methods or ())
        rules = {ROUTE_RULES.get((method, self.path)) for method in methods}
        if len(rules) != 1 or (rule := rules.pop()) is None:
            raise RouteWithoutRule(f"{methods} {self.path} has no rule in api.access.ROUTE_RULES.")

        streams = self.path in STREAMED_BODIES
        takes_links = any((method, self.path) in ONE_TIME_LINK_ROUTES for method in methods)
        # Mail programs add parameters of their own to links that people open.
        parameters = _query_parameters(self.dependant) if isinstance(rule, Action) else None

        async def guarded(request: Request) -> Response:
            if isinstance(rule, Action):
                request.state.ticket, request.state.principal = await _authenticate(
                    request, rule, takes_links=takes_links
                )
            if parameters is not None:
                _refuse_unknown(request.query_params, parameters)
            try:
                if not streams:
                    request = _limited(request, MAX_JSON_BODY)
                    await _read_body(request)
                if not isinstance(rule, Action):
                    return await handle(request)
                if (request.method, self.path) in WAITING_ROUTES:
                    return await handle(request)
                async with slots_of(request, self.path):
                    return await handle(request)
            except (Fault, HTTPException, RequestValidationError):
                raise
            except Exception as error:  # noqa: BLE001 (logged; its message is not sent)
                return internal_error(error)

        return guarded


def slots_of(request: Request, path: str = "") -> AbstractAsyncContextManager[None]:
    """A slot of the caller's tenant for the route of that path, to be entered once; without one, of most routes."""
    slots = cast("TenantSlots", request.app.state.tenant_slots)
    return slots.hold(request.state.principal.tenant_id, request.method, path)


def guarded_router() -> APIRouter:
    """Create a router whose routes are all guarded."""
    return APIRouter(route_class=GuardedRoute)


def _query_parameters(dependant: Dependant) -> frozenset[str]:
    return frozenset(field.alias for field in dependant.query_params).union(
        *map(_query_parameters, dependant.dependencies)
    )


def _refuse_unknown(given: Iterable[str], known: frozenset[str]) -> None:
    """Refuse parameters that the route doesn't have: an ignored filter would answer another question.

    Raises:
        InvalidRequest: with each one's name, and the name that may be meant.
    """
    unknown = [name[:MAX_NAME] for name in dict.fromkeys(given) if name not in known][:MAX_NAMES]
    if not unknown:
        return
    expected = f"one of {', '.join(sorted(known))}" if known else "no parameters"
    near = [meant for name in unknown if (meant := nearest(name, known)) is not None]
    raise InvalidRequest(
        f"There is no query parameter {', '.join(unknown)} here; expected: {expected}.",
        advice=f"Did you mean {', '.join(near)}?" if near else "Leave it out, or see the route in /openapi.json.",
        details={"fields": [{"field": name, "expected": expected} for name in unknown]},
    )


def _limited(request: Request, limit: int) -> Request:
    # FastAPI's own limit answers a declared length in plain text; ours always answers with a problem.
    too_large = HTTPException(413, f"The body is larger than {limit} bytes")
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > limit:
        raise too_large
    got = 0

    async def receive() -> Message:
        nonlocal got
        message = await request.receive()
        got += len(message.get("body", b""))
        if got > limit:
            raise too_large
        return message

    return Request(request.scope, receive)


async def _read_body(request: Request) -> None:
    """Read and keep the body before the request takes a slot, which slow senders would hold."""
    try:
        await request.body()
    except ClientDisconnect as error:
        raise HTTPException(400, "The body ended too early") from error


async def _authenticate(request: Request, action: Action, *, takes_links: bool) -> tuple[OneTimeLink | None, Principal]:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthenticated("This request needs an API key.", advice="Send `Authorization: Bearer <API key>`.")
    if takes_links and key.strip().startswith(LINK_TOKEN_PREFIX):
        return await to_thread.run_sync(authenticate_by_link, services_of(request), key.strip(), action)
    return None, await to_thread.run_sync(authenticate, services_of(request), key.strip(), action)


def access_recheck(request: Request, action: Action) -> Callable[[], Principal]:
    """Return a function that rechecks whether the caller may still do this, for long responses.

    It uses the request's key, and raises Unauthenticated and Forbidden like the first check.
    """
    key = request.headers.get("authorization", "").partition(" ")[2].strip()
    return lambda: authenticate(services_of(request), key, action)


def authenticate_by_link(services: Services, token: str, action: Action) -> tuple[OneTimeLink, Principal]:
    """Return the one-time link and its principal. A view-only link needs the permission to read approvals.

    Raises:
        TicketInvalid, TicketWithdrawn: the token isn't valid.
        Unauthenticated, Forbidden: its principal is not active, or may not do that.
    """
    ticket = services.one_time_links.read(token)
    required = Action.APPROVALS_READ if ticket.look_only else action
    return ticket, _require_role(services.directory.active_principal(ticket.principal_id), required)


def authenticate(services: Services, key: str, action: Action) -> Principal:
    """Return the principal that holds the key.

    Raises:
        Unauthenticated, Forbidden: the key is invalid, or its principal may not do that.
    """
    return _require_role(services.directory.principal(key), action)


def _require_role(principal: Principal, action: Action) -> Principal:
    # Checked before any lookup, so that the answer reveals nothing about what exists. The target is checked later.
    match may_attempt(principal, action):
        case AccessDenied(reason=reason):
            raise Forbidden(reason, advice="Ask an operator for the role.")
        case AccessAllowed():
            return principal


def services_of(request: Request) -> Services:
    """Return the process's services."""
    return cast("Services", request.app.state.services)


async def _services(request: Request) -> Services:
    return services_of(request)


async def _caller(request: Request) -> Principal:
    return cast("Principal", request.state.principal)


async def _ticket(request: Request) -> OneTimeLink | None:
    return cast("OneTimeLink | None", request.state.ticket)


ServicesDep = Annotated[Services, Depends(_services)]
"""Endpoint parameter: the services."""
Caller = Annotated[Principal, Depends(_caller)]
"""Endpoint parameter: the authenticated principal."""
LinkDep = Annotated[OneTimeLink | None, Depends(_ticket)]
"""Endpoint parameter: the one-time link that the caller used, if any."""
