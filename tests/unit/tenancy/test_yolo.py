from __future__ import annotations

import pytest

from codesdk.domain.calls import DenialCode
from codesdk.domain.decisions import PermissionMode
from codesdk.errors import ExitCode
from codesdk.sessions import NewSession
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.tenancy.principal import Reach, Role
from codesdk.tenancy.tenant import TenantUnknown, YoloNotAllowed
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied, Queued, Waiting

YOLO = NewSession(permission_mode=PermissionMode.YOLO)
WRITE = ("workspace.write", {"path": "a", "content": "b"})
"""Asks, under the stage's policy."""


@pytest.fixture
def chief(stage):
    """An operator of the installation, of a tenant that is not the stage's."""
    return stage.enroll("hq", "chief", Role.OPERATOR, reach=Reach.INSTANCE)[0]


def allow(stage, chief, allowed=True):
    return stage.administration.allow_yolo(chief, stage.principal.tenant_id, allowed=allowed)


def test_a_session_in_yolo_is_refused_until_an_operator_of_the_installation_allows_it(stage, chief):
    before = stage.sessions.listing(stage.principal.tenant_id)
    with pytest.raises(YoloNotAllowed) as refused:
        stage.sessions.open(stage.principal, YOLO)
    assert (refused.value.code, refused.value.status) == ("YOLO_NOT_ALLOWED", 403)
    assert refused.value.exit_code is ExitCode.NO_PERMISSION
    assert f"codesdk tenants allow-yolo {stage.principal.tenant_id}" in refused.value.advice()
    assert stage.sessions.listing(stage.principal.tenant_id) == before
    assert allow(stage, chief).yolo
    subject = stage.open_session(permission_mode=PermissionMode.YOLO)
    assert subject.permission_mode is PermissionMode.YOLO
    assert isinstance(stage.pipeline.submit(*WRITE, subject), Queued)


def test_what_one_tenant_is_allowed_another_is_not(stage, chief):
    allow(stage, chief)
    stranger, _ = stage.enroll("other", "eve")
    with pytest.raises(YoloNotAllowed):
        stage.sessions.open(stranger, YOLO)


def test_a_session_of_before_the_allowance_was_taken_back_is_decided_as_in_auto(stage, chief):
    allow(stage, chief)
    session, token = stage.sessions.open(stage.principal, YOLO)
    allow(stage, chief, allowed=False)
    subject = stage.subject_of(token)
    assert subject.permission_mode is PermissionMode.AUTO
    assert isinstance(stage.pipeline.submit(*WRITE, subject), Waiting)
    assert stage.sessions.find(session.tenant_id, session.id).permission_mode is PermissionMode.YOLO
    allow(stage, chief)
    assert stage.subject_of(token).permission_mode is PermissionMode.YOLO


def test_a_queued_call_that_only_yolo_let_through_does_not_run_once_it_is_taken_back(stage, chief):
    allow(stage, chief)
    subject = stage.open_session(permission_mode=PermissionMode.YOLO)
    queued = stage.pipeline.submit(*WRITE, subject)
    allow(stage, chief, allowed=False)
    denied = stage.claims().take()
    assert isinstance(denied, Denied)
    assert (denied.identity, denied.code) == (queued.identity, DenialCode.POLICY)
    assert stage.claims().take() is None


def test_a_queued_call_runs_in_yolo_while_it_is_allowed(stage, chief):
    allow(stage, chief)
    queued = stage.pipeline.submit(*WRITE, stage.open_session(permission_mode=PermissionMode.YOLO))
    claimed = stage.claims().take()
    assert isinstance(claimed, ClaimedCall)
    assert claimed.stored.identity == queued.identity


@pytest.mark.parametrize("mode", [PermissionMode.ASK, PermissionMode.AUTO])
def test_the_other_modes_need_no_allowance(stage, mode):
    assert stage.open_session(permission_mode=mode).permission_mode is mode


def test_a_tenants_own_operator_cannot_allow_it_and_a_stranger_not_see_it(stage, chief):
    operator, _ = stage.enroll("default", "op", Role.OPERATOR)
    with pytest.raises(Forbidden):
        stage.administration.allow_yolo(operator, operator.tenant_id, allowed=True)
    with pytest.raises((Forbidden, TenantUnknown)):
        stage.administration.allow_yolo(operator, chief.tenant_id, allowed=True)
    assert not stage.administration.tenant(chief, operator.tenant_id).yolo


def test_where_the_installation_allows_it_tenants_that_are_made_have_it_and_the_others_keep_theirs(stage, chief):
    generous = IdentityDirectory(stage.database, stage.clock, stage.ids, quotas=stage.quotas, yolo=True)
    principal, _ = stage.writer.run(lambda unit: generous.enroll(unit, "new", "ann", (Role.DEVELOPER,)))
    assert stage.administration.tenant(chief, principal.tenant_id).yolo
    assert stage.open_session(principal, permission_mode=PermissionMode.YOLO).permission_mode is PermissionMode.YOLO
    assert not stage.administration.tenant(chief, stage.principal.tenant_id).yolo
