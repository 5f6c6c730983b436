"""Calls whose sandbox or worker was lost: read-only ones are retried, repeating others needs approval (ADR 36)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from codesdk.approvals import GrantNotOffered, GrantRequest, Verdict
from codesdk.domain.calls import CallState
from codesdk.domain.clock import SystemClock
from codesdk.domain.decisions import Classification, GrantKind
from codesdk.domain.ids import TenantId
from codesdk.domain.quotas import Resource
from codesdk.domain.tool_results import ToolResult
from codesdk.eventlog.tail import Tail
from codesdk.registry import Registry
from codesdk.sandbox.fake.processes import FakeProcesses
from codesdk.sandbox.port import ExecResult, ExitKind
from codesdk.sandbox.port.faults import EngineUnavailable, RunnerRefused, SandboxPaused
from codesdk.storage.faults import WriteConflict
from codesdk.toolcalls import ending, pipeline
from codesdk.toolcalls.records import policy_inputs, store
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied, Finished, Queued, Waiting
from codesdk.toolcalls.results import ResultWaiter
from codesdk.toolcalls.retries import lost_calls
from codesdk.toolcalls.retries.lost_calls import Loss
from codesdk.transcript import fold
from stage import POLICY, Room, bundle, stored_call

READ = ("workspace.read", {"path": "a"})
X = ("workspace.exec", {"command": "x"})
LIFE = ["requested", "policy_evaluated", "approved", "started", "completed"]


def submit(stage, name, given):
    return stage.pipeline.submit(name, given, stage.subject)


def serve(stage, crew):
    """Whatever is queued, as the worker's threads do it."""
    crew.dispatcher._serve()


def histories(stage, call):
    """What the log says of each attempt."""
    found = {}
    for event in stage.events():
        if event.payload.get("tool_call_id") == call and event.type.value.startswith("tool.call."):
            found.setdefault(event.payload["attempt"], []).append(event.type.value.removeprefix("tool.call."))
    return found


def crash(crew, **more):
    crew.sandboxes.crash(crew.sandboxes.living[0], **more)


def put(stage, crew, policy):
    """Other rules, for the API and the worker."""
    stage.bundle = bundle(stage.root / "others", policy, stage.registry)
    stage.pipeline = stage.pipeline_with(stage.bundle)
    crew.execution = crew.recovery._execution = stage.execution()


@pytest.fixture
def ready(stage, crew):
    """A sandbox with a file, open in the worker."""
    crew.sandbox_registry.ready(stage.session.id).files.put("a", b"content")
    return crew


def test_a_reading_call_whose_sandbox_goes_away_runs_again_over_the_workspace_that_is_left(stage, ready):
    call = submit(stage, *READ).identity.tool_call_id
    crash(ready)
    serve(stage, ready)
    found = stage.find(call)
    assert (found.identity.attempt, found.result.text) == (2, "content")
    assert histories(stage, call) == {1: LIFE, 2: LIFE}
    first, second = [event.payload for event in stage.events() if event.type == "tool.call.completed"]
    assert (first["code"], first["is_error"]) == ("WORKER_LOST", True)
    assert "run again, as attempt 2" in first["result_preview"]
    assert not second["is_error"]
    failed = [event.payload for event in stage.events() if event.type == "sandbox.failed"]
    assert [each["code"] for each in failed] == ["SANDBOX_GONE"]
    transcript = fold(stage.events())
    assert [record.attempt for record in transcript.calls] == [1, 2]
    (result,) = [entry.message for entry in transcript.entries if entry.message.role == "tool"]
    assert not result.content[0].is_error
    assert stage.sql("SELECT count(*) FROM tool_calls WHERE doubtful") == [(0,)]


def test_what_is_lost_again_and_again_ends_after_as_many_attempts_as_there_may_be(stage, ready, monkeypatch):
    call = submit(stage, *READ).identity.tool_call_id
    begin = ready.sandbox_registry.begin

    def dying(session):
        room = begin(session)
        crash(ready)
        return room

    monkeypatch.setattr(ready.sandbox_registry, "begin", dying)
    serve(stage, ready)
    found = stage.find(call)
    assert (found.identity.attempt, found.result.code) == (lost_calls.MAX_ATTEMPTS, "WORKER_LOST")
    assert f"lost {lost_calls.MAX_ATTEMPTS} times" in found.result.text
    assert histories(stage, call) == dict.fromkeys(range(1, lost_calls.MAX_ATTEMPTS + 1), LIFE)


def test_nothing_runs_again_where_nothing_is_left(stage, ready):
    call = submit(stage, *READ).identity.tool_call_id
    crash(ready, keeps=False)
    serve(stage, ready)
    found = stage.find(call)
    assert (found.identity.attempt, found.result.code) == (1, "WORKER_LOST")
    assert "nothing to run it on" in found.result.text


def lose(stage, crew, call):
    """Let a queued call be claimed and lost."""
    taken = stage.claims(generation=crew.host.generation).take()
    assert isinstance(taken, ClaimedCall)
    assert taken.stored.identity.tool_call_id == call
    return crew.execution.lose(taken, Loss("It went away."))


ASKING = POLICY.replace("{id: reads, effect: allow,", "{id: reads, effect: ask, grant: {offer: [session]},")


def approve(stage, waiting, wish=None, verdict=Verdict.APPROVE):
    assert isinstance(waiting, Waiting)
    asked = stage.approval_service.find(stage.principal.tenant_id, waiting.approval_id)
    more = {"digest": asked.digest, "by": stage.principal.id, "comment": None, "wish": wish}
    stage.pipeline.vote(asked.tenant_id, asked.id, verdict, **more)


def test_a_reading_call_that_a_person_let_through_is_not_repeated_on_that_yes(stage, ready):
    put(stage, ready, ASKING)
    waiting = submit(stage, *READ)
    approve(stage, waiting)
    result = lose(stage, ready, waiting.identity.tool_call_id)
    assert "policy would ask" in result.text
    assert histories(stage, waiting.identity.tool_call_id).keys() == {1}
    assert isinstance(submit(stage, *READ), Waiting)


def test_a_grant_counts_once_for_each_attempt(stage, ready):
    put(stage, ready, ASKING)
    waiting = submit(stage, *READ)
    approve(stage, waiting, GrantRequest(kind=GrantKind.SESSION, max_uses=2))
    serve(stage, ready)
    granted = submit(stage, *READ).identity.tool_call_id
    crash(ready)
    serve(stage, ready)
    assert stage.find(granted).identity.attempt == 2
    assert stage.sql("SELECT uses FROM grants") == [(2,)]
    assert isinstance(submit(stage, *READ), Waiting)  # used up


def test_policy_decides_about_every_attempt_again(stage, ready):
    call = submit(stage, *READ).identity.tool_call_id
    put(stage, ready, POLICY.replace("reads, effect: allow", "reads, effect: deny"))
    assert "policy would deny" in lose_under(stage, ready, call).text


def lose_under(stage, crew, call):
    """As `lose`, where the rules have changed since the claim."""
    before = bundle(stage.root / "before", POLICY, stage.registry)
    taken = stage.claims(before, generation=crew.host.generation).take()
    assert taken.stored.identity.tool_call_id == call
    return crew.execution.lose(taken, Loss("It went away."))


def test_a_cancel_ends_a_call_between_its_attempts_and_keeps_another_from_beginning(stage, ready):
    first = submit(stage, *READ).identity.tool_call_id
    lose(stage, ready, first)
    assert stored_call(stage.database, first).state is CallState.QUEUED
    assert stage.cancel(first, "enough")
    assert isinstance(stage.find(first), Denied)
    second = submit(stage, *READ).identity.tool_call_id
    taken = stage.claims(generation=ready.host.generation).take()
    assert stage.cancel(second, "enough")
    assert "it was cancelled" in ready.execution.lose(taken, Loss("It went away.")).text


def test_a_close_that_comes_between_the_end_of_an_attempt_and_the_next_keeps_that_from_beginning(
    stage, ready, monkeypatch
):
    call = submit(stage, *READ).identity.tool_call_id
    taken = stage.claims(generation=ready.host.generation).take()
    closed = []

    def close_first(_connection, session):
        if not closed:  # as another process on PostgreSQL; here its rows alone, and after what this unit read of them
            closed.append(session)
            raise WriteConflict("It was closed.", advice="")

    find = store.find

    def found(*given, **more):
        stored = find(*given, **more)
        return stored.model_copy(update={"session_open": not closed})

    monkeypatch.setattr(store, "check_open", close_first)
    monkeypatch.setattr(store, "find", found)
    result = ready.execution.lose(taken, Loss("It went away."))
    assert closed == [stage.session.id]
    assert "its session ended" in result.text
    assert histories(stage, call).keys() == {1}


def test_another_attempt_takes_one_place_and_gives_it_back(stage, ready):
    stage.limit(Resource.QUEUED_CALLS, 1)
    first = submit(stage, *READ).identity.tool_call_id
    taken = stage.claims(generation=ready.host.generation).take()
    second = submit(stage, *READ).identity.tool_call_id
    assert "as many calls of its tenant wait" in ready.execution.lose(taken, Loss("It went away.")).text
    assert isinstance(stage.find(first), Finished)
    lose(stage, ready, second)  # now there is room
    serve(stage, ready)
    assert stage.find(second).result.text == "content"
    assert stage.sql("SELECT state, count(*) FROM tool_calls GROUP BY state") == [("completed", 2)]
    assert stage.sql("SELECT count(*) FROM turns WHERE waiting") == [(0,)]


def test_who_waits_follows_a_call_through_its_attempts(stage, ready):
    tail, seen = Tail(stage.log, stage.hints, SystemClock(), 0.05), []
    results = ResultWaiter(stage.pipeline, stage.log, tail, stage.hints, quick_s=0.0)

    async def both():
        is_over = asyncio.Event()

        async def on_event(event):
            seen.append((event.payload["attempt"], event.type.value))
            if event.type == "tool.call.completed":
                is_over.set()

        outcome = submit(stage, *READ)
        waiting = asyncio.create_task(results.wait(outcome, stage.subject, 30.0, on_event))
        await asyncio.sleep(0)
        await asyncio.to_thread(lose, stage, ready, outcome.identity.tool_call_id)
        await asyncio.wait_for(is_over.wait(), 30)
        assert not waiting.done()
        await asyncio.to_thread(serve, stage, ready)
        return await waiting

    found = asyncio.run(both())
    tail.close()
    assert (found.identity.attempt, found.result.text) == (2, "content")
    assert (2, "tool.call.started") in seen


def test_a_call_of_several_attempts_is_one_question_of_a_replay(stage, ready):
    lose(stage, ready, submit(stage, *READ).identity.tool_call_id)
    assert len(list(policy_inputs.inputs_since(stage.database, 1.0))) == 1
    assert policy_inputs.count_inputs(stage.database, 1.0, TenantId(stage.principal.tenant_id)) == 1


def test_a_large_input_stays_the_artifact_that_it_was(stage, ready, monkeypatch):
    monkeypatch.setattr(pipeline, "SMALL_INPUT", 4)
    call = submit(stage, *READ).identity.tool_call_id
    lose(stage, ready, call)
    first, second = [event.payload for event in stage.events() if event.type == "tool.call.requested"]
    assert first["input_ref"]["artifact_id"] == second["input_ref"]["artifact_id"]


def test_a_call_that_was_never_asked_of_a_sandbox_that_had_ended_runs_in_the_next_and_is_the_same_attempt(stage, ready):
    call = submit(stage, *X).identity.tool_call_id
    crash(ready)
    serve(stage, ready)
    found = stage.find(call)
    assert (found.identity.attempt, found.result.structured["stdout"]) == (1, "x")
    assert len(ready.sandboxes.runs) == 1
    assert isinstance(submit(stage, *X), Queued)


# -- nothing runs twice -----------------------------------------------------------------------------------------------


def test_a_command_that_its_worker_left_in_a_sandbox_that_was_lost_is_not_run_by_the_next(stage, ready):
    call = submit(stage, *X).identity.tool_call_id
    taken = stage.claims(generation=ready.host.generation).take()
    exec_ = ready.sandbox_registry.ready(stage.session.id)
    ready.execution._abandoned.set()  # it dies with the call in hand
    with pytest.raises(Exception, match="leaving"):
        ready.execution.run(taken, lambda: exec_)
    crash(ready)
    later = ready.next()
    later.recovery.take_up()
    assert ready.sandboxes.runs == []
    assert stage.find(call).result.code == "WORKER_LOST"


def test_nor_where_somebody_restarted_its_container_by_hand(stage, ready):
    call = submit(stage, *X).identity.tool_call_id
    taken = stage.claims(generation=ready.host.generation).take()
    room, run = ready.sandbox_registry.ready(stage.session.id), stage.writer.run
    stage.writer.run = lambda _work: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):  # the worker dies between the exec's end and its record
        ready.execution.run(taken, lambda: room)
    stage.writer.run = run
    ready.sandboxes.reboot(room.owner)
    ready.next().recovery.take_up()
    assert len(ready.sandboxes.runs) == 1
    assert stage.find(call).result.code == "WORKER_LOST"


def test_a_claim_that_nobody_heard_of_does_not_run_another_command_than_it_was_for(stage, ready):
    call = submit(stage, *X).identity.tool_call_id
    assert stage.claims(generation=ready.host.generation).take() is not None
    ready.recovery.recover_orphaned()
    tools = [
        replace(tool, behaviour_hash="sha256:" + "1" * 64) if tool.name == X[0] else tool
        for tool in stage.registry.tools()
    ]
    ready.recovery._registry = Registry(tools)
    ready.recovery.recover_orphaned()
    assert (stage.find(call).result.code, ready.sandboxes.runs) == ("NOT_BEGUN", [])
    assert "manifest" in stage.find(call).result.text


def other_command(stage):
    """The registry with another manifest of the tool, as an upgrade brings it."""
    return Registry(
        [
            replace(tool, behaviour_hash="sha256:" + "1" * 64) if tool.name == X[0] else tool
            for tool in stage.registry.tools()
        ]
    )


def test_a_command_that_no_worker_has_begun_is_not_begun_by_the_next_as_another(stage, ready):
    call = submit(stage, *X).identity.tool_call_id
    assert stage.claims(generation=ready.host.generation).take() is not None
    later = ready.next()
    later.recovery._registry = other_command(stage)
    later.recovery.take_up()
    assert (stage.find(call).result.code, ready.sandboxes.runs) == ("NOT_BEGUN", [])
    assert "manifest" in stage.find(call).result.text


def test_one_that_was_begun_is_joined_whatever_its_tool_is_now(stage, ready):
    call = submit(stage, *X).identity.tool_call_id
    taken = stage.claims(generation=ready.host.generation).take()
    room, run = ready.sandbox_registry.ready(stage.session.id), stage.writer.run
    stage.writer.run = lambda _work: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):  # the worker dies between the exec's end and its record
        ready.execution.run(taken, lambda: room)
    stage.writer.run = run
    later = ready.next()
    later.recovery._registry = other_command(stage)
    later.recovery.take_up()
    assert len(ready.sandboxes.runs) == 1
    assert stage.find(call).result.structured["stdout"] == "x"


def test_one_that_was_cancelled_before_it_was_begun_is_not_begun(stage, ready):
    call = submit(stage, *X).identity.tool_call_id
    assert stage.claims(generation=ready.host.generation).take() is not None
    stage.cancel(call, "not wanted")
    ready.next().recovery.take_up()
    assert (stage.find(call).result.code, ready.sandboxes.runs) == ("NOT_BEGUN", [])


def test_one_whose_sandbox_cannot_say_whether_it_was_begun_is_lost(stage, ready, monkeypatch):
    def away(_processes):
        raise EngineUnavailable("unix:///run/docker.sock", "refused")

    call = submit(stage, *X).identity.tool_call_id
    assert stage.claims(generation=ready.host.generation).take() is not None
    stage.cancel(call, "not wanted")
    monkeypatch.setattr(FakeProcesses, "list", away)
    ready.next().recovery.take_up()
    assert (stage.find(call).result.code, ready.sandboxes.runs) == ("WORKER_LOST", [])


# -- calling again asks -----------------------------------------------------------------------------------------------


def test_the_same_call_asks_after_it_was_lost_until_it_has_run_to_an_end(stage, ready):
    lost = submit(stage, *X).identity.tool_call_id
    lose(stage, ready, lost)
    assert (stage.find(lost).identity.attempt, stage.find(lost).result.code) == (1, "WORKER_LOST")
    assert isinstance(submit(stage, X[0], {"command": "other"}), Queued)
    serve(stage, ready)
    rejected = submit(stage, *X)
    assert lost in rejected.reason
    approve(stage, rejected, verdict=Verdict.REJECT)
    asked = submit(stage, *X)  # a no is no answer to what became of the first
    approve(stage, asked)
    serve(stage, ready)
    assert stage.find(asked.identity.tool_call_id).result.structured["stdout"] == "x"
    assert isinstance(submit(stage, *X), Queued)
    said = [event.payload for event in stage.events() if event.type == "tool.call.policy_evaluated"]
    assert any(each["result"] == "ask" and lost in each["reason"] for each in said)


@pytest.mark.parametrize("met", [SandboxPaused("sbx"), RunnerRefused("It makes no sense."), KeyError("a defect")])
def test_so_does_one_that_failed_after_it_was_asked_of_its_sandbox(stage, ready, met):
    def breaks(_request, _on_output):
        raise met

    call = submit(stage, *X).identity.tool_call_id
    taken = stage.claims(generation=ready.host.generation).take()
    ready.execution.run(taken, lambda: Room(breaks))
    assert stage.find(call).result.is_error
    assert call in submit(stage, *X).reason


def test_one_that_failed_before_or_whose_end_is_known_does_not(stage, ready):
    def closed():
        raise SandboxPaused("sbx")

    submit(stage, *X)
    ready.execution.run(stage.claims(generation=ready.host.generation).take(), closed)
    assert isinstance(submit(stage, *X), Queued)
    failed = ExecResult(kind=ExitKind.EXITED, exit_code=3)
    taken = stage.claims(generation=ready.host.generation).take()
    ready.execution.run(taken, lambda: Room(lambda _request, _on_output: failed))
    assert isinstance(submit(stage, *X), Queued)


def test_one_that_did_not_run_after_all_leaves_the_doubt_about_the_one_before(stage, ready):
    def closed():
        raise SandboxPaused("sbx")

    lost = submit(stage, *X).identity.tool_call_id
    ready.execution.lose(stage.claims(generation=ready.host.generation).take(), Loss("It went away."))
    approve(stage, submit(stage, *X))
    ready.execution.run(stage.claims(generation=ready.host.generation).take(), closed)
    assert lost in submit(stage, *X).reason


@pytest.mark.parametrize(
    "code",
    [
        "BOUND_NOT_MET",
        "FILES_CHANGED",
        "NOT_BEGUN",
        "SECRET_MISSING",
        "SECRET_NOT_GRANTED",
        "TOOL_CHANGED",
        "TOO_MANY_PROCESSES",
    ],
)
def test_nor_does_one_whose_result_says_that_nothing_ran(stage, ready, code):
    lost = submit(stage, *X).identity.tool_call_id
    ready.execution.lose(stage.claims(generation=ready.host.generation).take(), Loss("It went away."))
    approve(stage, submit(stage, *X))
    taken = stage.claims(generation=ready.host.generation).take()
    said = ToolResult(text="Nothing ran.", is_error=True, code=code)
    stage.writer.run(
        lambda unit: ending.complete(unit, stage.log, taken, said, result_ref=None, last_output=(), duration_ms=0.0)
    )
    assert lost in submit(stage, *X).reason


def test_nor_does_one_that_had_no_secret(stage, ready):
    lost = submit(stage, *X).identity.tool_call_id
    ready.execution.lose(stage.claims(generation=ready.host.generation).take(), Loss("It went away."))
    approve(stage, submit(stage, *X))
    taken = stage.claims(generation=ready.host.generation).take()
    needy = Registry(replace(tool, secrets=("key",)) if tool.name == X[0] else tool for tool in stage.registry.tools())
    result = stage.execution(registry=needy).run(taken, Room)
    assert result.code == "SECRET_NOT_GRANTED"
    assert lost in submit(stage, *X).reason


def test_no_grant_answers_for_a_call_that_may_have_happened(stage, ready):
    put(stage, ready, POLICY.replace("commands, effect: allow,", "commands, effect: ask, grant: {offer: [session]},"))
    approve(stage, submit(stage, *X), GrantRequest(kind=GrantKind.SESSION))
    serve(stage, ready)
    lose(stage, ready, submit(stage, *X).identity.tool_call_id)
    asked = submit(stage, *X)
    assert isinstance(asked, Waiting)
    with pytest.raises(GrantNotOffered):
        approve(stage, asked, GrantRequest(kind=GrantKind.SESSION))
    assert isinstance(submit(stage, X[0], {"command": "other"}), Queued)


def test_a_call_that_was_queued_before_its_twin_was_lost_is_not_started(stage, ready):
    first, second = (submit(stage, *X).identity.tool_call_id for _ in range(2))
    lose(stage, ready, first)
    serve(stage, ready)
    denied = stage.find(second)
    assert isinstance(denied, Denied)
    assert first in denied.message
    assert ready.sandboxes.runs == []


def asked_and_approved(stage, ready, count):
    """As many calls of the same, each of which somebody has let through."""
    calls = []
    for _ in range(count):
        waiting = submit(stage, *X)
        approve(stage, waiting)
        calls.append(waiting.identity.tool_call_id)
    return calls


def test_a_yes_from_before_the_same_call_was_lost_is_none_to_its_repetition(stage, ready):
    put(stage, ready, POLICY.replace("commands, effect: allow", "commands, effect: ask"))
    first, second = asked_and_approved(stage, ready, 2)
    lose(stage, ready, first)
    serve(stage, ready)
    denied = stage.find(second)
    assert (denied.code, ready.sandboxes.runs) == ("APPROVAL_VOIDED", [])
    assert "before the same call was lost" in denied.message
    assert first in denied.message
    assert [row for (row,) in stage.sql("SELECT state FROM approvals ORDER BY state")] == ["consumed", "voided"]
    asked = submit(stage, *X)
    assert first in asked.reason
    approve(stage, asked)
    serve(stage, ready)
    assert stage.find(asked.identity.tool_call_id).result.structured["stdout"] == "x"


def test_nor_is_one_given_in_doubt_of_one_lost_call_a_yes_after_another_was_lost(stage, ready):
    lose(stage, ready, submit(stage, *X).identity.tool_call_id)
    second, third = asked_and_approved(stage, ready, 2)
    lose(stage, ready, second)
    serve(stage, ready)
    assert (stage.find(third).code, ready.sandboxes.runs) == ("APPROVAL_VOIDED", [])
    assert "and 1 more" in submit(stage, *X).reason


@pytest.mark.parametrize(("call", "becomes"), [(READ, Classification.WRITE), (X, Classification.READ_ONLY)])
def test_what_was_lost_is_of_the_class_that_it_was_claimed_under_whatever_its_tool_is_by_then(
    stage, ready, call, becomes
):
    queued = submit(stage, *call).identity.tool_call_id
    taken = stage.claims(generation=ready.host.generation).take()
    changed = {"behaviour_hash": "sha256:other", "classification": becomes}
    tools = (replace(tool, **changed) if tool.name == call[0] else tool for tool in stage.registry.tools())
    text = stage.execution(registry=Registry(tools)).lose(taken, Loss("It went away.")).text
    assert stage.find(queued).identity.attempt == 1
    only_reads = call is READ
    assert ("the manifest of its tool changed" in text, "is unknown" in text) == (only_reads, not only_reads)
    assert isinstance(submit(stage, *call), Queued if only_reads else Waiting)


def test_a_call_that_an_older_version_claimed_only_reads_if_its_tool_is_still_the_same(stage, ready):
    for changed, may_return in ((False, True), (True, False)):
        call = submit(stage, *READ).identity.tool_call_id
        taken = stage.claims(generation=ready.host.generation).take()
        stage.sql("UPDATE tool_calls SET classification = NULL WHERE id = :call", call=call)
        more = {"behaviour_hash": "sha256:other"} if changed else {}
        registry = Registry(replace(tool, **more) for tool in stage.registry.tools())
        stage.execution(registry=registry).lose(taken, Loss("It went away."))
        assert (stage.find(call).identity.attempt == 2) is may_return
        serve(stage, ready)


def test_a_denial_stays_one(stage, ready):
    lose(stage, ready, submit(stage, *X).identity.tool_call_id)
    put(stage, ready, POLICY.replace("commands, effect: allow", "commands, effect: deny"))
    assert isinstance(submit(stage, *X), Denied)


def test_where_nobody_answers_the_repetition_is_denied_and_in_yolo_it_runs_and_the_record_says_why(stage, ready):
    lost = submit(stage, *X).identity.tool_call_id
    lose(stage, ready, lost)
    asked = submit(stage, *X)
    stage.sql("UPDATE approvals SET expires_at = 1")
    stage.expire_overdue()
    assert stage.find(asked.identity.tool_call_id).code == "APPROVAL_EXPIRED"
    stage.sql("UPDATE tenants SET yolo = true")
    stage.sql("UPDATE sessions SET permission_mode = 'yolo'")
    stage.subject = stage.subject_of(stage.token)
    run = submit(stage, *X)
    assert isinstance(run, Queued)
    serve(stage, ready)
    assert stage.find(run.identity.tool_call_id).result.structured["stdout"] == "x"
    (said,) = [
        event.payload
        for event in stage.events()
        if event.type == "tool.call.policy_evaluated" and event.payload["tool_call_id"] == run.identity.tool_call_id
    ]
    assert "yolo" in said["reason"]
    assert lost in said["reason"]
