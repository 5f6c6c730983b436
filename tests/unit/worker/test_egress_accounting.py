"""Egress attempts are in the session's log with their exec; a secret belongs to the session's tenant."""

from __future__ import annotations

import pytest

from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.quotas import Resource
from codesdk.errors import InternalFault
from codesdk.sandbox.egress.connection_attempt import AttemptPhase, ConnectionAttempt, Reason, Refusal
from codesdk.worker.sandboxes.egress_accounting import FIRST_RESERVATION, MAX_RESERVATION, EgressRecorder

KIB, MIB = 1024, 1024 * 1024


def record(stage, environment=ToolExecutionEnv.CODESDK_HOST) -> EgressRecorder:
    return EgressRecorder(stage.database, stage.writer, stage.log, environment)


def owner(stage) -> str:
    return stage.sql("SELECT id FROM sandboxes")[0][0]


def attempt(owner: str) -> ConnectionAttempt:
    return ConnectionAttempt(
        owner=owner, call="call_1", attempt=1, number=1, phase=AttemptPhase.OPENED, host="a.example", port=443
    )


@pytest.mark.parametrize("environment", [ToolExecutionEnv.CODESDK_HOST, ToolExecutionEnv.CODESDK_DOCKER])
def test_an_attempt_is_in_the_log_and_says_where_it_was_made(stage, environment):
    record(stage, environment)(attempt(owner(stage)))
    said = stage.events()[-1]
    assert said.type == "sandbox.egress"
    assert (said.payload["host"], said.payload["phase"]) == ("a.example", "opened")
    assert said.payload["execution_env"] == environment.value


def test_an_attempt_of_a_sandbox_that_no_session_owns_is_a_defect_and_so_does_not_pass(stage):
    with pytest.raises(InternalFault, match="sbx_unknown"):
        record(stage)(attempt("sbx_unknown"))


def test_the_tenant_of_a_sandbox_is_its_sessions_and_of_an_unknown_one_there_is_none(stage):
    assert record(stage).tenant_of(owner(stage)) == stage.principal.tenant_id
    assert record(stage).tenant_of("sbx_unknown") is None


# -- bytes of a day ---------------------------------------------------------------------------------------------------


def metered(stage, writer=None) -> EgressRecorder:
    environment = ToolExecutionEnv.CODESDK_DOCKER
    return EgressRecorder(stage.database, writer or stage.writer, stage.log, environment, stage.quotas)


def used(stage) -> int:
    report = stage.quotas.report(stage.database, stage.principal.tenant_id)
    return next(quota.used for quota in report if quota.resource is Resource.EGRESS_BYTES_A_DAY)


def closed(opened: ConnectionAttempt, up: int = 0, down: int = 0) -> ConnectionAttempt:
    return opened.model_copy(update={"phase": AttemptPhase.CLOSED, "bytes_up": up, "bytes_down": down})


def connections(stage, count: int) -> list[ConnectionAttempt]:
    return [attempt(owner(stage)).model_copy(update={"number": number}) for number in range(1, count + 1)]


def move(recorder: EgressRecorder, opened: ConnectionAttempt, size: int, block: int = 64 * KIB) -> int:
    """What the proxy does: blocks, and a question whenever there is too little for the next. Bytes until it is refused."""
    left = moved = 0
    while moved < size:
        if left < block:
            try:
                left += recorder.more(opened, block - left)
            except Refusal:
                break
        left -= block
        moved += block
    return moved


def test_a_tenant_that_has_moved_as_much_as_it_may_today_opens_no_connection(stage):
    stage.limit(Resource.EGRESS_BYTES_A_DAY, 100)
    recorder, (first, second) = metered(stage), connections(stage, 2)
    recorder(first)
    assert recorder.more(first, 100) == 100
    before = stage.types()
    with pytest.raises(Refusal, match="100 of 100") as refused:
        recorder(second)
    assert refused.value.reason is Reason.BYTES_A_DAY
    assert b"429" in refused.value.answer()
    assert stage.types() == before
    recorder(second.model_copy(update={"phase": AttemptPhase.REFUSED, "reason": Reason.BYTES_A_DAY}))
    assert stage.events()[-1].payload["reason"] == "bytes_a_day"
    recorder(closed(first, 40, 60))
    assert used(stage) == 100


def test_bytes_are_counted_while_a_connection_is_open_and_what_it_did_not_move_goes_back(stage):
    recorder, (opened,) = metered(stage), connections(stage, 1)
    recorder(opened)
    assert used(stage) == FIRST_RESERVATION
    assert move(recorder, opened, 3 * MIB) == 3 * MIB
    assert 3 * MIB <= used(stage) <= 6 * MIB
    recorder(closed(opened, MIB, 2 * MIB))
    assert used(stage) == 3 * MIB
    recorder(closed(opened, MIB, 2 * MIB))  # told twice: nothing is given back again
    assert used(stage) == 3 * MIB


def test_connections_that_are_open_together_do_not_pass_the_limit(stage):
    limit = 2 * MIB + 1
    stage.limit(Resource.EGRESS_BYTES_A_DAY, limit)
    recorder, opened = metered(stage), connections(stage, 4)
    moved = dict.fromkeys(opened, 0)
    for each in opened:
        recorder(each)
    for each in opened:
        moved[each] = move(recorder, each, 10 * MIB)
    assert limit - len(opened) * 64 * KIB <= sum(moved.values()) <= used(stage) <= limit
    for each, size in moved.items():
        recorder(closed(each, size))
    assert used(stage) == sum(moved.values())


def test_workers_of_several_processes_do_not_pass_it_together_either(stage, writers, at_once):
    limit = 4 * MIB
    stage.limit(Resource.EGRESS_BYTES_A_DAY, limit)
    recorders = [metered(stage, writer) for writer in writers]
    each_opened = [
        attempt(owner(stage)).model_copy(update={"call": f"call_{number}"}) for number in range(len(recorders))
    ]
    for recorder, opened in zip(recorders, each_opened, strict=True):
        recorder(opened)  # before the others have the whole day

    def one(number: int) -> int:
        recorder, opened = recorders[number], each_opened[number]
        moved = move(recorder, opened, 2 * MIB)
        recorder(closed(opened, moved))
        return moved

    moved = sum(at_once(one, len(writers)))
    assert moved == used(stage) <= limit
    assert moved >= limit - len(writers) * 64 * KIB


def test_a_killed_worker_leaves_what_its_connections_moved_counted_and_a_step_of_each_at_most_besides(stage):
    recorder, opened = metered(stage), connections(stage, 3)
    sizes = (0, MIB, 40 * MIB)
    for each, size in zip(opened, sizes, strict=True):
        recorder(each)
        move(recorder, each, size)
    del recorder  # nobody tells of their ends
    most = sum(size + max(FIRST_RESERVATION, min(size, MAX_RESERVATION)) for size in sizes)
    assert sum(sizes) <= used(stage) <= most


def test_a_long_connection_asks_once_for_as_much_as_it_has_moved_and_seldom_then(stage):
    recorder, (opened,) = metered(stage), connections(stage, 1)
    recorder(opened)
    commits = []
    reserve = stage.quotas.reserve_egress
    stage.quotas.reserve_egress = lambda *asked, **more: commits.append(1) or reserve(*asked, **more)
    move(recorder, opened, 100 * MIB)
    assert len(commits) <= 6 + 100 // 8


def test_what_a_connection_took_before_midnight_does_not_go_back_to_the_new_day(stage):
    recorder, (opened,) = metered(stage), connections(stage, 1)
    recorder(opened)
    stage.sql("UPDATE tenants SET egress_day = egress_day - 1")
    recorder._held[opened.connection].last = recorder._held[opened.connection].last._replace(day=0)
    assert move(recorder, opened, MIB) == MIB
    assert used(stage) == MIB - FIRST_RESERVATION
    recorder(closed(opened, FIRST_RESERVATION - 1))
    assert used(stage) == 0


def test_bytes_of_a_connection_that_is_not_on_record_do_not_pass(stage):
    with pytest.raises(InternalFault, match="not recorded"):
        metered(stage).more(attempt(owner(stage)), 1)
