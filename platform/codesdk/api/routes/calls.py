"""Tool calls over HTTP: making, listing, following and cancelling them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, NamedTuple, cast

from anyio import to_thread
from fastapi import Query, Request, Response
from pydantic import Field
from starlette.responses import JSONResponse

from codesdk.api.access import Caller, ServicesDep, guarded_router, slots_of
from codesdk.api.cursor import CURSOR_PATTERN, start_position
from codesdk.api.event_stream import CallEnd, OpenStreams
from codesdk.api.routes.events import open_event_stream
from codesdk.api.session_calls import MAX_WAIT_S, idempotency_key, own_subject, wait_while_connected
from codesdk.bootstrap import Services
from codesdk.domain.calls import CallState
from codesdk.domain.events import EventType
from codesdk.domain.ids import SessionId, TenantId, ToolCallId
from codesdk.domain.model import FrozenModel
from codesdk.domain.subjects import Subject
from codesdk.domain.tool_results import MAX_TOOL_NAME, ToolResult
from codesdk.errors import Fault
from codesdk.mcphost import McpHost
from codesdk.tenancy.principal import Principal
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import CallRecord, Denied, Finished, Outcome, Waiting
from codesdk.toolcalls.retries import store as retry_store

router = guarded_router()


class CallUnknown(Fault):
    """No such call in that session of this tenant."""

    code = "CALL_UNKNOWN"
    status = 404


class WaitsFor(FrozenModel):
    """What a waiting call needs: approvers, rules and expiry."""

    who: str
    """The required approvers, as text. The approval has them structured."""
    rules: tuple[str, ...]
    """Ids of the asking rules. Empty if the default or the permission mode asks."""
    reason: str
    expires_at: float
    """Seconds since the epoch."""


class CallStatus(FrozenModel):
    """The current status of a call."""

    tool_call_id: ToolCallId
    attempt: int
    tool: str
    input_hash: str
    state: CallState
    approval_id: str | None = None
    """The pending approval, if any."""
    waits_for: WaitsFor | None = None
    """What the pending approval requires."""
    result: ToolResult | None = None
    """The result or denial, once the call has ended."""
    retry_after_s: float | None = None
    """Seconds after which the same call may get through, if it was denied for now."""


class NewCall(FrozenModel):
    """A tool call to make."""

    tool: str = Field(min_length=1, max_length=MAX_TOOL_NAME)
    input: dict[str, Any] = {}
    """As the tool's `input_schema` describes it."""
    wait_s: float = Field(default=30.0, ge=0, le=MAX_WAIT_S)
    """Seconds to wait for the call's end. It goes on if it takes longer."""
    detach: bool = False
    """Answer at once; the call goes on whether or not the caller stays connected."""


class CallSummary(FrozenModel):
    """A call in a list."""

    tool_call_id: ToolCallId
    attempt: int
    tool: str
    input_hash: str
    state: CallState
    requested_at: float
    """Seconds since the epoch."""
    is_error: bool | None = None
    """Whether it ended with an error; missing while it has not ended."""
    code: str | None = None
    """Stable reason of an error or a denial."""


class CallList(FrozenModel):
    """Calls, newest first."""

    calls: list[CallSummary]
    next: str | None = None
    """Pass it as `after` for the next page; null on the last page."""


class Cancelled(FrozenModel):
    """The outcome of a cancellation."""

    cancelled: bool
    """False: the call had already ended."""
    call: CallStatus


@router.post(
    "/v1/sessions/{session_id}/calls",
    responses={202: {"model": CallStatus, "description": "The call has not ended; `Location` has its status."}},
)
async def submit_call(
    request: Request,
    session_id: str,
    wanted: NewCall,
    caller: Caller,
    services: ServicesDep,
) -> CallStatus:
    """Make a tool call in a session of your own: policy decides it, a person approves it if need be, the sandbox runs it.

    Waits for its end up to `wait_s` seconds. A caller that disconnects before withdraws the call, unless it is detached.
    A request with the `Idempotency-Key` of an earlier one joins that call.
    """
    key = idempotency_key(request)
    async with slots_of(request):
        submitted = await to_thread.run_sync(partial(_submit, services, caller, session_id, wanted, key))
    outcome, subject = submitted.outcome, submitted.subject
    if not wanted.detach:
        waiters = cast("McpHost", request.app.state.mcp).waiters
        outcome = await wait_while_connected(
            request,
            outcome,
            subject,
            results=services.results,
            waiters=waiters,
            streams=cast("OpenStreams", request.app.state.readers),
            wait_s=wanted.wait_s,
            joined=submitted.joined,
        )
    if isinstance(outcome, Denied | Finished):
        return _ended_status(submitted.tool, outcome)
    async with slots_of(request):
        place = (caller.tenant_id, session_id, outcome.identity.tool_call_id)
        status = await to_thread.run_sync(lambda: _call_status(services, _find(services, *place)))
    where = f"/v1/sessions/{session_id}/calls/{status.tool_call_id}"
    ended = status.state.terminal
    return JSONResponse(  # type: ignore[return-value]  # the model, with another status
        status.model_dump(mode="json"), 200 if ended else 202, None if ended else {"Location": where}
    )


@router.get("/v1/sessions/{session_id}/calls")
def list_calls(
    session_id: str,
    caller: Caller,
    services: ServicesDep,
    *,
    state: Annotated[CallState | None, Query()] = None,
    tool: Annotated[str | None, Query(max_length=MAX_TOOL_NAME)] = None,
    after: Annotated[str | None, Query(max_length=40)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> CallList:
    """List a session's calls, newest first. For the next page, pass `next` as `after`."""
    session = services.sessions.find(caller.tenant_id, session_id).id
    with services.database.read() as connection:
        found = store.list_of_session(
            connection,
            store.CallScope(caller.tenant_id, session),
            state=state,
            tool=tool,
            before=after,
            limit=limit,
        )
    calls = [
        CallSummary(
            tool_call_id=each.identity.tool_call_id,
            attempt=each.identity.attempt,
            tool=each.call.name,
            input_hash=each.identity.input_hash,
            state=each.state,
            requested_at=each.requested_at,
            is_error=each.result.is_error if each.result is not None else None,
            code=each.result.code if each.result is not None else None,
        )
        for each in found
    ]
    return CallList(calls=calls, next=calls[-1].tool_call_id if len(calls) == limit else None)


@router.get(
    "/v1/sessions/{session_id}/calls/{call_id}/events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}},
)
def follow_call(
    request: Request,
    session_id: str,
    call_id: str,
    caller: Caller,
    services: ServicesDep,
    *,
    after: Annotated[str | None, Query(pattern=CURSOR_PATTERN)] = None,
) -> Response:
    """Stream a call's events, its output included. Ends after the call's last one; `Last-Event-ID` resumes it."""
    found = _find(services, caller.tenant_id, session_id, call_id)
    session, call = found.subject.session_id, found.identity.tool_call_id
    epoch, head = services.log.position(session)
    begin = start_position(request.headers.get("last-event-id", after), epoch, head)
    if begin.after == 0:
        first = found.identity.model_copy(update={"attempt": 1})
        with services.database.read() as connection:
            requested = retry_store.event_seq(connection, session, first, EventType.CALL_REQUESTED)
        begin = begin._replace(after=max(0, requested - 1))
    find = partial(services.pipeline.find, found.tenant_id, session, call)
    end = CallEnd(call, lambda: isinstance(find(), Denied | Finished))
    return open_event_stream(request, services, caller.tenant_id, session, begin=begin, head=head, until=end)


@router.get("/v1/sessions/{session_id}/calls/{call_id}")
def read_call(session_id: str, call_id: str, caller: Caller, services: ServicesDep) -> CallStatus:
    """Return a call's state, and its result once it has ended."""
    return _call_status(services, _find(services, caller.tenant_id, session_id, call_id))


@router.post("/v1/sessions/{session_id}/calls/{call_id}/cancel")
def cancel_call(session_id: str, call_id: str, caller: Caller, services: ServicesDep) -> Cancelled:
    """Cancel a call: a waiting one is denied at once, a running one is stopped by its worker."""
    found = _find(services, caller.tenant_id, session_id, call_id)
    place = (found.tenant_id, found.subject.session_id)
    done = services.pipeline.cancel(*place, found.identity.tool_call_id, f"{caller.name} cancelled it.")
    after = _find(services, caller.tenant_id, session_id, call_id)
    return Cancelled(cancelled=done, call=_call_status(services, after))


class _Submitted(NamedTuple):
    outcome: Outcome
    subject: Subject
    tool: str
    """Its dotted name."""
    joined: bool
    """Whether the call was made by an earlier request with the same key."""


def _submit(services: Services, caller: Principal, session_id: str, wanted: NewCall, key: str | None) -> _Submitted:
    """Submit the call as the caller, in a session that it opened.

    Raises:
        SessionUnknown: the caller has no such open session.
        Fault: the call can't be submitted.
    """
    subject = own_subject(services, caller, session_id)
    tool = services.registry.of(subject.tenant_id).resolve(wanted.tool).name
    joined = False
    if key is not None:
        with services.database.read() as connection:
            joined = store.find_by_client_id(connection, subject.session_id, key) is not None
    outcome = services.pipeline.submit(wanted.tool, wanted.input, subject, runtime_tool_call_id=key)
    return _Submitted(outcome, subject, tool, joined)


def _ended_status(tool: str, outcome: Denied | Finished) -> CallStatus:
    """The status of a call that has ended. Some denials leave no record, so it isn't read from there."""
    match outcome:
        case Denied():
            state, result = CallState.DENIED, ToolResult(text=outcome.message, is_error=True, code=outcome.code)
            retry_after_s = outcome.retry_after_s
        case Finished():
            state, result, retry_after_s = CallState.COMPLETED, outcome.result, None
    return CallStatus(
        tool_call_id=outcome.identity.tool_call_id,
        attempt=outcome.identity.attempt,
        tool=tool,
        input_hash=outcome.identity.input_hash,
        state=state,
        result=result,
        retry_after_s=retry_after_s,
    )


def _find(services: Services, tenant: TenantId, session: str, call: str) -> CallRecord:
    with services.database.read() as connection:
        found = store.find_in_scope(connection, store.CallScope(tenant, SessionId(session)), call)
    if found is None:
        raise CallUnknown(f"There is no call {call} in that session.")
    return found


def _call_status(services: Services, found: CallRecord) -> CallStatus:
    approval, waits_for = None, None
    if found.state is CallState.WAITING:
        outcome = services.pipeline.find(found.tenant_id, found.subject.session_id, found.identity.tool_call_id)
        if isinstance(outcome, Waiting):
            approval = outcome.approval_id
            waits_for = WaitsFor(
                who=outcome.who, rules=outcome.rules, reason=outcome.reason, expires_at=outcome.expires_at
            )
    return CallStatus(
        tool_call_id=found.identity.tool_call_id,
        attempt=found.identity.attempt,
        tool=found.call.name,
        input_hash=found.identity.input_hash,
        state=found.state,
        approval_id=approval,
        waits_for=waits_for,
        result=found.result,
    )
