"""Tenants, principals and keys: who may create and end them, and what stops working then."""

from __future__ import annotations

import logging

import pytest

from codesdk.domain.calls import DenialCode
from codesdk.domain.quotas import QuotaExceeded, Resource
from codesdk.sessions import NewSession
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.keys import KeyUnknown
from codesdk.tenancy.principal import (
    PrincipalKind,
    PrincipalTaken,
    PrincipalUnknown,
    Reach,
    Role,
    Unauthenticated,
)
from codesdk.tenancy.tenant import OwnTenant, TenantTaken, TenantUnknown


@pytest.fixture
def office(stage):
    return stage.administration


@pytest.fixture
def chief(stage):
    """An operator of the installation, of a tenant that is not the stage's."""
    return stage.enroll("hq", "chief", Role.OPERATOR, reach=Reach.INSTANCE)[0]


@pytest.fixture
def operator(stage):
    """The operator of the stage's tenant."""
    return stage.enroll("default", "op", Role.OPERATOR)[0]


def good(stage, key):
    try:
        return stage.directory.principal(key)
    except Unauthenticated:
        return None


# -- tenants ----------------------------------------------------------------------------------------------------------


def test_the_installations_operator_sees_all_tenants_and_a_tenants_operator_its_own(stage, office, chief, operator):
    assert [tenant.name for tenant in office.tenants(chief)] == ["default", "hq"]
    assert [tenant.name for tenant in office.tenants(operator)] == ["default"]
    assert office.tenant(operator, operator.tenant_id).name == "default"
    with pytest.raises(TenantUnknown) as foreign:
        office.tenant(operator, chief.tenant_id)
    with pytest.raises(TenantUnknown) as none:
        office.tenant(operator, "ten_none")
    assert foreign.value.message.replace(chief.tenant_id, "X") == none.value.message.replace("ten_none", "X")


def test_a_tenant_is_made_by_the_installations_operator_and_its_name_is_its_own(office, chief, operator):
    made = office.create_tenant(chief, "team")
    assert office.tenant(chief, made.id) == made
    with pytest.raises(TenantTaken, match="team"):
        office.create_tenant(chief, "team")
    with pytest.raises(Forbidden):
        office.create_tenant(operator, "mine")


def test_a_suspended_tenants_keys_and_tokens_stop_at_once_and_come_back(stage, office, chief):
    tenant = stage.principal.tenant_id
    held = stage.directory.principal(stage.api_key)
    since = office.suspend(chief, tenant).suspended_at
    assert since is not None
    assert good(stage, stage.api_key) is None
    assert not stage.directory.is_active(held)
    with pytest.raises(Unauthenticated):
        stage.directory.subject(stage.token)
    stage.clock.advance(5)
    assert office.suspend(chief, tenant).suspended_at == since
    assert office.resume(chief, tenant).suspended_at is None
    assert good(stage, stage.api_key) == held
    assert stage.directory.is_active(held)
    assert stage.directory.subject(stage.token).session_id == stage.session.id


def test_a_suspended_tenants_queued_call_is_denied_with_the_reason_and_the_others_run(stage, office, chief):
    stranger, _ = stage.enroll("other", "eve")
    theirs = stage.open_session(stranger)
    ours = stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    stage.pipeline.submit("workspace.exec", {"command": "y"}, theirs)
    office.suspend(chief, stage.principal.tenant_id)
    denied = stage.claims().take()
    assert (denied.code, denied.identity) == (DenialCode.SUSPENDED, ours.identity)
    assert "suspended" in denied.message
    assert stage.types()[-1] == "tool.call.denied"
    assert stage.claims().take().stored.subject == theirs


def test_nobody_suspends_its_own_tenant_and_no_tenants_operator_any(stage, office, chief, operator):
    with pytest.raises(OwnTenant):
        office.suspend(chief, chief.tenant_id)
    with pytest.raises(Forbidden):
        office.suspend(operator, operator.tenant_id)
    with pytest.raises(Forbidden):
        office.suspend(operator, chief.tenant_id)
    with pytest.raises(TenantUnknown):
        office.suspend(chief, "ten_none")


# -- principals -------------------------------------------------------------------------------------------------------


def test_an_operator_makes_principals_of_its_tenant_and_sees_no_others(stage, office, operator, chief):
    made = office.create_principal(operator, operator.tenant_id, "ci", (Role.DEVELOPER,), kind=PrincipalKind.PROGRAM)
    assert office.principal(operator, made.id) == made
    assert (made.kind, made.roles, made.reach, made.disabled_at) == ("program", (Role.DEVELOPER,), "tenant", None)
    assert [each.name for each in office.principals(operator, operator.tenant_id)] == ["dev", "op", "ci"]
    with pytest.raises(PrincipalUnknown):
        office.principal(operator, chief.id)
    with pytest.raises(TenantUnknown):
        office.principals(operator, chief.tenant_id)
    with pytest.raises(TenantUnknown):
        office.create_principal(operator, chief.tenant_id, "spy", (Role.AUDITOR,))


def test_a_name_is_one_principals_until_it_is_disabled(office, operator):
    made = office.create_principal(operator, operator.tenant_id, "ci", (Role.DEVELOPER,))
    with pytest.raises(PrincipalTaken):
        office.create_principal(operator, operator.tenant_id, "ci", (Role.AUDITOR,))
    office.disable(operator, made.id)
    assert office.create_principal(operator, operator.tenant_id, "ci", (Role.AUDITOR,)).id != made.id


def test_of_many_who_want_one_name_at_once_one_gets_it(office, operator, at_once):
    def one(_number):
        try:
            return office.create_principal(operator, operator.tenant_id, "ci", (Role.DEVELOPER,))
        except PrincipalTaken:
            return None

    assert sum(made is not None for made in at_once(one, 8)) == 1


def test_a_disabled_principals_keys_and_tokens_stop_at_once(stage, office, operator):
    held = stage.directory.principal(stage.api_key)
    stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    since = office.disable(operator, stage.principal.id).disabled_at
    assert since is not None
    assert good(stage, stage.api_key) is None
    assert not stage.directory.is_active(held)
    with pytest.raises(Unauthenticated):
        stage.directory.subject(stage.token)
    assert stage.claims().take().code is DenialCode.SUSPENDED
    stage.clock.advance(5)
    assert office.disable(operator, stage.principal.id).disabled_at == since


def test_a_tenants_operator_gains_nothing_through_one_of_the_installation_in_its_tenant(stage, office, operator):
    above, key = stage.enroll("default", "chief", Role.OPERATOR, reach=Reach.INSTANCE)
    for attempt in (
        lambda: office.create_key(operator, above.id, "mine"),
        lambda: office.revoke_key(operator, above.key_id),
        lambda: office.disable(operator, above.id),
        lambda: office.create_principal(operator, operator.tenant_id, "me", (Role.OPERATOR,), reach=Reach.INSTANCE),
    ):
        with pytest.raises(Forbidden, match="whole installation"):
            attempt()
    assert good(stage, key) == above
    assert above.id in [each.id for each in office.principals(operator, operator.tenant_id)]
    office.create_key(above, above.id, "second")


# -- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_is_shown_once_and_recognised_by_its_beginning(stage, office, operator):
    made = office.create_key(operator, stage.principal.id, "laptop")
    assert good(stage, made.secret).id == stage.principal.id
    assert made.secret.startswith(made.key.prefix)
    assert len(made.secret) - len(made.key.prefix) == 37
    listed = office.keys(operator, operator.tenant_id)
    assert made.secret not in repr(listed)
    assert made.key.id in [each.id for each in listed]


def test_a_revoked_key_stops_at_once_and_its_principals_others_go_on(stage, office, operator):
    made = office.create_key(operator, stage.principal.id, "laptop")
    held = stage.directory.principal(made.secret)
    since = office.revoke_key(operator, made.key.id).revoked_at
    assert good(stage, made.secret) is None
    assert not stage.directory.is_active(held)
    assert stage.directory.is_active(stage.directory.principal(stage.api_key))
    stage.clock.advance(5)
    assert office.revoke_key(operator, made.key.id).revoked_at == since


def test_a_key_expires_by_the_databases_clock(stage, office, operator):
    made = office.create_key(operator, stage.principal.id, "short", 60.0)
    held = stage.directory.principal(made.secret)
    ((left,),) = stage.sql(f"SELECT expires_at - {stage.now} FROM api_keys WHERE id = :id", id=made.key.id)
    assert 50 < left <= 60
    stage.clock.advance(10**6)
    assert good(stage, made.secret) == held
    stage.sql(f"UPDATE api_keys SET expires_at = {stage.now} - 0.001 WHERE name = 'short'")
    assert good(stage, made.secret) is None
    assert not stage.directory.is_active(held)


def test_another_tenants_key_does_not_exist(office, operator, chief):
    for verb, thing, fault in (
        (office.revoke_key, chief.key_id, KeyUnknown),
        (office.revoke_key, "key_none", KeyUnknown),
        (office.disable, chief.id, PrincipalUnknown),
        (office.disable, "prn_none", PrincipalUnknown),
    ):
        with pytest.raises(fault):
            verb(operator, thing)
    with pytest.raises(PrincipalUnknown):
        office.create_key(operator, chief.id, "mine")
    with pytest.raises(TenantUnknown):
        office.keys(operator, chief.tenant_id)


def test_the_installations_operator_administers_every_tenant(office, chief, operator):
    made = office.create_tenant(chief, "team")
    first = office.create_principal(chief, made.id, "ann", (Role.OPERATOR,))
    key = office.create_key(chief, first.id, "first")
    assert [each.id for each in office.keys(chief, made.id)] == [key.key.id]
    assert office.revoke_key(chief, key.key.id).revoked_at is not None
    assert office.disable(chief, first.id).disabled_at is not None


def test_keys_have_a_quota(stage, office, operator):
    stage.limit(Resource.API_KEYS, 2)
    with pytest.raises(QuotaExceeded):
        office.create_key(operator, stage.principal.id, "third")
    assert len(office.keys(operator, operator.tenant_id)) == 2


def test_limits_are_the_installations_to_set_and_everybodys_to_see(stage, office, chief, operator):
    tenant = stage.principal.tenant_id
    with pytest.raises(Forbidden):
        office.set_limits(operator, tenant, {Resource.SESSIONS: 99})
    with pytest.raises(TenantUnknown):
        office.quotas(operator, chief.tenant_id)
    office.set_limits(chief, tenant, {Resource.SESSIONS: 1})
    seen = {quota.resource: quota for quota in office.quotas(stage.principal, tenant)}
    assert (seen[Resource.SESSIONS].limit, seen[Resource.SESSIONS].used) == (1, 1)
    with pytest.raises(QuotaExceeded):
        stage.sessions.open(stage.principal, NewSession())


def test_the_last_use_of_a_key_is_known_to_the_hour(stage, office, operator):
    def last():
        return next(k.last_used_at for k in office.keys(operator, operator.tenant_id) if k.name == "dev")

    assert last() is None
    stage.clock.advance(4000)
    stage.directory.principal(stage.api_key)
    first = last()
    assert first % 3600 == 0
    assert 0 <= stage.clock.now().timestamp() - first < 3600
    stage.clock.advance(60)
    stage.directory.principal(stage.api_key)
    assert last() == first
    stage.clock.advance(3600)
    stage.directory.principal(stage.api_key)
    assert last() == first + 3600


def test_a_key_opens_the_door_where_its_use_cannot_be_noted(stage, caplog):
    stage.writer.close()
    with caplog.at_level(logging.WARNING):
        assert stage.directory.principal(stage.api_key).id == stage.principal.id
    assert "could not record the use" in caplog.text
    assert stage.api_key not in caplog.text
