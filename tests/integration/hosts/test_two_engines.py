"""Two engines of one machine, a worker process each: placement, kills, events, losses, reopening, draining, freezing.

The module shares one stage, in the order of the file: engines are slow.
"""

from __future__ import annotations

import signal
import time

import pytest

from codesdk.hosts import HostState
from codesdk.hosts import store as host_store
from codesdk.sessions import NoHost
from hosts_stage import LEASE_S, PATIENT_S, site_of


@pytest.fixture(scope="module")
def engines(engine, gvisor_engine):
    return {"one": engine.host, "two": gvisor_engine.host}


@pytest.fixture(scope="module")
def site(tmp_path_factory, engines, sandbox_image, redis_url, postgres_server):
    root = tmp_path_factory.mktemp("two-engines")
    with site_of(root, engines, sandbox_image, redis_url, postgres_server) as made:
        yield made


@pytest.mark.timeout(600)
def test_two_engines_share_the_sessions_and_one_of_them_can_die(site, record_property):
    for name in ("one", "two"):
        site.start(name)
    assert len({site.host(name).engine for name in ("one", "two")}) == 2

    # Placed by labels where they are asked for, and else where there are fewer.
    doomed = site.open("two", snapshots=True)
    steady = site.open()
    assert site.session(doomed).host_id == site.host("two").id
    assert site.session(steady).host_id == site.host("one").id
    assert site.says(steady, "echo one") == "one\n"
    assert site.says(doomed, "echo kept > file; cat file") == "kept\n"
    site.wait(lambda: site.session(doomed).snapshot_artifact, "a snapshot")

    # A worker dies as the kernel kills it, with a call under way and nobody who comes back.
    running = site.submit(doomed, "sleep 600")
    site.wait(lambda: site.runs(running), "the call to run")
    site.workers["two"].kill()
    site.workers["two"].wait(PATIENT_S)
    killed_at = time.monotonic()
    queued = site.submit(doomed, "echo never")

    def tend():
        site.api.lost_hosts.tend()
        return site.session(doomed).state == "closed"

    site.wait(tend, "the lost host's session to end")
    seconds = time.monotonic() - killed_at
    record_property("seconds_to_lost", round(seconds, 1))
    assert seconds < LEASE_S + 30
    assert site.session(doomed).closed_reason == "host lost"
    assert site.ended(running).result.code == "WORKER_LOST"
    assert site.ended(queued).code == "SESSION_CLOSED"
    lost = site.host("two")
    assert (lost.state, lost.sessions, lost.reserved.memory_bytes) == (HostState.LOST, 0, 0)
    with pytest.raises(NoHost):
        site.open("two")
    assert site.says(steady, "echo still") == "still\n"

    # Its files go on on the other engine.
    again = site.open(from_session=doomed.session_id)
    assert site.session(again).host_id == site.host("one").id
    assert site.says(again, "cat file") == "kept\n"

    # When it comes back, what was left there is gone before it serves, and it is a host like any other.
    assert len(site.containers("two")) == 1
    site.start("two")
    site.wait(lambda: site.containers("two") == [], "the leftovers to be swept")
    assert site.host("two").state is HostState.ACTIVE
    back = site.open("two")
    assert site.says(back, "ls") == ""


@pytest.mark.timeout(600)
def test_a_worker_that_was_frozen_while_its_host_was_given_up_starts_nothing_and_ends(site):
    frozen = site.open("two")
    assert site.says(frozen, "true") == ""
    site.workers["two"].send_signal(signal.SIGSTOP)
    call = site.submit(frozen, "touch ran")
    found = site.host("two")
    assert site.api.writer.run(
        lambda unit: host_store.mark_lost(unit.connection, found.id, generation=found.generation)
    )
    site.wait(lambda: site.api.lost_hosts.tend() or site.session(frozen).state == "closed", "its session to end")
    before = [event.type for event in site.api.log.read(frozen.session_id)]
    site.workers["two"].send_signal(signal.SIGCONT)
    assert site.workers["two"].wait(PATIENT_S) != 0
    assert "HOST_GONE" in site.log("two")
    assert site.ended(call).code == "SESSION_CLOSED"
    assert [event.type for event in site.api.log.read(frozen.session_id)] == before
    site.start("two")
    site.wait(lambda: site.containers("two") == [], "the leftovers to be swept")


@pytest.mark.timeout(600)
def test_a_draining_host_takes_no_session_and_finishes_its_own(site):
    there = site.open("two")
    assert site.says(there, "echo before") == "before\n"
    assert site.api.writer.run(
        lambda unit: host_store.set_state(unit.connection, site.host("two").id, HostState.ACTIVE, HostState.DRAINING)
    )
    with pytest.raises(NoHost) as refused:
        site.open("two")
    assert refused.value.details == {"missing": {"draining": 1, "labels": 1}}
    assert site.says(there, "echo after") == "after\n"
    site.api.sessions.close(there.tenant_id, there.session_id)
    site.wait(lambda: site.host("two").sessions == 0, "its last session to be gone")
    # Stopped in order it is away: not lost, whatever the time.
    site.workers["two"].terminate()
    assert site.workers["two"].wait(PATIENT_S) == 0
    assert (site.host("two").state, site.host("two").away) == (HostState.DRAINING, True)
