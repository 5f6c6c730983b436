"""What policy says of a call, with what people have granted before."""

from __future__ import annotations

from codesdk.approvals import NO_COVERAGE, ApprovalService, GrantCoverage
from codesdk.domain.calls import ToolCall
from codesdk.domain.decisions import Decision, Effect
from codesdk.domain.subjects import Subject
from codesdk.policy import Bundle, decide
from codesdk.registry import Tool
from codesdk.storage.writer import Unit
from codesdk.toolcalls.approval.digest import grant_query_for
from codesdk.toolcalls.records import store


def apply_grants(
    unit: Unit,
    desk: ApprovalService,
    decision: Decision,
    *,
    call: ToolCall,
    tool: Tool,
    subject: Subject,
    bundle: Bundle,
) -> tuple[Decision, GrantCoverage]:
    """The decision where a grant changes it, else as it is; and which grant, or which ones were passed over."""
    if decision.effect is not Effect.ASK or decision.grant is None:
        return decision, NO_COVERAGE
    facts = store.session_facts(unit.connection, subject.session_id)
    granted = decide(call, tool, subject, bundle, granted=decision.rules)
    if facts is None or granted.effect is not Effect.ALLOW:
        return decision, NO_COVERAGE
    cover = desk.grants.find_covering(unit, grant_query_for(call, tool, facts, decision))
    return (granted if cover.grant is not None else decision), cover
