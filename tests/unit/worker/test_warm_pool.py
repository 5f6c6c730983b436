from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from codesdk.sandbox.port.faults import EngineUnavailable
from codesdk.sandbox.profiles.loader import Profiles, ProfileUnknown
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.records import store
from codesdk.sessions import NewSession
from codesdk.worker.sandboxes.warm_pool import RETRY_S, PoolSpec, WarmPool, pool_specs

IMAGE = "sha256:" + "0" * 64


@pytest.fixture
def make_pool(stage, crew):
    def make(*, size=1, host=None, profile=None, image=IMAGE, specs=None):
        return WarmPool(
            sandboxes=crew.sandboxes,
            host=host or crew.host,
            instance="ins",
            database=stage.database,
            writer=stage.writer,
            clock=stage.clock,
            ids=stage.ids,
            specs=specs or [PoolSpec(profile=profile or stage.profile, image=image, size=size)],
        )

    return make


def rows(stage):
    return stage.sql("SELECT id, session_id, state, tool_uid FROM sandboxes WHERE session_id IS NULL ORDER BY id")


def of(stage, subject):
    ((id_, state),) = stage.sql("SELECT id, state FROM sandboxes WHERE session_id = :s", s=subject.session_id)
    return id_, state


def test_the_pool_fills_to_its_size_one_at_a_time_and_no_further(stage, crew, make_pool):
    pool = make_pool(size=2)
    counts = []
    for _ in range(4):
        pool.tend()
        counts.append(len(crew.sandboxes.living))
    assert counts == [1, 2, 2, 2]
    assert [row.state for row in rows(stage)] == ["pooled", "pooled"]


def test_a_pool_of_none_makes_none(stage, crew, make_pool):
    make_pool(size=0).tend()
    assert crew.sandboxes.living == ()


def test_a_session_claims_what_is_there_and_is_served_by_it(stage, crew, make_pool):
    make_pool().tend()
    (pooled,) = crew.sandboxes.living
    subject = stage.open_session()
    assert of(stage, subject) == (pooled, "wanted")
    assert crew.sandbox_registry.ready(subject.session_id).owner == pooled
    assert of(stage, subject) == (pooled, "ready")
    assert crew.sandboxes.living == (pooled,)
    assert stage.types(subject)[-1] == "sandbox.started"


def test_a_claimed_one_is_replaced(stage, crew, make_pool):
    pool = make_pool()
    pool.tend()
    stage.open_session()
    pool.tend()
    assert len(rows(stage)) == 1


def test_a_used_sandbox_never_returns_to_the_pool(stage, crew, make_pool):
    """deer-flow PR #4171, decocms PR #5846, OpenSandbox #743: what one session left, another found."""
    pool = make_pool()
    pool.tend()
    (pooled,) = crew.sandboxes.living
    subject = stage.open_session()
    crew.sandbox_registry.ready(subject.session_id)
    stage.sessions.close(subject.tenant_id, subject.session_id)
    crew.sandbox_registry.reconcile()
    pool.tend()
    assert pooled not in crew.sandboxes.living
    assert of(stage, subject) == (pooled, "gone")


def test_sessions_that_open_together_never_share_one(stage, crew, make_pool):
    pool = make_pool(size=3)
    for _ in range(3):
        pool.tend()
    start = threading.Barrier(8)

    def open_one(_):
        start.wait(10)
        return of(stage, stage.open_session())[0]

    with ThreadPoolExecutor(8) as threads:
        owners = list(threads.map(open_one, range(8)))
    assert len(set(owners)) == 8
    assert rows(stage) == []


def test_another_profile_or_image_is_not_claimed(stage, crew, make_pool):
    make_pool(profile=Profile(memory_bytes=64 << 20)).tend()
    make_pool(image="sha256:" + "1" * 64).tend()
    subject = stage.open_session()
    assert of(stage, subject)[0] not in crew.sandboxes.living


def test_tool_uids_of_pooled_and_wanted_sandboxes_are_all_different(stage, crew, make_pool):
    pool = make_pool(size=2)
    pool.tend()
    stage.open_session()
    pool.tend()
    pool.tend()
    uids = stage.sql("SELECT tool_uid FROM sandboxes WHERE state <> 'gone'")
    assert len(uids) == len({row.tool_uid for row in uids}) == 4


def test_the_next_worker_removes_what_an_earlier_ones_pool_left(stage, crew, make_pool):
    make_pool(size=2).tend()
    (old,) = crew.sandboxes.living
    later = make_pool(size=1, host=stage.register())
    later.tend()
    assert len(crew.sandboxes.living) == 1
    assert old not in crew.sandboxes.living


def test_a_worker_that_was_replaced_leaves_its_successors_sandboxes_alone(stage, crew, make_pool):
    earlier = make_pool(size=1)
    make_pool(size=1, host=stage.register()).tend()
    (newer,) = crew.sandboxes.living
    earlier.tend()
    assert newer in crew.sandboxes.living
    earlier.close()
    assert newer in crew.sandboxes.living


def test_after_an_upgrade_an_earlier_workers_sandbox_is_not_claimed(stage, crew, make_pool):
    make_pool().tend()
    (old,) = crew.sandboxes.living
    stage.register()  # the next generation; it has not tended its pool yet
    assert of(stage, stage.open_session())[0] != old


def test_what_a_changed_profile_no_longer_fits_is_removed(stage, crew, make_pool):
    make_pool().tend()
    (old,) = crew.sandboxes.living
    make_pool(profile=Profile(memory_bytes=64 << 20)).tend()
    assert old not in crew.sandboxes.living


def test_a_stopping_worker_drains_its_pool_and_leaves_sessions_alone(stage, crew, make_pool):
    pool = make_pool()
    pool.tend()
    subject = stage.open_session()
    taken = crew.sandbox_registry.ready(subject.session_id).owner
    pool.tend()
    pool.close()
    assert crew.sandboxes.living == (taken,)
    assert rows(stage) == []


def test_a_claim_wins_over_a_drain_that_comes_later(stage, crew, make_pool):
    pool = make_pool()
    pool.tend()
    (pooled,) = crew.sandboxes.living
    look = pool._rows

    def claimed_meanwhile():
        found = look()
        stage.open_session()
        return found

    pool._rows = claimed_meanwhile
    pool.close()
    assert crew.sandboxes.living == (pooled,)


def test_a_drain_wins_over_a_sandbox_that_is_just_being_made(stage, crew, make_pool):
    pool, other = make_pool(), make_pool()
    make = crew.sandboxes.open

    def drained_meanwhile(spec):
        other.close()
        return make(spec)

    crew.sandboxes.open = drained_meanwhile
    pool.tend()
    assert crew.sandboxes.living == ()
    assert rows(stage) == []
    assert stage.sql("SELECT count(*) AS n FROM sandboxes WHERE state = 'pooled'")[0].n == 0


def test_an_engine_that_is_away_is_not_asked_again_at_once_and_leaves_no_row(stage, crew, make_pool):
    pool = make_pool()
    crew.sandboxes.engine_down = True
    pool.tend()
    crew.sandboxes.engine_down = False
    pool.tend()
    assert crew.sandboxes.living == ()
    stage.clock.advance(RETRY_S)
    pool.tend()
    assert len(crew.sandboxes.living) == 1
    assert len(rows(stage)) == 1


def test_a_pooled_sandbox_that_died_is_made_anew_for_its_session(stage, crew, make_pool):
    make_pool().tend()
    (pooled,) = crew.sandboxes.living
    crew.sandboxes.crash(pooled)
    subject = stage.open_session()
    assert crew.sandbox_registry.ready(subject.session_id).owner == pooled
    assert "sandbox.failed" not in stage.types(subject)


def test_a_sweep_leaves_the_pool(stage, crew, make_pool):
    make_pool().tend()
    crew.sandbox_registry.sweep()
    assert len(crew.sandboxes.living) == 1


def test_a_session_closed_between_claim_and_first_use_takes_the_sandbox_with_it(stage, crew, make_pool):
    make_pool().tend()
    subject = stage.open_session()
    stage.sessions.close(subject.tenant_id, subject.session_id)
    crew.sandbox_registry.reconcile()
    assert crew.sandboxes.living == (of(stage, stage.subject)[0],)  # of the stage's own session, opened meanwhile
    assert of(stage, subject)[1] == "gone"


def test_one_that_cannot_be_removed_yet_is_removed_later(stage, crew, make_pool):
    pool = make_pool()
    pool.tend()
    (old,) = crew.sandboxes.living
    destroy = crew.sandboxes.destroy

    def away(owner):
        raise EngineUnavailable("fake://engine", owner)

    crew.sandboxes.destroy = away
    pool.close()
    with stage.database.read() as connection:
        (row,) = store.pool(connection, crew.host.id)
    assert row.state == "closing"
    crew.sandboxes.destroy = destroy
    pool.tend()
    assert old not in crew.sandboxes.living


SMALL = Profile(name="small", memory_bytes=64 << 20)


def test_each_profile_has_as_many_as_the_operator_says(stage, crew, make_pool):
    specs = [PoolSpec(profile=stage.profile, image=IMAGE, size=1), PoolSpec(profile=SMALL, image=IMAGE, size=2)]
    pool = make_pool(specs=specs)
    for _ in range(5):
        pool.tend()
    kept = [row.profile for row in stage.sql("SELECT profile FROM sandboxes WHERE state = 'pooled'")]
    assert sorted(map(kept.count, map(store.profile_text, (stage.profile, SMALL)))) == [1, 2]
    assert len(kept) == 3


def test_a_session_of_another_profile_claims_a_sandbox_of_that_profile(stage, crew, make_pool):
    stage.sessions._profiles = Profiles({"default": stage.profile, "small": SMALL})
    pool = make_pool(specs=[PoolSpec(profile=each, image=IMAGE, size=1) for each in (stage.profile, SMALL)])
    pool.tend()
    pool.tend()
    (small,) = stage.sql("SELECT id FROM sandboxes WHERE profile = :p", p=store.profile_text(SMALL))
    session, _ = stage.sessions.open(stage.principal, NewSession(profile="small"))
    (claimed,) = stage.sql("SELECT id, state FROM sandboxes WHERE session_id = :s", s=session.id)
    assert (claimed.id, claimed.state) == (small.id, "wanted")


def test_a_profile_that_does_not_open_holds_up_no_other(stage, crew, make_pool):
    crew.sandboxes.images = [IMAGE]
    missing = PoolSpec(profile=SMALL, image="sha256:" + "1" * 64, size=1)
    pool = make_pool(specs=[missing, PoolSpec(profile=stage.profile, image=IMAGE, size=1)])
    pool.tend()
    pool.tend()
    assert [row.state for row in rows(stage)].count("pooled") == 1


def test_sizes_name_profiles_that_exist_and_images_that_are_here():
    profiles = Profiles({"default": Profile(), "small": SMALL, "node": Profile(name="node", image="node")})
    found = pool_specs({"default": 0, "small": 2, "node": 1}, profiles, {"base": IMAGE})
    assert found == [PoolSpec(profile=SMALL, image=IMAGE, size=2)]
    with pytest.raises(ProfileUnknown, match="smal"):
        pool_specs({"smal": 1}, profiles, {"base": IMAGE})
