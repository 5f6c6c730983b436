"""Tenants are served in turn, and a session runs up to its limit at once."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codesdk.domain.quotas import Resource
from codesdk.domain.tool_results import ToolResult
from codesdk.storage.faults import StorageUnavailable
from codesdk.storage.migration import downgrade, upgrade
from codesdk.tenancy.principal import Reach, Role
from codesdk.toolcalls.claim import InFlightCalls
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.records.call_record import ClaimedCall
from codesdk.toolcalls.retries.lost_calls import Loss

READ = "workspace.read"
EXEC = "workspace.exec"


def submit(stage, subject, number=0, tool=READ):
    given_input = {"path": str(number)} if tool == READ else {"command": f"echo {number}"}
    return stage.pipeline.submit(tool, given_input, subject).identity.tool_call_id


def tenant(stage, name, calls=0, **wish):
    principal, _ = stage.enroll(name, "dev")
    subject = stage.open_session(principal, parallel_calls=64, **wish)
    for number in range(calls):
        submit(stage, subject, number)
    return subject


def finish(stage, claimed):
    stage.writer.run(
        lambda unit: complete(
            unit, stage.log, claimed, ToolResult(text="ok"), result_ref=None, last_output=(), duration_ms=1.0
        )
    )


def refused_after(run):
    """A writer's `run` whose work is done, and then undone, since the database went away."""

    def work(unit_of_work):
        def undone(unit):
            unit_of_work(unit)
            raise StorageUnavailable("the database is away")

        return run(undone)

    return work


def take(stage, *, most=1000):
    """Whose calls are taken, in order, each ended at once."""
    claims, order = stage.claims(), []
    while len(order) < most and isinstance(taken := claims.take(), ClaimedCall):
        order.append(taken.stored.tenant_id)
        finish(stage, taken)
    return order


def set_weight(stage, subject, weight):
    operator, _ = stage.enroll("ops", "op", Role.OPERATOR, reach=Reach.INSTANCE)
    assert stage.administration.set_weight(operator, subject.tenant_id, weight).weight == weight


def test_tenants_are_served_one_after_the_other_however_much_one_has_queued(stage):
    loud = tenant(stage, "loud", 30)
    quiet = tenant(stage, "quiet", 3)
    order = take(stage)
    assert Counter(order) == {loud.tenant_id: 30, quiet.tenant_id: 3}
    assert Counter(order[:6]) == {loud.tenant_id: 3, quiet.tenant_id: 3}


def test_a_tenant_that_has_as_many_calls_at_a_worker_as_it_may_lets_others_go_first_and_keeps_its_turn(stage):
    loud, quiet = tenant(stage, "loud", 4), tenant(stage, "quiet", 1)
    claims = stage.claims(in_flight=InFlightCalls(2))
    taken = [claims.take() for _ in range(4)]
    assert Counter(each.stored.tenant_id for each in taken if each) == {loud.tenant_id: 2, quiet.tenant_id: 1}
    assert claims.any()
    ended = next(each for each in taken if each and each.stored.tenant_id == loud.tenant_id)
    finish(stage, ended)
    assert claims.take() is None
    claims.leave(ended)
    assert claims.take().stored.tenant_id == loud.tenant_id


def test_the_next_attempt_of_a_call_is_counted_though_the_one_before_leaves_after_it_began(stage):
    loud = tenant(stage, "loud", 2)
    claims = stage.claims(in_flight=InFlightCalls(2))
    first, other = claims.take(), claims.take()
    lost = first.stored.identity
    stage.execution().lose(first, Loss("It went away."))
    claims.leave(other)
    assert claims.take().stored.identity == lost.model_copy(update={"attempt": 2})
    claims.leave(first)
    submit(stage, loud, 100)
    submit(stage, loud, 101)
    assert isinstance(claims.take(), ClaimedCall)
    assert claims.take() is None


def test_a_claim_whose_unit_is_run_again_does_not_stand_in_its_own_way(stage):
    tenant(stage, "loud", 2)
    claims, run = stage.claims(in_flight=InFlightCalls(1)), stage.writer.run

    def twice(work):
        with pytest.raises(StorageUnavailable):
            refused_after(run)(work)
        return run(work)

    stage.writer.run = twice
    assert isinstance(claims.take(), ClaimedCall)
    assert claims.take() is None


def test_a_claim_that_the_database_refuses_takes_none_of_its_tenants_share(stage):
    tenant(stage, "loud", 2)
    claims = stage.claims(in_flight=InFlightCalls(1))
    run, stage.writer.run = stage.writer.run, refused_after(stage.writer.run)
    with pytest.raises(StorageUnavailable):
        claims.take()
    stage.writer.run = run
    assert isinstance(claims.take(), ClaimedCall)
    assert claims.take() is None


def test_a_tenant_of_twice_the_weight_gets_twice_as_much(stage):
    heavy, _light = tenant(stage, "heavy", 20), tenant(stage, "light", 20)
    set_weight(stage, heavy, 2)
    served = Counter(take(stage, most=15))
    assert 9 <= served[heavy.tenant_id] <= 11


def test_who_comes_late_or_comes_back_is_not_served_more_for_having_been_away(stage):
    first = tenant(stage, "first", 40)
    back = tenant(stage, "back", 1)
    take(stage, most=20)
    late = tenant(stage, "late", 20)
    for number in range(20):
        submit(stage, back, 100 + number)
    served = Counter(take(stage, most=9))
    assert served == {first.tenant_id: 3, back.tenant_id: 3, late.tenant_id: 3}


def test_a_tenant_alone_is_served_at_once_after_many_calls_of_another(stage):
    tenant(stage, "busy", 10)
    take(stage)
    alone = tenant(stage, "alone", 1)
    assert take(stage) == [alone.tenant_id]


def test_a_tenant_at_its_limit_is_passed_over_until_one_of_its_calls_ends(stage):
    full, other = tenant(stage, "full", 3), tenant(stage, "other", 1)
    stage.limit(Resource.RUNNING_CALLS, 1, full.tenant_id)
    claims = stage.claims()
    running = {taken.stored.tenant_id: taken for taken in (claims.take(), claims.take())}
    assert set(running) == {full.tenant_id, other.tenant_id}
    assert claims.take() is None
    assert not claims.any()
    finish(stage, running[full.tenant_id])
    assert claims.any()
    assert claims.take().stored.tenant_id == full.tenant_id


def test_a_raised_limit_is_found_without_an_end_of_a_call(stage):
    full = tenant(stage, "full", 2)
    stage.limit(Resource.RUNNING_CALLS, 1, full.tenant_id)
    claims = stage.claims()
    assert isinstance(claims.take(), ClaimedCall)
    assert claims.take() is None
    stage.limit(Resource.RUNNING_CALLS, 2, full.tenant_id)
    claims.look_again()
    assert isinstance(claims.take(), ClaimedCall)


def test_an_interactive_call_goes_before_older_ones_of_a_batch(stage):
    principal, _ = stage.enroll("mixed", "dev")
    batch = stage.open_session(principal, priority="batch", parallel_calls=64)
    person = stage.open_session(principal)
    submit(stage, batch, 1)
    wanted = submit(stage, person, 2)
    assert stage.claims().take().stored.identity.tool_call_id == wanted


def test_a_session_runs_no_more_than_it_may_at_once_and_goes_on_as_they_end(stage):
    subject = stage.open_session(parallel_calls=2)
    calls = [submit(stage, subject, number) for number in range(4)]
    claims = stage.claims()
    running = [claims.take(), claims.take()]
    assert claims.take() is None
    finish(stage, running[0])
    third = claims.take()
    assert [taken.stored.identity.tool_call_id for taken in (*running, third)] == calls[:3]
    assert claims.take() is None


def test_a_call_that_only_reads_is_not_behind_held_ones_that_write(stage):
    subject = stage.open_session()
    writes = [submit(stage, subject, number, EXEC) for number in range(3)]
    read = submit(stage, subject, 9)
    claims = stage.claims()
    taken = [claims.take().stored.identity.tool_call_id for _ in range(2)]
    assert taken == [writes[0], read]
    assert claims.take() is None


def test_a_queued_call_that_is_cancelled_lets_the_next_one_go(stage):
    subject = stage.open_session()
    first, second = (submit(stage, subject, number, EXEC) for number in range(2))
    assert stage.cancel(first, "not needed", subject)
    assert stage.claims().take().stored.identity.tool_call_id == second


def test_a_suspended_tenants_calls_are_taken_off_and_others_are_served(stage):
    barred, other = tenant(stage, "barred", 3), tenant(stage, "other", 1)
    operator, _ = stage.enroll("ops", "op", Role.OPERATOR, reach=Reach.INSTANCE)
    stage.administration.suspend(operator, barred.tenant_id)
    claims, states = stage.claims(), []
    while (taken := claims.take()) is not None:
        states.append(type(taken).__name__)
    assert sorted(states) == ["ClaimedCall", "Denied", "Denied", "Denied"]
    assert other.tenant_id


def test_calls_of_a_version_without_turns_are_taken_up(stage):
    subject = stage.open_session()
    calls = [submit(stage, subject, number, EXEC) for number in range(2)]
    downgrade(stage.database, "0012")
    upgrade(stage.database)
    claims = stage.claims()
    claims.take_up()
    first = claims.take()
    assert claims.take() is None, "two that write to one workspace"
    finish(stage, first)
    assert [first.stored.identity.tool_call_id, claims.take().stored.identity.tool_call_id] == calls


def test_callers_and_claims_in_many_threads_leave_nothing_behind(stage):
    subjects = [tenant(stage, f"tenant {number}") for number in range(4)]
    claims = stage.claims()
    done = []

    def ask(subject):
        for number in range(15):
            submit(stage, subject, number, EXEC if number % 3 == 0 else READ)

    def serve(_):
        idle = 0
        while idle < 40:
            taken = claims.take()
            if taken is None:
                idle += 1
                continue
            idle = 0
            finish(stage, taken)
            done.append(taken.stored.tenant_id)

    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(lambda job: job[0](job[1]), [*((ask, each) for each in subjects), *((serve, n) for n in range(4))])
        )
    while isinstance(taken := claims.take(), ClaimedCall):
        finish(stage, taken)
        done.append(taken.stored.tenant_id)
    assert Counter(done) == {subject.tenant_id: 15 for subject in subjects}
    assert not claims.any()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("ask"), st.integers(0, 3), st.booleans()),
            st.tuples(st.just("take"), st.none(), st.none()),
            st.tuples(st.just("end"), st.integers(0, 9), st.none()),
            st.tuples(st.just("cancel"), st.integers(0, 9), st.none()),
        ),
        max_size=40,
    )
)
def test_whatever_the_order_each_call_runs_once_within_its_sessions_bounds(crowd, steps):
    stage, subjects = crowd
    claims, running, queued = stage.claims(), [], []
    for number, (step, which, serial) in enumerate(steps):
        if step == "ask":
            queued.append((submit(stage, subjects[which], f"{number}", EXEC if serial else READ), subjects[which]))
        elif step == "take" and (taken := claims.take()) is not None:
            assert taken.stored.identity.tool_call_id in [call for call, _ in queued]
            queued = [each for each in queued if each[0] != taken.stored.identity.tool_call_id]
            running.append(taken)
        elif step == "end" and running:
            finish(stage, running.pop(which % len(running)))
        elif step == "cancel" and queued:
            call, subject = queued.pop(which % len(queued))
            assert stage.cancel(call, "the test", subject)
        for subject in subjects:
            ours = [taken.stored for taken in running if taken.stored.subject.session_id == subject.session_id]
            assert len(ours) <= 2
            assert sum(stored.serial for stored in ours) <= 1
    for taken in running:
        finish(stage, taken)
    left = 0
    while isinstance(taken := claims.take(), ClaimedCall):
        finish(stage, taken)
        left += 1
    assert left == len(queued)
    assert not claims.any()


@pytest.fixture
def crowd(stage):
    """Two tenants with two sessions each that run two calls at once; for every example anew would take minutes."""
    subjects = []
    for name in ("one", "two"):
        principal, _ = stage.enroll(name, "dev")
        subjects += [stage.open_session(principal, parallel_calls=2) for _ in range(2)]
    return stage, subjects
