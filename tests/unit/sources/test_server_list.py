"""Running MCP servers, as workers report them and operators see them."""

from __future__ import annotations

import pytest

from codesdk.hosts import store as host_store
from codesdk.sources.servers.server_list import ServerList, ServerReporter
from codesdk.sources.servers.server_status import ServerState, ServerStatus
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.principal import Reach, Role
from codesdk.worker.ownership.registration import register

SHARED = ServerStatus(source="fx", state=ServerState.RUNNING, since=5.0, restarts=1, reason="ended")


@pytest.fixture
def operator(stage):
    return stage.enroll("hq", "ann", Role.OPERATOR, reach=Reach.INSTANCE)[0]


@pytest.fixture
def roster(stage):
    return ServerList(stage.database)


@pytest.fixture
def host(stage):
    return register(stage.writer, stage.ids, "blue", {}, 0.0)


@pytest.fixture
def own(stage, host):
    return ServerReporter(stage.writer, host.id, host.generation)


def test_what_a_worker_has_is_seen_and_what_it_has_no_more_is_not(stage, roster, own, operator):
    subject = stage.subject
    theirs = ServerStatus(
        source="git", session_id=subject.session_id, tenant_id=subject.tenant_id, state=ServerState.STARTING
    )
    own.tell([SHARED, theirs])
    assert [(each.source, each.host, each.session_id, each.state) for each in roster.listing(operator)] == [
        ("fx", "blue", None, "running"),
        ("git", "blue", subject.session_id, "starting"),
    ]
    own.tell([SHARED])
    (found,) = roster.listing(operator)
    assert (found.since, found.restarts, found.reason) == (5.0, 1, "ended")


def test_nothing_is_written_where_nothing_changed(stage, roster, own, operator):
    own.tell([SHARED])
    stage.sql("DELETE FROM source_servers")
    own.tell([SHARED])
    assert roster.listing(operator) == []


def test_the_servers_of_a_worker_that_lost_its_host_are_none(stage, roster, own, host, operator):
    own.tell([SHARED])
    stage.writer.run(lambda unit: host_store.mark_lost(unit.connection, host.id, generation=host.generation))
    assert roster.listing(operator) == []
    own.tell([])
    own.tell([SHARED])  # it thaws, and says so: nobody hears it
    assert roster.listing(operator) == []


def test_the_servers_of_a_worker_that_was_stopped_in_order_are_none(stage, roster, own, host, operator):
    own.tell([SHARED])
    stage.writer.run(lambda unit: host_store.mark_stopped(unit.connection, host.id, host.generation, 1.0))
    assert roster.listing(operator) == []


def test_they_are_for_operators_and_auditors_of_the_installation(stage, roster):
    with pytest.raises(Forbidden):
        roster.listing(stage.enroll("other", "eve", *Role)[0])
    assert roster.listing(stage.enroll("hq", "kim", Role.AUDITOR, reach=Reach.INSTANCE)[0]) == []
