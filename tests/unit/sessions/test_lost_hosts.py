"""Sessions of a lost host end once, with the reason, and release their resources."""

from __future__ import annotations

import pytest

from codesdk.domain.calls import CallState, DenialCode, IllegalTransition
from codesdk.domain.quotas import Resource
from codesdk.domain.tool_results import ToolResult
from codesdk.hosts import HostService, store
from codesdk.hosts.lease_watch import SOLE_HOST_LEASES, LeaseWatch
from codesdk.sessions.lost_hosts import LostHosts
from codesdk.tenancy.principal import Reach, Role
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied, Finished
from stage import stored_call

EXEC = ("workspace.exec", {"command": "x"})
WRITE = ("workspace.write", {"path": "a", "content": "b"})


@pytest.fixture
def lost_hosts(stage):
    watch = LeaseWatch(stage.database, stage.writer, stage.clock, 30.0)
    return LostHosts(watch=watch, sessions=stage.sessions, database=stage.database, writer=stage.writer, log=stage.log)


def give_up(stage):
    operator, _ = stage.enroll("hq", "ann", Role.OPERATOR, reach=Reach.INSTANCE)
    HostService(stage.database, stage.writer, stage.clock).lose(operator, "local")


def used(stage, resource):
    report = stage.quotas.report(stage.database, stage.principal.tenant_id)
    return next(quota.used for quota in report if quota.resource is resource)


def test_a_lost_hosts_sessions_end_with_their_calls_and_give_everything_back(stage, lost_hosts):
    running = stage.pipeline.submit(*EXEC, stage.subject)
    assert isinstance(stage.claims().take(), ClaimedCall)
    queued = stage.pipeline.submit(*EXEC, stage.subject)
    waiting = stage.pipeline.submit(*WRITE, stage.subject)
    give_up(stage)
    assert lost_hosts.tend() == 1
    session = stage.sessions.find(stage.principal.tenant_id, stage.session.id)
    assert (session.state, session.closed_reason) == ("closed", "host lost")
    ended = stage.find(running.identity.tool_call_id)
    assert isinstance(ended, Finished)
    assert (ended.result.is_error, ended.result.code) == (True, "WORKER_LOST")
    for outcome in (queued, waiting):
        denied = stage.find(outcome.identity.tool_call_id)
        assert isinstance(denied, Denied)
        assert (denied.code, denied.message) == (DenialCode.SESSION_CLOSED, "The session was closed: host lost.")
    assert stage.events()[-1].payload["reason"] == "host lost"
    assert stage.sql("SELECT state, reason FROM sandboxes") == [("gone", "host lost")]
    for resource in (Resource.SESSIONS, Resource.QUEUED_CALLS, Resource.RUNNING_CALLS, Resource.SANDBOX_MEMORY_BYTES):
        assert used(stage, resource) == 0
    with stage.database.read() as connection:
        assert store.find(connection, "local").sessions == 0
    assert lost_hosts.tend() == 0


def test_a_thawed_worker_of_a_lost_host_claims_nothing_and_ends_nothing(stage, lost_hosts):
    call = stage.pipeline.submit(*EXEC, stage.subject).identity.tool_call_id
    claims = stage.claims()
    claimed = claims.take()
    stage.pipeline.submit(*EXEC, stage.open_session())
    give_up(stage)
    assert claims.take() is None
    lost_hosts.tend()
    before = stage.events()
    with pytest.raises(IllegalTransition):
        stage.writer.run(
            lambda unit: complete(
                unit, stage.log, claimed, ToolResult(text="done"), result_ref=None, last_output=(), duration_ms=1.0
            )
        )
    assert claims.take() is None
    assert stage.events() == before
    assert stored_call(stage.database, call).state is CallState.COMPLETED


def test_silence_alone_ends_them_too(stage, lost_hosts):
    ended = []
    for _ in range(30 * SOLE_HOST_LEASES + 2):
        ended.append(lost_hosts.tend())
        stage.clock.advance(1.0)
    assert sum(ended) == 1


def test_a_sandbox_that_was_closing_there_is_gone_too(stage, lost_hosts):
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    assert stage.sql("SELECT state FROM sandboxes") == [("closing",)]
    give_up(stage)
    assert lost_hosts.tend() == 0
    assert stage.sql("SELECT state FROM sandboxes") == [("gone",)]


def test_a_host_that_came_back_first_keeps_its_sessions(stage, lost_hosts):
    give_up(stage)
    session = stage.sessions.find(stage.principal.tenant_id, stage.session.id)
    stage.register()
    assert not lost_hosts._end(session)
    assert lost_hosts.tend() == 0
    assert stage.sessions.find(stage.principal.tenant_id, session.id).state == "open"
