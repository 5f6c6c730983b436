"""Hosts as rows: registration, permitted writes, and silence."""

from __future__ import annotations

import pytest

from codesdk.eventlog.audit import INSTALLATION
from codesdk.eventlog.audit import store as audit_store
from codesdk.hosts import Capacity, HostService, HostState, HostUnknown, store
from codesdk.hosts.host import HostConflict
from codesdk.hosts.lease_watch import SOLE_HOST_LEASES, LeaseWatch
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.principal import Reach, Role
from codesdk.worker.ownership.registration import HostOffer, HostTaken, register

LEASE_S = 30.0
IMAGES = {"base": "sha256:" + "0" * 64}


@pytest.fixture
def hosts(stage):
    return HostService(stage.database, stage.writer, stage.clock)


@pytest.fixture
def operator(stage):
    return stage.enroll("hq", "ann", Role.OPERATOR, reach=Reach.INSTANCE)[0]


@pytest.fixture
def watch(stage):
    return LeaseWatch(stage.database, stage.writer, stage.clock, LEASE_S)


def enter(stage, name, **offer):
    return register(stage.writer, stage.ids, name, IMAGES, 0.0, offer=HostOffer(**offer))


def beat(stage, host):
    return stage.writer.run(lambda unit: store.record_heartbeat(unit.connection, host.id, host.generation))


def pass_time(stage, watch, seconds, beating=()):
    """As the watch sees it: a look each second."""
    lost = []
    for _ in range(int(seconds)):
        stage.clock.advance(1.0)
        for host in beating:
            beat(stage, host)
        lost += watch.look()
    return [host.name for host in lost]


def acts(stage):
    with stage.database.read() as connection:
        return [
            (entry.act, entry.actor, entry.target)
            for entry in audit_store.after(connection, INSTALLATION, 0, 100)
            if entry.act.startswith("host.")
        ]


def test_a_worker_enters_its_host_with_what_it_has(stage, hosts, operator):
    entered = enter(
        stage, "blue", engine="E1", labels={"zone": "a"}, capacity=Capacity(memory_bytes=5, millicpus=6, sessions=7)
    )
    found = hosts.find(operator, "blue")
    assert (found.id, found.engine, found.state, found.away) == (entered.id, "E1", HostState.ACTIVE, False)
    assert (found.capacity, found.labels) == (Capacity(memory_bytes=5, millicpus=6, sessions=7), {"zone": "a"})
    assert (found.images, found.sessions) == (IMAGES, 0)
    assert hosts.find(operator, found.id).name == "blue"


def test_a_host_says_for_how_long_it_was_not_heard(stage, hosts, operator):
    entered = enter(stage, "blue")
    assert hosts.find(operator, "blue").silent_s < 100
    stage.sql("UPDATE hosts SET heard_at = heard_at - 1000 WHERE name = 'blue'")
    assert 1000 <= hosts.find(operator, "blue").silent_s < 1100
    assert beat(stage, entered)
    assert hosts.find(operator, "blue").silent_s < 100
    stage.sql("UPDATE hosts SET heard_at = NULL")  # a worker of an older version
    assert hosts.find(operator, "blue").silent_s is None


def test_what_is_reserved_is_what_the_sessions_there_may_use(stage, hosts, operator):
    stage.open_session()
    found = hosts.find(operator, "local")
    assert found.sessions == 2
    assert found.reserved.memory_bytes == 2 * stage.profile.memory_bytes
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    assert hosts.find(operator, "local").sessions == 2  # until its sandbox is removed
    stage.sql("UPDATE sandboxes SET state = 'gone' WHERE state = 'closing'")
    assert hosts.find(operator, "local").sessions == 1


def test_one_name_is_one_engines(stage):
    enter(stage, "blue", engine="E1")
    assert enter(stage, "blue", engine="E1").generation == 2
    with pytest.raises(HostTaken, match="CODESDK_HOST_NAME"):
        enter(stage, "blue", engine="E2")


def test_one_engine_has_one_name(stage, hosts, operator):
    enter(stage, "blue", engine="E1")
    with pytest.raises(HostTaken, match="hosts lose blue"):
        enter(stage, "red", engine="E1")
    hosts.lose(operator, "blue")
    assert enter(stage, "red", engine="E1").generation == 1


def test_another_engine_takes_a_name_over_whose_worker_left_or_is_lost(stage, hosts, operator):
    first = enter(stage, "blue", engine="E1")
    stage.writer.run(lambda unit: store.mark_stopped(unit.connection, first.id, first.generation, 1.0))
    assert enter(stage, "blue", engine="E2").id == first.id
    hosts.lose(operator, "blue")
    enter(stage, "blue", engine="E3")
    assert hosts.find(operator, "blue").engine == "E3"


def test_a_heartbeat_counts_only_for_the_worker_that_has_the_host(stage):
    before, after = stage.host, stage.register()
    assert beat(stage, after)
    assert not beat(stage, before)


def test_a_silent_host_is_lost_after_its_lease_and_one_that_beats_is_not(stage, hosts, operator, watch):
    alive = enter(stage, "alive")
    assert pass_time(stage, watch, LEASE_S, beating=[alive]) == []
    assert pass_time(stage, watch, 1, beating=[alive]) == ["local"]
    assert [(each.name, each.state) for each in hosts.listing(operator)] == [
        ("alive", HostState.ACTIVE),
        ("local", HostState.LOST),
    ]
    assert acts(stage) == [("host.lost", "lease", "local")]
    assert pass_time(stage, watch, LEASE_S + 2, beating=[alive]) == []


def test_a_host_beside_which_no_other_is_heard_has_ten_leases(stage, watch):
    enter(stage, "silent too")
    drains = enter(stage, "drains")
    stage.sql("UPDATE hosts SET state = 'draining' WHERE name = 'drains'")
    assert pass_time(stage, watch, SOLE_HOST_LEASES * LEASE_S, beating=[drains]) == []
    assert sorted(pass_time(stage, watch, 1, beating=[drains])) == ["local", "silent too"]


def test_who_was_frozen_or_without_a_database_has_seen_nobodys_silence(stage, watch):
    watch.look()
    for _ in range(3):
        stage.clock.advance(1000.0)
        assert watch.look() == []


def test_a_beat_between_look_and_judgement_wins(stage, watch):
    pass_time(stage, watch, LEASE_S)
    (seen,) = [host for host in _known(stage) if host.id == stage.host.id]
    beat(stage, stage.host)
    assert not watch._lose(seen, LEASE_S)


def _known(stage):
    with stage.database.read() as connection:
        return store.list_all(connection)


def test_a_worker_that_was_stopped_in_order_is_not_judged(stage, hosts, operator, watch):
    stage.writer.run(lambda unit: store.mark_stopped(unit.connection, stage.host.id, 1, 1.0))
    assert pass_time(stage, watch, 3 * LEASE_S, beating=[enter(stage, "alive")]) == []
    assert hosts.find(operator, "local").away
    stage.register()
    assert not hosts.find(operator, "local").away


def test_without_a_lease_nobody_is_judged(stage):
    assert pass_time(stage, LeaseWatch(stage.database, stage.writer, stage.clock, 0.0), 1000) == []


def test_a_lost_hosts_worker_is_none_any_more_and_the_next_one_makes_it_active(stage, hosts, operator):
    lost = hosts.lose(operator, "local")
    assert (lost.state, lost.generation) == (HostState.LOST, 2)
    assert not beat(stage, stage.host)
    assert stage.register().generation == 3
    assert hosts.find(operator, "local").state is HostState.ACTIVE


def test_draining_outlives_the_worker_until_an_operator_ends_it(stage, hosts, operator):
    assert hosts.drain(operator, "local").state is HostState.DRAINING
    stage.register()
    assert hosts.drain(operator, "local").state is HostState.DRAINING
    assert hosts.activate(operator, "local").state is HostState.ACTIVE
    assert [act for act, _, _ in acts(stage)] == ["host.drained", "host.activated"]


def test_a_lost_host_is_neither_drained_nor_activated_by_hand(stage, hosts, operator):
    hosts.lose(operator, "local")
    hosts.lose(operator, "local")
    for verb in (hosts.drain, hosts.activate):
        with pytest.raises(HostConflict):
            verb(operator, "local")
    assert acts(stage) == [("host.lost", operator.id, "local")]


def test_hosts_are_for_operators_of_the_installation(stage, hosts, operator):
    tenants_own = stage.enroll("other", "eve", *Role)[0]
    auditor = stage.enroll("hq", "kim", Role.AUDITOR, reach=Reach.INSTANCE)[0]
    for verb in (lambda: hosts.listing(tenants_own), lambda: hosts.find(tenants_own, "local")):
        with pytest.raises(Forbidden):
            verb()
    assert hosts.listing(auditor)
    for verb in (hosts.drain, hosts.activate, hosts.lose):
        for caller in (tenants_own, auditor):
            with pytest.raises(Forbidden):
                verb(caller, "local")
    with pytest.raises(HostUnknown):
        hosts.drain(operator, "nowhere")


def test_a_host_says_how_many_calls_wait_and_run_there(stage, hosts, operator):
    for number in range(3):
        stage.pipeline.submit("workspace.read", {"path": str(number)}, stage.subject)
    stage.claims().take()
    for found in (hosts.find(operator, "local"), *hosts.listing(operator)):
        assert (found.queued_calls, found.running_calls) == (2, 1)
