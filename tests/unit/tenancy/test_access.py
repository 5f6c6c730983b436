"""The access decision compared with a reference, which is a plain list."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.ids import PrincipalId, SessionId, TenantId
from codesdk.domain.subjects import Subject
from codesdk.tenancy.access import (
    PERMISSIONS,
    AccessAllowed,
    AccessDenied,
    Action,
    Forbidden,
    RefusalReason,
    Target,
    decide_access,
    may_attempt,
    require,
)
from codesdk.tenancy.principal import Principal, Reach, Role
from codesdk.tenancy.tenant import TenantUnknown

LETTERS = dict(
    zip("ODPAU", (Role.OPERATOR, Role.DEVELOPER, Role.POLICY_AUTHOR, Role.APPROVER, Role.AUDITOR), strict=True)
)
REFERENCE = """
tools.read         ODPAU
sessions.open      OD
sessions.read      ODAU
sessions.close     OD
sandboxes.turn     OD
events.read        ODAU
calls.make         OD     token
calls.read         ODAU
calls.cancel       OD
approvals.read     ODAU
approvals.decide   OA
grants.read        ODAU
grants.revoke      OA
policy.read        OPU
policy.decide      ODPU
policy.explain     OPU
policy.diff        OPU
policy.promote     OP
artifacts.write    OD
artifacts.read     ODAU
artifacts.delete   O
tenants.read       ODPAU  everywhere
tenants.manage     O      everywhere instance
principals.read    OU     everywhere
principals.manage  O      everywhere
keys.read          OU     everywhere
audit.read         OU     everywhere
keys.manage        O      everywhere
webhooks.read      OU
webhooks.manage    O
quotas.read        ODPAU  everywhere
quotas.set         O      everywhere instance
hosts.read         OU     instance
metrics.read       OU     instance
hosts.manage       O      instance
"""
"""Action, roles that may, and: `token` also takes a session's token; `everywhere` in any tenant with the reach of the
instance; `instance` only with that reach."""
TABLE = {words[0]: (words[1], set(words[2:])) for line in REFERENCE.split("\n") if (words := line.split())}
ROLE_SETS = [roles for size in range(len(Role) + 1) for roles in combinations(Role, size)]
OURS, THEIRS = TenantId("ten_ours"), TenantId("ten_theirs")
MINE, OTHER = SessionId("ses_mine"), SessionId("ses_other")


def principal(roles, reach=Reach.TENANT):
    return Principal(id=PrincipalId("prn"), tenant_id=OURS, name="x", roles=tuple(roles), reach=reach)


def subject(roles):
    return Subject(tenant_id=OURS, principal_id=PrincipalId("prn"), session_id=MINE, roles=tuple(roles))


def reference(caller, action, target):
    letters, marks = TABLE[action.value]
    by_token = isinstance(caller, Subject)
    far = not by_token and caller.reach is Reach.INSTANCE
    has_role = any(LETTERS[letter] in caller.roles for letter in letters)
    if (by_token and "token" not in marks) or not has_role or ("instance" in marks and not far):
        return "role"
    if target.tenant_id != OURS and not (far and "everywhere" in marks):
        return "unseen"
    if by_token and target.session_id != MINE:
        return "unseen"
    if target.reach is Reach.INSTANCE and not far:
        return "reach"
    return "allowed"


def said(decision):
    return decision.why.value if isinstance(decision, AccessDenied) else "allowed"


def test_every_decision_there_is_is_the_references():
    callers = [subject(roles) for roles in ROLE_SETS]
    callers += [principal(roles, reach) for roles, reach in product(ROLE_SETS, Reach)]
    targets = [
        Target(tenant_id=tenant, session_id=session, reach=reach)
        for tenant, session, reach in product((OURS, THEIRS), (None, MINE, OTHER), Reach)
    ]
    for caller, action, target in product(callers, Action, targets):
        assert said(decide_access(caller, action, target)) == reference(caller, action, target), (
            caller,
            action,
            target,
        )


def test_every_action_has_a_grant():
    assert set(PERMISSIONS) == set(Action)
    assert set(TABLE) == {action.value for action in Action}


@given(st.sampled_from(ROLE_SETS), st.sampled_from(Reach), st.sampled_from(Action))
def test_no_role_or_reach_opens_another_tenants_content(roles, reach, action):
    content = action.value.split(".")[0] in ("sessions", "events", "calls", "approvals", "artifacts")
    decision = decide_access(principal(roles, reach), action, Target(tenant_id=THEIRS))
    assert not (content and isinstance(decision, AccessAllowed))


@given(st.sampled_from(ROLE_SETS), st.sampled_from(ROLE_SETS), st.sampled_from(Action), st.sampled_from(Reach))
def test_a_further_role_takes_nothing_away(roles, more, action, reach):
    target = Target(tenant_id=OURS)
    if isinstance(decide_access(principal(roles, reach), action, target), AccessAllowed):
        assert isinstance(decide_access(principal({*roles, *more}, reach), action, target), AccessAllowed)


@given(st.sampled_from(ROLE_SETS), st.sampled_from(Reach), st.sampled_from(Action))
def test_what_is_refused_before_a_target_is_known_is_refused_for_every_target(roles, reach, action):
    ever = may_attempt(principal(roles, reach), action)
    for tenant, far in product((OURS, THEIRS), Reach):
        decision = decide_access(principal(roles, reach), action, Target(tenant_id=tenant, reach=far))
        if isinstance(ever, AccessDenied):
            assert decision == ever
        else:
            assert not (isinstance(decision, AccessDenied) and decision.why is RefusalReason.ROLE)


def test_without_roles_nothing_is_allowed():
    for caller, action in product((principal(()), principal((), Reach.INSTANCE), subject(())), Action):
        assert isinstance(decide_access(caller, action, Target(tenant_id=OURS, session_id=MINE)), AccessDenied)


def test_a_refusal_names_the_roles_that_would_do():
    decision = decide_access(principal([Role.AUDITOR]), Action.APPROVALS_DECIDE, Target(tenant_id=OURS))
    assert decision == AccessDenied(
        why=RefusalReason.ROLE, reason="None of your roles permits this; it needs one of: approver, operator."
    )


def test_what_is_not_to_be_seen_is_unknown_and_what_is_above_is_forbidden():
    unknown = TenantUnknown("There is no tenant x.")
    require(AccessAllowed(), unknown)
    with pytest.raises(TenantUnknown):
        require(AccessDenied(why=RefusalReason.NOT_VISIBLE, reason="r"), unknown)
    for why in (RefusalReason.ROLE, RefusalReason.REACH):
        with pytest.raises(Forbidden, match="r"):
            require(AccessDenied(why=why, reason="r"), unknown)
