from __future__ import annotations

import pytest

from codesdk.approvals import ApprovalConflict, ApprovalState, Verdict
from codesdk.artifacts import ArtifactUnknown
from codesdk.domain.calls import DenialCode
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import ArtifactId
from codesdk.sessions import NewSession, NoHost, SessionUnknown
from codesdk.toolcalls.records.call_record import Denied

WRITE = ("workspace.write", {"path": "a", "content": "b"})


def close(stage, session=None):
    return stage.sessions.close(stage.principal.tenant_id, (session or stage.session).id)


def sandbox_states(stage):
    return [row.state for row in stage.sql("SELECT state FROM sandboxes ORDER BY id")]


def test_a_session_opens_with_its_log_its_token_and_a_sandbox_on_the_way(stage):
    woken = []
    stage.wakeups.bind(stage.host.id, woken.append)
    wish = NewSession(permission_mode=PermissionMode.ASK, labels={"team": "x"}, runtime="codex")
    session, token = stage.sessions.open(stage.principal, wish)
    subject = stage.directory.subject(token)
    assert (subject.session_id, subject.permission_mode, subject.runtime) == (session.id, PermissionMode.ASK, "codex")
    assert subject.labels == {"team": "x"}
    (created,) = stage.events(subject)
    assert (created.type, created.seq, created.payload["contract_version"]) == ("session.created", 1, "1.0")
    assert created.payload["image"] == session.image
    assert sandbox_states(stage) == ["wanted", "wanted"]
    stage.writer.close()
    assert woken[-1] == session.id  # the stage's own session may be announced late


def test_tool_uids_differ_and_are_given_again_only_after_their_sandbox_is_gone(stage):
    stage.open_session()
    uids = [row.tool_uid for row in stage.sql("SELECT tool_uid FROM sandboxes")]
    assert len(set(uids)) == 2
    close(stage)
    stage.open_session()
    assert len({row.tool_uid for row in stage.sql("SELECT tool_uid FROM sandboxes")}) == 3
    stage.sql("UPDATE sandboxes SET state = 'gone' WHERE state = 'closing'")
    stage.open_session()
    assert stage.sql("SELECT count(*) FROM sandboxes WHERE tool_uid = :uid", uid=min(uids)) == [(2,)]


def test_without_a_host_that_has_the_image_no_session_opens(stage):
    stage.sql("UPDATE hosts SET images = '{}'")
    with pytest.raises(NoHost, match="codesdk up") as none:
        stage.sessions.open(stage.principal, NewSession())
    assert none.value.retryable
    assert len(stage.sessions.listing(stage.principal.tenant_id)) == 1


def test_another_tenants_seed_does_not_exist(stage):
    stranger, _ = stage.enroll("other", "eve")
    seed = stage.artifacts.put(b"tar", stranger.tenant_id, None, content_type="application/x-tar", name="seed.tar")
    stage.writer.run(lambda unit: stage.artifacts.record(unit, seed))
    for artifact in (seed.id, ArtifactId("art_none")):
        with pytest.raises(ArtifactUnknown):
            stage.sessions.open(stage.principal, NewSession(seed_artifact=artifact))


def test_another_tenants_session_does_not_exist(stage):
    stranger, _ = stage.enroll("other", "eve")
    for verb in (stage.sessions.find, stage.sessions.close):
        with pytest.raises(SessionUnknown) as unknown:
            verb(stranger.tenant_id, stage.session.id)
        assert unknown.value.status == 404
    assert stage.sessions.listing(stranger.tenant_id) == []
    assert stage.sessions.find(stage.principal.tenant_id, stage.session.id).state == "open"


def test_closing_ends_waiting_and_queued_calls_and_cancels_running_ones(stage):
    waiting = stage.pipeline.submit(*WRITE, stage.subject)
    running = stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    stage.claims().take()
    queued = stage.pipeline.submit("workspace.exec", {"command": "y"}, stage.subject)
    closed = close(stage)
    assert closed.state == "closed"
    for outcome in (waiting, queued):
        ended = stage.find(outcome.identity.tool_call_id)
        assert isinstance(ended, Denied)
        assert ended.code is DenialCode.SESSION_CLOSED
    assert stage.sql("SELECT id FROM tool_calls WHERE cancel_requested") == [(running.identity.tool_call_id,)]
    assert sandbox_states(stage) == ["closing"]
    assert stage.types()[-1] == "sandbox.session_closed"


def test_closing_twice_changes_nothing(stage):
    first = close(stage)
    before = stage.events()
    assert close(stage) == first
    assert stage.events() == before


def test_a_vote_on_a_closed_sessions_question_hears_that_it_was_cancelled(stage):
    waiting = stage.pipeline.submit(*WRITE, stage.subject)
    asked = stage.approval_service.find(stage.principal.tenant_id, waiting.approval_id)
    close(stage)
    assert stage.approval_service.find(asked.tenant_id, asked.id).state is ApprovalState.CANCELLED
    with pytest.raises(ApprovalConflict, match="cancelled"):
        stage.pipeline.vote(
            asked.tenant_id, asked.id, Verdict.APPROVE, digest=asked.digest, by=stage.principal.id, comment=None
        )


def test_a_closed_sessions_question_does_not_keep_others_from_expiring(stage):
    stage.pipeline.submit(*WRITE, stage.subject)
    other = stage.open_session()
    waiting = stage.pipeline.submit(*WRITE, other)
    close(stage)
    stage.sql("UPDATE approvals SET expires_at = 1")
    assert stage.expire_overdue() == 1
    assert stage.find(waiting.identity.tool_call_id).code is DenialCode.EXPIRED


def test_closing_one_session_leaves_the_others_alone(stage):
    other = stage.open_session()
    waiting = stage.pipeline.submit(*WRITE, other)
    close(stage)
    assert len(stage.pending()) == 1
    assert not isinstance(stage.find(waiting.identity.tool_call_id), Denied)
