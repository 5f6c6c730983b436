"""Tool calls over HTTP: status and cancellation."""

from __future__ import annotations

from codesdk.api.access import Caller, ServicesDep, guarded_router
from codesdk.bootstrap import Services
from codesdk.domain.calls import CallState
from codesdk.domain.ids import SessionId, TenantId, ToolCallId
from codesdk.domain.model import FrozenModel
from codesdk.domain.tool_results import ToolResult
from codesdk.errors import Fault
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import CallRecord, Waiting

router = guarded_router()


class CallUnknown(Fault):
    """No such call in that session of this tenant."""

    code = "CALL_UNKNOWN"
    status = 404


class WaitsFor(FrozenModel):
    """Whose answer, to what, until when."""

    who: str
    """Whose yes it takes, in words; the approval has it in parts."""
    rules: tuple[str, ...]
    """Ids of the rules that ask; none where the default or the session's mode does."""
    reason: str
    expires_at: float
    """Seconds since the epoch."""


class CallStatus(FrozenModel):
    """A call as it stands."""

    tool_call_id: ToolCallId
    attempt: int
    tool: str
    input_hash: str
    state: CallState
    approval_id: str | None = None
    """What a person is asked, while it waits for one."""
    waits_for: WaitsFor | None = None
    """What stands between it and its run, while it waits for people."""
    result: ToolResult | None = None
    """Once it has ended: what came out, or why it was denied."""


class Cancelled(FrozenModel):
    """What became of a cancel."""

    cancelled: bool
    """False: it had ended before."""
    call: CallStatus


@router.get("/v1/sessions/{session_id}/calls/{call_id}")
def read_call(session_id: str, call_id: str, caller: Caller, services: ServicesDep) -> CallStatus:
    """One call: its state, and its result once there is one."""
    return _call_status(services, _find(services, caller.tenant_id, session_id, call_id))


@router.post("/v1/sessions/{session_id}/calls/{call_id}/cancel")
def cancel_call(session_id: str, call_id: str, caller: Caller, services: ServicesDep) -> Cancelled:
    """End a call: one that waits is denied at once, one that runs is stopped by its worker."""
    found = _find(services, caller.tenant_id, session_id, call_id)
    place = (found.tenant_id, found.subject.session_id)
    done = services.pipeline.cancel(*place, found.identity.tool_call_id, f"{caller.name} cancelled it.")
    after = _find(services, caller.tenant_id, session_id, call_id)
    return Cancelled(cancelled=done, call=_call_status(services, after))


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
