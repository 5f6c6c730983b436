"""A call that was lost may have taken effect: the same call again asks a person, whatever rules and grants let through."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, exists, func, select

from codesdk.domain.calls import CallState, ToolCall
from codesdk.domain.decisions import ApprovalSpec, Classification, Decision, Effect, PermissionMode
from codesdk.domain.subjects import Subject
from codesdk.registry import Tool
from codesdk.storage.schema import tool_calls

_later = tool_calls.alias("later")
_INDETERMINATE = (
    select(tool_calls.c.id, func.count().over().label("together"))
    .where(
        tool_calls.c.session_id == bindparam("session"),
        tool_calls.c.doubtful,
        tool_calls.c.name == bindparam("name"),
        tool_calls.c.input_hash == bindparam("input_hash"),
        ~exists().where(
            _later.c.session_id == tool_calls.c.session_id,
            _later.c.state == CallState.COMPLETED.value,
            _later.c.name == tool_calls.c.name,
            _later.c.input_hash == tool_calls.c.input_hash,
            _later.c.doubtful.is_(False),
            _later.c.requested_at >= tool_calls.c.finished_at,
        ),
    )
    .order_by(tool_calls.c.finished_at, tool_calls.c.id)
    .limit(1)
)
"""The first such call of the session since which the same call has not run to an end that is known; and how many there are."""


def require_approval_if_indeterminate(
    connection: Connection, call: ToolCall, tool: Tool, subject: Subject, decision: Decision
) -> Decision:
    """The decision as it stands where the same call was lost; else as it is.

    A denial stays one. An allow becomes an ask, an ask keeps its demands, and no grant answers it: a grant is about calls
    of a kind, and this is about one that may have happened. In the mode `yolo`, where asks are allowed, this one is too,
    and the record says why it would have been asked.
    """
    if decision.effect is Effect.DENY or tool.classification is Classification.READ_ONLY:
        return decision
    lost = describe_indeterminate_duplicates(connection, call, subject)
    if lost is None:
        return decision
    reason = f"Whether the same call took effect before is unknown: it was lost, or not answered in time ({lost})."
    if decision.effect is Effect.ALLOW and subject.permission_mode is PermissionMode.YOLO:
        return decision.model_copy(update={"reason": f"The session's mode `yolo` allows what would be asked: {reason}"})
    if decision.effect is Effect.ASK:
        reason = f"{decision.reason} {reason}"
    spec = decision.approval or ApprovalSpec()
    asks = {"effect": Effect.ASK, "reason": reason, "approval": spec, "grant": None, "doubt": lost}
    return decision.model_copy(update=asks)


def describe_indeterminate_duplicates(connection: Connection, call: ToolCall, subject: Subject) -> str | None:
    """Which same calls of this session were lost, since which none has run to a known end; None: there is none."""
    sought = {"session": subject.session_id, "name": call.name, "input_hash": call.identity.input_hash}
    row = connection.execute(_INDETERMINATE, sought).one_or_none()
    if row is None:
        return None
    return f"{row.id} and {row.together - 1} more" if row.together > 1 else str(row.id)
