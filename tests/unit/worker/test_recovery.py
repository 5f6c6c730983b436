from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

from codesdk.domain.calls import IllegalTransition
from codesdk.domain.tool_results import ToolResult
from codesdk.registry import Registry
from codesdk.sandbox.fake.sandboxes import Script
from codesdk.sandbox.port import Chunk
from codesdk.sandbox.profiles.profile import Profile
from codesdk.storage.database import StorageUnavailable
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.records.call_record import Finished
from codesdk.toolcalls.run.output_log import DELTA_BYTES, OutputLog
from codesdk.worker.calls.recovery import Recovery
from stage import POLICY, bundle, wait_for


def submit(stage, name, given):
    outcome = stage.pipeline.submit(name, given, stage.subject)
    return outcome.identity.tool_call_id


def claim(stage, crew):
    return stage.claims(generation=crew.host.generation).take()


def result(stage, call):
    found = stage.find(call)
    assert isinstance(found, Finished)
    return found.result


def test_a_running_command_is_joined_and_not_run_again(stage, crew):
    call = submit(stage, "workspace.exec", {"command": "hold"})
    claimed = claim(stage, crew)

    def serve():
        with pytest.raises(IllegalTransition):
            stage.execution().run(claimed, lambda: crew.sandbox_registry.ready(stage.session.id))

    old = threading.Thread(target=serve)
    old.start()
    wait_for(lambda: crew.sandboxes.runs, "the command to start")
    later = crew.next()
    joining = threading.Thread(target=later.recovery.take_up)
    joining.start()
    wait_for(lambda: stage.sql("SELECT 1 FROM tool_calls WHERE generation = 2"), "the adoption")
    crew.hold.set()
    joining.join(10)
    old.join(10)
    assert len(crew.sandboxes.runs) == 1
    assert result(stage, call).structured["stdout"] == "held"
    assert stage.types().count("tool.call.completed") == 1
    assert stage.types()[-1] == "tool.call.completed"


def test_a_command_that_is_taken_up_keeps_what_policy_demanded_when_it_began(stage, crew, tmp_path):
    profile = Profile(egress={"rules": [{"host": "*.web.example"}]})
    stage.sql("UPDATE sessions SET profile = :profile", profile=profile.model_dump_json())
    stage.sql("UPDATE sandboxes SET profile = :profile", profile=profile.model_dump_json())
    demand = "obligations: {timeout_s: 9, sandbox: {egress: a.web.example, pids: 90}}"
    bounded = POLICY.replace("tool: workspace.exec}", f"tool: workspace.exec, {demand}}}")
    strict = bundle(tmp_path / "bounded", bounded, stage.registry)
    stage.pipeline, keep = stage.pipeline_with(strict), stage.pipeline
    submit(stage, "workspace.exec", {"command": "done"})
    assert stage.claims(strict, generation=crew.host.generation).take() is not None
    stage.pipeline = keep  # the next worker reads a bundle that demands nothing
    seen = []
    crew.sandboxes.choose = lambda asked: seen.append(asked) or Script(stdout=b"done")
    crew.next().recovery.take_up()
    (ran,) = seen
    assert [rule.host for rule in ran.egress.rules] == ["a.web.example"]
    assert (ran.timeout_s, ran.limits.pids) == (9, 90)


def test_a_command_that_is_taken_up_is_redacted_as_policy_demanded_when_it_began(stage, crew, tmp_path):
    demand = "obligations: {redactions: [{pattern: 'tok_[a-z]+'}, {literal: hunter2}]}"
    redacting = POLICY.replace("tool: workspace.exec}", f"tool: workspace.exec, {demand}}}")
    chosen = bundle(tmp_path / "redacting", redacting, stage.registry)
    stage.pipeline, keep = stage.pipeline_with(chosen), stage.pipeline
    call = submit(stage, "workspace.exec", {"command": "done"})
    assert stage.claims(chosen, generation=crew.host.generation).take() is not None
    stage.pipeline = keep  # the next worker reads a bundle that demands nothing
    crew.sandboxes.choose = lambda _asked: Script(stdout=b"a tok_abc b hunter2")
    crew.next().recovery.take_up()
    assert result(stage, call).structured["stdout"] == "a [redacted] b [redacted]"
    assert not any(secret in str(stage.events()) for secret in ("tok_abc", "hunter2"))


def test_a_command_that_ended_meanwhile_gives_its_result(stage, crew):
    call = submit(stage, "workspace.exec", {"command": "done"})
    claimed = claim(stage, crew)
    room = crew.sandbox_registry.ready(stage.session.id)
    write, stage.writer.run = stage.writer.run, lambda _work: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):  # the worker dies between the exec's end and its record
        stage.execution().run(claimed, lambda: room)
    stage.writer.run = write
    assert crew.next().recovery.take_up() == 1
    assert len(crew.sandboxes.runs) == 1
    assert result(stage, call).structured["stdout"] == "done"


def test_a_command_that_never_started_runs_now(stage, crew):
    call = submit(stage, "workspace.exec", {"command": "late"})
    claim(stage, crew)
    crew.next().recovery.take_up()
    assert len(crew.sandboxes.runs) == 1
    assert result(stage, call).structured["stdout"] == "late"


def test_a_call_that_only_reads_is_done_again_as_another_attempt(stage, crew):
    crew.sandbox_registry.ready(stage.session.id).files.put("a", b"content")
    call = submit(stage, "workspace.read", {"path": "a"})
    claim(stage, crew)
    later = crew.next()
    later.recovery.take_up()
    again = claim(stage, later)
    assert (again.stored.identity.tool_call_id, again.stored.identity.attempt) == (call, 2)
    later.execution.run(again, lambda: later.sandbox_registry.ready(stage.session.id))
    assert result(stage, call).text == "content"


def test_a_call_that_wrote_is_reported_lost_and_not_done_again(stage, crew):
    allow = bundle(
        stage.root / "allow",
        POLICY.replace("ask, tool: workspace.write, approval: {timeout: 10m}", "allow, tool: workspace.write"),
        stage.registry,
    )
    outcome = stage.pipeline_with(allow).submit("workspace.write", {"path": "a", "content": "b"}, stage.subject)
    stage.claims(allow).take()
    crew.next().recovery.take_up()
    lost = result(stage, outcome.identity.tool_call_id)
    assert (lost.is_error, lost.code) == (True, "WORKER_LOST")
    assert "not run again" in lost.text
    assert crew.sandbox_registry.ready(stage.session.id).files.read("a").error == "NOT_FOUND"


def test_a_command_whose_sandbox_is_gone_is_lost(stage, crew):
    crew.sandbox_registry.reconcile()
    call = submit(stage, "workspace.exec", {"command": "x"})
    printed = Chunk(stream="stdout", offset=0, data=b"x" * DELTA_BYTES)
    OutputLog(claim(stage, crew), stage.log, stage.writer, stage.clock).add(printed)
    crew.sandboxes.crash(crew.sandboxes.living[0])
    crew.next().recovery.take_up()
    assert result(stage, call).code == "WORKER_LOST"
    assert stage.types()[-2:] == ["tool.output.completed", "tool.call.completed"]
    assert stage.events()[-2].payload["stdout"]["bytes"] == DELTA_BYTES


def test_a_call_of_a_tool_that_is_gone_does_not_keep_the_worker_from_starting(stage, crew):
    first = submit(stage, "workspace.read", {"path": "a"})
    second = submit(stage, "workspace.exec", {"command": "x"})
    claim(stage, crew), claim(stage, crew)
    later = crew.next()
    rest = Registry(tool for tool in stage.registry.tools() if tool.name != "workspace.read")
    recovery = Recovery(
        host=later.host,
        sandbox_registry=later.sandbox_registry,
        registry=rest,
        execution=stage.execution(registry=rest),
        in_flight=later.in_flight,
        database=stage.database,
        writer=stage.writer,
    )
    assert recovery.take_up() == 2
    assert result(stage, first).code == "WORKER_LOST"
    assert not result(stage, second).is_error


def test_an_older_worker_cannot_end_a_call_that_was_taken_over(stage, crew):
    submit(stage, "workspace.exec", {"command": "x"})
    claimed = claim(stage, crew)
    crew.next().recovery.take_up()
    before = stage.events()
    with pytest.raises(IllegalTransition):
        stage.writer.run(
            lambda unit: complete(
                unit, stage.log, claimed, ToolResult(text="late"), result_ref=None, last_output=(), duration_ms=0.0
            )
        )
    assert stage.events() == before


def lose_answer(stage, monkeypatch):
    """The next commit happens, and nobody hears of it."""
    stored = stage.writer._commit_with_retry
    left = [1]

    def lost(jobs):
        group = stored(jobs)
        if not left:
            return group
        left.pop()
        raise OperationalError("COMMIT", None, Exception("server closed the connection"), connection_invalidated=True)

    monkeypatch.setattr(stage.writer, "_commit_with_retry", lost)


def test_a_call_whose_claim_was_committed_and_not_answered_runs_all_the_same_and_once(stage, crew, monkeypatch):
    call = submit(stage, "workspace.exec", {"command": "x"})
    claims, lost = crew.dispatcher._claims, threading.Event()

    def commit_unanswered(work):
        assert stage.writer.run(work) is not None
        lost.set()
        raise StorageUnavailable("The connection broke.")

    monkeypatch.setattr(claims, "_writer", SimpleNamespace(run=commit_unanswered))
    crew.dispatcher.poll()
    assert lost.wait(10)
    wait_for(lambda: not crew.in_flight._claims, "its answer to be lost")
    crew.recovery.recover_orphaned()
    assert crew.sandboxes.runs == []
    crew.recovery.recover_orphaned()
    assert result(stage, call).structured["stdout"] == "x"
    assert len(crew.sandboxes.runs) == 1


def unheard(stage, crew, name, given):
    """A call that was claimed while nobody heard of it, and was seen to be nobody's."""
    call = submit(stage, name, given)
    assert claim(stage, crew) is not None
    crew.recovery.recover_orphaned()
    return call


def test_a_call_that_was_cancelled_before_anybody_knew_of_its_claim_is_not_begun(stage, crew):
    call = unheard(stage, crew, "workspace.exec", {"command": "x"})
    stage.cancel(call, "enough")
    crew.recovery.recover_orphaned()
    assert (result(stage, call).code, crew.sandboxes.runs) == ("NOT_BEGUN", [])
    assert "cancelled" in result(stage, call).text


def test_nor_is_one_whose_host_was_given_up_meanwhile(stage, crew):
    def gone():
        raise StorageUnavailable("The host is not this worker's any more.", retryable=False)

    call = unheard(stage, crew, "workspace.exec", {"command": "x"})
    crew.sandbox_registry._confirm = gone
    crew.recovery.recover_orphaned()
    assert crew.sandboxes.runs == []
    assert result(stage, call).is_error


def test_an_end_that_was_committed_and_not_answered_is_an_end(stage, crew, monkeypatch):
    call = submit(stage, "workspace.exec", {"command": "x"})
    claimed = claim(stage, crew)
    room = crew.sandbox_registry.ready(stage.session.id)
    monkeypatch.setattr("codesdk.toolcalls.execution.RETRY_S", 0.0)
    lose_answer(stage, monkeypatch)
    assert not crew.execution.run(claimed, lambda: room).is_error
    assert result(stage, call).structured["stdout"] == "x"
    assert stage.types().count("tool.call.completed") == 1
    assert room.runs() == {}  # the runner was told that it may forget it


def test_a_worker_that_was_replaced_claims_nothing_and_takes_nothing_over(stage, crew):
    submit(stage, "workspace.exec", {"command": "x"})
    later = crew.next()
    assert claim(stage, crew) is None
    assert claim(stage, later) is not None
    assert crew.recovery.take_up() == 0
    assert stage.sql("SELECT generation FROM tool_calls") == [(2,)]


def test_a_sandbox_that_cannot_be_looked_up_while_the_database_is_away_is_waited_for(stage, crew, monkeypatch):
    call = submit(stage, "workspace.exec", {"command": "x"})
    claimed = claim(stage, crew)
    monkeypatch.setattr("codesdk.toolcalls.execution.RETRY_S", 0.0)
    away = [True, True]

    def opened():
        if away:
            away.pop()
            raise StorageUnavailable("The database is away.")
        return crew.sandbox_registry.ready(stage.session.id)

    assert not crew.execution.run(claimed, opened).is_error
    assert result(stage, call).structured["stdout"] == "x"


def test_a_command_whose_sandbox_cannot_be_looked_up_for_a_moment_is_not_lost(stage, crew, monkeypatch):
    call = submit(stage, "workspace.exec", {"command": "done"})
    claimed = claim(stage, crew)
    room = crew.sandbox_registry.ready(stage.session.id)
    write, stage.writer.run = stage.writer.run, lambda _work: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        stage.execution().run(claimed, lambda: room)
    stage.writer.run = write
    after = crew.next()
    ready, away = after.sandbox_registry.ready, [True]

    def hesitant(session):
        if away:
            away.pop()
            raise StorageUnavailable("The database is away.")
        return ready(session)

    monkeypatch.setattr(after.sandbox_registry, "ready", hesitant)
    after.recovery.take_up()
    assert stage.find(call) is not None
    assert "tool.call.completed" not in stage.types()
    for _ in range(2):
        after.recovery.recover_orphaned(lambda work: work())
    assert result(stage, call).structured["stdout"] == "done"
    assert len(crew.sandboxes.runs) == 1


def test_queued_and_waiting_calls_are_left_to_the_new_worker(stage, crew):
    submit(stage, "workspace.write", {"path": "a", "content": "b"})
    submit(stage, "workspace.read", {"path": "a"})
    later = crew.next()
    assert later.recovery.take_up() == 0
    assert claim(stage, crew) is None  # the worker before starts nothing any more
    assert claim(stage, later) is not None


def test_every_worker_of_a_host_has_a_higher_number(stage, crew):
    assert [stage.host.generation, stage.register().generation, stage.register().generation] == [1, 2, 3]
    assert stage.register().id == stage.host.id


def test_only_the_classification_says_what_is_done_again(stage, crew):
    tools = [
        replace(tool, classification="write") if tool.name == "workspace.read" else tool
        for tool in stage.registry.tools()
    ]
    call = submit(stage, "workspace.read", {"path": "a"})
    claim(stage, crew)
    later = crew.next()
    Recovery(
        host=later.host,
        sandbox_registry=later.sandbox_registry,
        registry=Registry(tools),
        execution=stage.execution(registry=Registry(tools)),
        in_flight=later.in_flight,
        database=stage.database,
        writer=stage.writer,
    ).take_up()
    assert result(stage, call).code == "WORKER_LOST"
