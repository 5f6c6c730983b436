"""Who may serve an engine: a new worker kills only a hanging one, never one that sends heartbeats."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from itertools import count

import pytest

from codesdk.hosts import store
from codesdk.provision.system.process_identity import mark, pid_namespace
from codesdk.worker.ownership.registration import WorkerRunning, register
from codesdk.worker.ownership.takeover import Holder, Takeover, check_no_other_worker, is_dead, this_process

LEASE_S = 30.0
IMAGES = {"base": "sha256:" + "0" * 64}
HOLDING = "import fcntl, sys; f = open(sys.argv[1], 'a+'); fcntl.flock(f, 2); print(flush=True); sys.stdin.read()"


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "worker.lock"


@pytest.fixture
def process(lock):
    """Holds the lock until it is ended."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as made:
        assert made.stdout.readline() == b"\n"
        yield made
        made.kill()


def holder(process, **other):
    started = mark(process.pid).started
    return Holder(**{"instance": "ins", "pid": process.pid, "started": started, "space": pid_namespace(), **other})


def enter(stage, by, name="blue", check=lambda _held: None):
    return register(stage.writer, stage.ids, name, IMAGES, 0.0, holder=by.model_dump_json(), check=check)


def silence(stage, seconds=LEASE_S + 1):
    stage.sql(f"UPDATE hosts SET heard_at = heard_at - {seconds}")


def succession(stage, *, lease_s=LEASE_S, meanwhile=lambda: None):
    return Takeover(stage.database, "blue", lease_s, this_process("ins"), sleep=lambda _s: meanwhile())


def test_a_worker_that_hangs_is_ended_and_its_lock_taken(stage, process, lock):
    enter(stage, holder(process))
    silence(stage)
    with succession(stage).take(lock):
        assert mark(process.pid) is None
        with lock.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_one_that_was_heard_within_its_lease_is_left_alone(stage, process, lock):
    enter(stage, holder(process))
    silence(stage, LEASE_S - 10)
    with pytest.raises(WorkerRunning):
        succession(stage).take(lock)
    assert process.poll() is None


def test_one_that_beats_while_the_newcomer_looks_on_is_left_alone(stage, process, lock):
    entered = enter(stage, holder(process))
    silence(stage)

    def beat():
        stage.writer.run(lambda unit: store.record_heartbeat(unit.connection, entered.id, entered.generation))

    with pytest.raises(WorkerRunning):
        succession(stage, meanwhile=beat).take(lock)
    assert process.poll() is None


def test_where_silence_is_never_judged_nobody_is_ended(stage, process, lock):
    enter(stage, holder(process))
    silence(stage)
    with pytest.raises(WorkerRunning):
        succession(stage, lease_s=0.0).take(lock)
    assert process.poll() is None


@pytest.mark.parametrize("other", [{"started": 1}, {"space": "another machine"}, {"instance": "another"}])
def test_a_process_that_is_not_that_worker_is_left_alone(stage, process, lock, other):
    enter(stage, holder(process, **other))
    silence(stage)
    with pytest.raises(WorkerRunning):
        succession(stage).take(lock)
    assert process.poll() is None


def test_a_pid_that_was_given_to_another_process_meanwhile_is_left_alone(stage, process, lock):
    known = holder(process)
    enter(stage, known)
    silence(stage)
    reused = type(mark(process.pid))(known.pid, known.started - 1)
    assert not reused.kill()
    assert process.poll() is None


def test_where_nobody_tells_what_a_pid_means_nobody_is_ended_or_taken_for_dead(stage, process, lock):
    unknown = holder(process, space="")
    enter(stage, unknown)
    silence(stage)
    blind = Takeover(stage.database, "blue", LEASE_S, unknown.model_copy(update={"pid": 1}), sleep=lambda _s: None)
    with pytest.raises(WorkerRunning):
        blind.take(lock)
    assert process.poll() is None
    assert not is_dead(unknown.model_copy(update={"started": 1}), unknown.model_copy(update={"instance": "other"}))


def test_a_worker_that_did_not_say_who_it_is_is_left_alone(stage, process, lock):
    register(stage.writer, stage.ids, "blue", IMAGES, 0.0)
    silence(stage)
    with pytest.raises(WorkerRunning):
        succession(stage).take(lock)
    assert process.poll() is None


def follow(stage, by, lease_s=LEASE_S):
    return enter(stage, by, check=lambda held: check_no_other_worker(held, by, lease_s))


def test_a_second_worker_from_another_data_directory_does_not_serve_beside_one_that_is_heard(stage, process):
    first = enter(stage, holder(process))
    with pytest.raises(WorkerRunning, match="another data directory"):
        follow(stage, this_process("other"))
    assert stage.writer.run(lambda unit: store.record_heartbeat(unit.connection, first.id, first.generation))


def test_nor_from_another_machine_until_the_first_was_silent_for_its_lease(stage, process):
    enter(stage, holder(process, space="another machine"))
    silence(stage, LEASE_S - 10)
    with pytest.raises(WorkerRunning):
        follow(stage, this_process("other"))
    silence(stage, 11)
    assert follow(stage, this_process("other")).generation == 2


def test_where_silence_is_never_judged_the_first_has_half_a_minute(stage, process):
    enter(stage, holder(process))
    with pytest.raises(WorkerRunning):
        follow(stage, this_process("other"), lease_s=0.0)
    silence(stage)
    assert follow(stage, this_process("other"), lease_s=0.0).generation == 2


def test_who_holds_the_lock_of_a_data_directory_follows_its_worker_at_once(stage, process):
    enter(stage, holder(process, space="an older container"))
    assert follow(stage, this_process("ins")).generation == 2


def test_one_that_died_on_this_machine_is_followed_at_once(stage, process):
    enter(stage, holder(process))
    process.kill()
    process.wait(30)
    assert follow(stage, this_process("other")).generation == 2


def test_one_that_was_stopped_in_order_or_given_up_is_followed_at_once(stage, process):
    first = enter(stage, holder(process))
    stage.writer.run(lambda unit: store.mark_stopped(unit.connection, first.id, 1, 1.0))
    second = follow(stage, this_process("other"))
    enter(stage, holder(process))
    stage.writer.run(lambda unit: store.mark_lost(unit.connection, first.id, generation=second.generation + 1))
    assert follow(stage, this_process("other")).generation > second.generation


def test_one_whose_beats_the_database_refuses_is_left_alone_while_its_parts_come_round(stage, process, lock):
    sign = lock.parent / "worker.json"
    sign.touch()
    enter(stage, holder(process))
    silence(stage)
    looks = count(1)
    beating = Takeover(
        stage.database,
        "blue",
        LEASE_S,
        this_process("ins"),
        sign=sign,
        sleep=lambda _s: os.utime(sign, (0, next(looks))),
    )
    with pytest.raises(WorkerRunning):
        beating.take(lock)
    assert process.poll() is None
