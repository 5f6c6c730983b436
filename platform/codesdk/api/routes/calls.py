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


class Cancelled(FrozenModel):
    """The outcome of a cancellation."""

    cancelled: bool
    """False: the call had already ended."""
    call: CallStatus


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
