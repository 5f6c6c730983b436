"""How many questions one session, and one tenant, may put to people: so many in a minute, and so many that wait."""

from __future__ import annotations

from codesdk.domain.calls import DenialCode
from codesdk.domain.decisions import Decision, Effect, Rate, RateScope, RuleRate
from codesdk.domain.model import FrozenModel
from codesdk.domain.subjects import Subject
from codesdk.storage.writer import Unit
from codesdk.toolcalls.decision import rate_limit_store
from codesdk.toolcalls.decision.rate_limits import RateExceeded

APPROVAL_RATE = "(asks)"
"""Stands for all asks where a rule's id does for a rule's own rate; no rule can be called that."""
MINUTE_S = 60


class ApprovalLimits(FrozenModel):
    """The limits; 0 is none."""

    per_minute: int = 0
    """Of one session."""
    per_minute_of_tenant: int = 0
    waiting: int = 0
    """Calls of one session that wait for people at once."""

    def rates(self, decision: Decision) -> tuple[RuleRate, ...]:
        """All rates that a call counts under: those of its rules, and where it asks those of asking."""
        if decision.effect is not Effect.ASK:
            return decision.rates
        ours = ((self.per_minute, RateScope.SESSION), (self.per_minute_of_tenant, RateScope.TENANT))
        asked = (
            RuleRate(rule=APPROVAL_RATE, rate=Rate(calls=calls, per=MINUTE_S, by=by)) for calls, by in ours if calls
        )
        return (*decision.rates, *asked)

    def full(self, unit: Unit, subject: Subject, decision: Decision) -> bool:
        """Whether so many of the session's questions wait that it may not put another."""
        if decision.effect is not Effect.ASK or not self.waiting:
            return False
        return rate_limit_store.count_waiting(unit.connection, subject.session_id) >= self.waiting

    def refused(self, decision: Decision, limited: RateExceeded | None = None) -> Decision:
        """The denial in place of an ask. `limited`: the rate that it would pass; None: too many wait."""
        if limited is None:
            reason = f"{self.waiting} calls of this session wait for people already; wait until some are answered."
        else:
            rate = limited.limit.rate
            reason = (
                f"People are asked at most {rate.calls} times in {rate.per} s for each {rate.by}; "
                f"try again in {limited.retry_after_s:.1f} s."
            )
        return decision.model_copy(update={"effect": Effect.DENY, "reason": reason, "rates": (), "approval": None})


NO_APPROVAL_LIMITS = ApprovalLimits()


def denial_code(limited: RateExceeded | None) -> DenialCode:
    """What a refusal for that rate is called; None: too many questions wait."""
    own = limited is not None and limited.limit.rule != APPROVAL_RATE
    return DenialCode.RATE_LIMITED if own else DenialCode.TOO_MANY_QUESTIONS
