"""One engine; worker processes that die, hang or freeze while calls run; and their successors."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from codesdk.domain.invariants import first_violation
from codesdk.hosts import store as host_store
from hosts_stage import LEASE_S, PATIENT_S, site_of
from stage import read_whole

PRINTS = """\
echo run >> ran; i=0
more() { until=$((i + 500)); while [ $i -lt $until ]; do i=$((i + 1)); echo $i; done; }
for gate in 1 2 3; do more; while [ ! -e go$gate ]; do i=$((i + 1)); echo $i; sleep 0.2; done; done; more
"""
"""Counts up to about two thousand, so that a result shows all of it, and goes on at each gate when the test opens it; in between it prints now and then."""


@pytest.fixture(scope="module")
def site(tmp_path_factory, engine, sandbox_image, redis_url, postgres_server):
    root = tmp_path_factory.mktemp("succession")
    with site_of(root, {"one": engine.host}, sandbox_image, redis_url, postgres_server) as made:
        yield made


@pytest.mark.timeout(600)
def test_a_call_that_prints_ends_well_and_whole_when_one_worker_hands_it_back_and_the_next_is_killed(site):
    site.up("one")
    subject = site.open("one")
    call = site.submit(subject, PRINTS)
    site.wait(lambda: site.counted_to(subject) >= 500, "the first lines")

    site.workers["one"].terminate()
    assert site.workers["one"].wait(PATIENT_S) == 0
    assert site.runs(call)
    site.inside("one", subject, "touch go1")  # five hundred lines while there is no worker
    site.start("one")
    site.wait(lambda: site.counted_to(subject) >= 1000, "the lines of meanwhile")

    site.workers["one"].kill()
    site.workers["one"].wait(PATIENT_S)
    site.inside("one", subject, "touch go2")
    site.start("one")
    site.wait(lambda: site.counted_to(subject) >= 1500, "the lines of after the kill")
    site.inside("one", subject, "touch go3")

    ended = site.ended(call)
    assert (ended.identity.attempt, ended.result.is_error) == (1, False)
    told = ended.result.structured["stdout"]
    numbers = told.splitlines()
    assert len(numbers) > 2000
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert site.printed(subject) == told
    assert site.inside("one", subject, "cat ran") == "run\n"
    assert first_violation(read_whole(site.api.log, subject.session_id)) is None


@pytest.mark.timeout(600)
def test_a_worker_that_hangs_is_ended_by_the_next_one_which_has_the_whole_result_of_its_call(site):
    site.up("one")  # the only host: nobody gives it up meanwhile
    there = site.open("one")
    assert site.says(there, "true") == ""
    call = site.submit(there, "echo begun; sleep 15; echo ended; echo x >> runs")
    site.wait(lambda: site.runs(call), "the call to run")
    frozen = site.workers["one"]
    frozen.send_signal(signal.SIGSTOP)
    site.wait(lambda: (site.host("one").silent_s or 0) > LEASE_S, "its silence")
    site.start("one")
    assert frozen.wait(PATIENT_S) == -signal.SIGKILL
    ended = site.ended(call)
    assert (ended.result.is_error, ended.result.structured["stdout"]) == (False, "begun\nended\n")
    assert site.says(there, "cat runs") == "x\n"


@pytest.mark.timeout(600)
def test_a_worker_frozen_with_a_call_in_hand_and_one_about_to_start_changes_nothing_when_its_host_was_given_up(site):
    site.up("one")
    held, begun = site.open("one"), site.open("one")
    assert site.says(begun, "true") == ""
    in_hand = site.submit(held, "echo run >> ran; while [ ! -e go ]; do sleep 0.1; done; echo done")
    site.wait(lambda: site.runs(in_hand), "the call to run")
    site.wait(lambda: site.inside("one", held, "cat ran 2>/dev/null || true"), "its command to run")
    about_to = site.submit(begun, "echo run >> ran")
    site.workers["one"].send_signal(signal.SIGSTOP)
    waiting = site.submit(begun, "echo run >> ran")

    found = site.host("one")
    assert site.api.writer.run(
        lambda unit: host_store.mark_lost(unit.connection, found.id, generation=found.generation)
    )
    for subject in (held, begun):
        site.wait(
            lambda s=subject: site.api.lost_hosts.tend() or site.session(s).state == "closed", "its session to end"
        )
    assert site.ended(in_hand).result.code == "WORKER_LOST"
    before = [read_whole(site.api.log, subject.session_id) for subject in (held, begun)]
    ends = [site.ended(call) for call in (in_hand, about_to, waiting)]

    # The thawed one may remove its containers before it ends: what runs in them is told as long as they are there.
    with ThreadPoolExecutor(2) as pool:
        telling = [pool.submit(site.told_from_inside, "one", subject) for subject in (held, begun)]
        site.wait(lambda: all("watched" in site.inside("one", s, "ls") for s in (held, begun)), "both to be watched")
        ran_begun = site.inside("one", begun, "cat ran").count("run")
        site.inside("one", held, "touch go")  # its command ends: there is a result to write
        site.workers["one"].send_signal(signal.SIGCONT)
        assert site.workers["one"].wait(PATIENT_S) != 0
        assert [read_whole(site.api.log, subject.session_id) for subject in (held, begun)] == before
        assert [site.ended(call) for call in (in_hand, about_to, waiting)] == ends
        site.start("one")
        site.wait(lambda: site.containers("one") == [], "the leftovers to be swept")
        assert [said.result(PATIENT_S).count("run") for said in telling] == [1, ran_begun]
