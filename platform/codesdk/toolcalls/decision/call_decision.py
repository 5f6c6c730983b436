"""Decides calls: policy, lost calls, grants and limits, in this order.

Every place that decides a call uses `CallDecisions`: the pipeline at submission, the worker's claim, the next attempt of
a lost call, and a deferred approval. Their differences are its named arguments.
"""

from __future__ import annotations

from typing import NamedTuple

from codesdk.approvals import NO_COVERAGE, ApprovalService, GrantCoverage
from codesdk.domain.calls import DenialCode, ToolCall
from codesdk.domain.decisions import (
    ApprovalSpec,
    Classification,
    Decision,
    Effect,
    PermissionMode,
    Rate,
    RateScope,
    RuleRate,
)
from codesdk.domain.ids import GrantId
from codesdk.domain.model import FrozenModel
from codesdk.domain.subjects import Subject
from codesdk.policy import BundleProvider, decide
from codesdk.registry import Tool
from codesdk.storage.writer import Unit
from codesdk.toolcalls.approval.digest import grant_query_for
from codesdk.toolcalls.decision import store as rate_store
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import SessionFacts

APPROVAL_RATE = "(asks)"
"""Rule name under which approval requests are counted; no rule can have it."""
MINUTE_S = 60
_NO_BACKGROUND = (
    "This session's profile has no background processes: what a command starts ends with it. Run the command with"
    " workspace.exec, together with what needs it."
)


class ApprovalLimits(FrozenModel):
    """How many approvals sessions and tenants may request; 0: no limit."""

    per_minute: int = 0
    """Of one session."""
    per_minute_of_tenant: int = 0
    waiting: int = 0
    """Calls of one session that wait for approval at once."""

    def rates(self, decision: Decision) -> tuple[RuleRate, ...]:
        """The rates under which the call counts: its rules', and for an ask those of approval requests."""
        if decision.effect is not Effect.ASK:
            return decision.rates
        ours = ((self.per_minute, RateScope.SESSION), (self.per_minute_of_tenant, RateScope.TENANT))
        asked = (
            RuleRate(rule=APPROVAL_RATE, rate=Rate(calls=calls, per=MINUTE_S, by=by)) for calls, by in ours if calls
        )
        return (*decision.rates, *asked)


NO_APPROVAL_LIMITS = ApprovalLimits()


class CallDecision(NamedTuple):
    """What policy, lost calls and grants say of a call."""

    decision: Decision
    cover: GrantCoverage = NO_COVERAGE
    """The grant that was found for it, and the grants that don't cover it."""
    used_grant: GrantId | None = None
    is_grant_void: bool = False
    """The grant that let the call through at submission doesn't any more."""


class Admission(NamedTuple):
    """A decision within the limits, or the denial in its place."""

    decision: Decision
    code: DenialCode = DenialCode.POLICY
    """Code of the denial, if it is one."""
    retry_after_s: float | None = None


class CallDecisions:
    """Decides calls. Safe to use from any thread."""

    def __init__(
        self, bundles: BundleProvider, approval_service: ApprovalService, limits: ApprovalLimits = NO_APPROVAL_LIMITS
    ) -> None:
        self._bundles = bundles
        self._grants = approval_service.grants
        self._limits = limits

    def by_policy(self, call: ToolCall, tool: Tool, subject: Subject) -> Decision:
        """What policy alone says."""
        return decide(call, tool, subject, self._bundles.of(subject.tenant_id, subject.policy_hash))

    def decide(
        self,
        unit: Unit,
        call: ToolCall,
        tool: Tool,
        subject: Subject,
        facts: SessionFacts,
        *,
        policy: Decision | None = None,
        check_lost: bool = False,
        find_grant: bool = False,
        use_grant: GrantId | None = None,
    ) -> CallDecision:
        """What policy, lost calls and grants say.

        `subject`: the caller, as policy sees it; `facts`: the session as it is now, which a grant must fit. `policy`: what
        policy says, if it was asked already. `check_lost`: require approval if an equal call was lost. `find_grant`: look
        for a grant that answers policy's ask. `use_grant`: the grant that was found at submission; it loses one use here.
        """
        bundle = self._bundles.of(subject.tenant_id, subject.policy_hash)
        by_policy = policy or decide(call, tool, subject, bundle)
        decision = require_approval_after_loss(unit, by_policy, call, tool, subject) if check_lost else by_policy
        is_grantable = use_grant is not None or (find_grant and decision.grant is not None)
        # After a loss no grant counts: it covers calls of a kind, and this one may have happened already.
        if decision.effect is not Effect.ASK or decision is not by_policy or not is_grantable:
            return CallDecision(decision)
        granted = decide(call, tool, subject, bundle, granted=decision.rules)
        query = grant_query_for(call, tool, facts, decision)
        if use_grant is not None:
            if granted.effect is Effect.ALLOW and self._grants.use(unit, use_grant, query):
                return CallDecision(granted, used_grant=use_grant)
            return CallDecision(decision, is_grant_void=True)
        if granted.effect is not Effect.ALLOW:
            return CallDecision(decision)
        cover = self._grants.find_covering(unit, query)
        return CallDecision(granted if cover.grant is not None else decision, cover)

    def admit(
        self, unit: Unit, call: ToolCall, subject: Subject, decision: Decision, *, tool: Tool, facts: SessionFacts
    ) -> Admission:
        """Count the call under its rates, or deny it: by the profile, a used-up rate, or too many waiting approvals.

        The caller holds the tenant's row, so no other process counts at the same time.
        """
        if tool.starts_background_process and not facts.profile.get("background_processes", True):
            return Admission(_deny_instead_of_asking(decision, _NO_BACKGROUND), DenialCode.NOT_IN_PROFILE)
        if decision.effect is Effect.ASK and self._too_many_waiting(unit, subject):
            waiting = self._limits.waiting
            reason = f"{waiting} calls of this session wait for people already; wait until some are answered."
            return Admission(_deny_instead_of_asking(decision, reason), DenialCode.TOO_MANY_QUESTIONS)
        limits = self._limits.rates(decision)
        for limit in limits:
            wait_s = rate_store.wait_s(unit.connection, _rate_key(limit, subject), limit.rate)
            if wait_s is not None:
                return _denied_by_rate(decision, limit, wait_s)
        for limit in limits:
            rate_store.count(unit.connection, _rate_key(limit, subject), limit.rate, call.identity.tool_call_id)
        return Admission(decision)

    def _too_many_waiting(self, unit: Unit, subject: Subject) -> bool:
        most = self._limits.waiting
        return bool(most) and rate_store.count_waiting(unit.connection, subject.session_id) >= most


def require_approval_after_loss(
    unit: Unit, decision: Decision, call: ToolCall, tool: Tool, subject: Subject
) -> Decision:
    """After a lost call, requires approval before an equal call runs: the lost one may have had side effects.

    Returns the same object if nothing was lost. A denial stays a denial; an ask keeps its demands, and no grant answers
    it. In mode `yolo`, which allows asks, the call is allowed, and the record says why it would have asked.
    """
    if decision.effect is Effect.DENY or tool.classification is Classification.READ_ONLY:
        return decision
    lost = store.describe_lost_equal(unit.connection, subject.session_id, call)
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


def _denied_by_rate(decision: Decision, limit: RuleRate, wait_s: float) -> Admission:
    rate = limit.rate
    if limit.rule == APPROVAL_RATE:
        reason = f"People are asked at most {rate.calls} times in {rate.per} s for each {rate.by}; "
        refused = _deny_instead_of_asking(decision, f"{reason}try again in {wait_s:.1f} s.")
        return Admission(refused, DenialCode.TOO_MANY_QUESTIONS, wait_s)
    often = f"{rate.calls} call{'s' * (rate.calls != 1)} in {rate.per} s for each {rate.by}"
    hashes = decision.rule_hashes
    refused = Decision(
        effect=Effect.DENY,
        rules=(limit.rule,),
        rule_hashes={limit.rule: hashes[limit.rule]} if limit.rule in hashes else {},
        reason=f"The rule `{limit.rule}` lets {often} through; try again in {wait_s:.1f} s.",
        bundle_hash=decision.bundle_hash,
    )
    return Admission(refused, DenialCode.RATE_LIMITED, wait_s)


def _deny_instead_of_asking(decision: Decision, reason: str) -> Decision:
    return decision.model_copy(update={"effect": Effect.DENY, "reason": reason, "rates": (), "approval": None})


def _rate_key(limit: RuleRate, subject: Subject) -> rate_store.RateKey:
    owners = {
        RateScope.SESSION: subject.session_id,
        RateScope.PRINCIPAL: subject.principal_id,
        RateScope.TENANT: subject.tenant_id,
    }
    return rate_store.RateKey(limit.rule, owners[limit.rate.by])
