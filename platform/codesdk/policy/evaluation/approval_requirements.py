"""Merges the approval and grant settings of all rules that ask, so that each rule's requirements are met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from codesdk.domain.decisions import ApprovalSpec, Demand, Escalation, GrantKind, GrantOffer
from codesdk.policy.schema.models import Approval, Grant


def merge_approvals(written: Iterable[Approval | None]) -> ApprovalSpec:
    """One approval that satisfies every rule that asks; None stands for a rule without `approval`.

    The shortest timeout applies; `not_requester` applies if one rule has it; each group needs the largest quorum that any
    rule sets for it; the total is at least the largest quorum without a group.
    """
    told = [approval for approval in written if approval is not None]
    if not told:
        return ApprovalSpec()
    return ApprovalSpec(
        timeout_s=min(approval.timeout for approval in told),
        demands=_drop_implied([_demand(approval) for approval in told]),
        not_requester=any(approval.not_requester for approval in told),
        preview=any(approval.preview for approval in told),
    )


def merge_grants(written: Sequence[Grant | None]) -> GrantOffer | None:
    """The grant that every rule that asks offers; None if they share nothing beyond the one call."""
    told = [grant for grant in written if grant is not None]
    kinds = [kind for kind in GrantKind if told and all(kind in grant.offer for grant in told)]
    if len(told) < len(written) or not set(kinds) - {GrantKind.ONCE}:
        return None
    uses = [grant.max_uses for grant in told if grant.max_uses is not None]
    return GrantOffer(
        offer=tuple(kinds),
        max_ttl_s=min(grant.max_ttl for grant in told),
        max_uses=min(uses) if uses else None,
    )


def single_approver(spec: ApprovalSpec) -> bool:
    """Whether one vote can decide: only then can the approver give a grant."""
    return len(spec.demands) <= 1 and all(demand.quorum == 1 for demand in spec.demands)


def _demand(approval: Approval) -> Demand:
    later = approval.escalate
    return Demand(
        group=approval.group,
        quorum=approval.quorum,
        escalation=Escalation(after_s=later.after, to=later.to) if later else None,
    )


def _drop_implied(demands: Iterable[Demand]) -> tuple[Demand, ...]:
    """The demands that are not implied by others."""
    kept: dict[tuple[str | None, Escalation | None], Demand] = {}
    for demand in demands:
        place = (demand.group, demand.escalation)
        if place not in kept or kept[place].quorum < demand.quorum:
            kept[place] = demand
    most = max((demand.quorum for demand in kept.values() if demand.group is not None), default=1)
    return tuple(demand for demand in kept.values() if demand.group is not None or demand.quorum > most)
