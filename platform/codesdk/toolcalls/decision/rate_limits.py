"""How often rules let calls through: each call that gets through is a row, and the window before it is counted."""

from __future__ import annotations

from typing import NamedTuple

from codesdk.domain.calls import ToolCall
from codesdk.domain.decisions import Decision, Effect, RateScope, RuleRate
from codesdk.domain.subjects import Subject
from codesdk.storage.writer import Unit
from codesdk.toolcalls.decision import rate_limit_store


class RateExceeded(NamedTuple):
    """One rule's rate that a call would pass."""

    limit: RuleRate
    retry_after_s: float
    """Seconds until the window has room for one more."""


def admit(unit: Unit, call: ToolCall, subject: Subject, limits: tuple[RuleRate, ...]) -> RateExceeded | None:
    """Count the call under every rate, or under none where one of them has no room.

    The caller holds the tenant's row, so that nobody else counts at the same time.
    """
    for limit in limits:
        wait = rate_limit_store.wait_s(unit.connection, _rate_key(limit, subject), limit.rate)
        if wait is not None:
            return RateExceeded(limit, wait)
    for limit in limits:
        rate_limit_store.count(unit.connection, _rate_key(limit, subject), limit.rate, call.identity.tool_call_id)
    return None


def rate_denial(decision: Decision, limited: RateExceeded) -> Decision:
    """The denial in place of what policy said."""
    rule, rate = limited.limit.rule, limited.limit.rate
    often = f"{rate.calls} call{'s' * (rate.calls != 1)} in {rate.per} s for each {rate.by}"
    reason = f"The rule `{rule}` lets {often} through; try again in {limited.retry_after_s:.1f} s."
    return Decision(
        effect=Effect.DENY,
        rules=(rule,),
        rule_hashes={rule: decision.rule_hashes[rule]} if rule in decision.rule_hashes else {},
        reason=reason,
        bundle_hash=decision.bundle_hash,
    )


def _rate_key(limit: RuleRate, subject: Subject) -> rate_limit_store.RateKey:
    owners = {
        RateScope.SESSION: subject.session_id,
        RateScope.PRINCIPAL: subject.principal_id,
        RateScope.TENANT: subject.tenant_id,
    }
    return rate_limit_store.RateKey(limit.rule, owners[limit.rate.by])
