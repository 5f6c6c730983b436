from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from codesdk.approvals import ApprovalState, Verdict
from codesdk.domain.calls import DenialCode, IllegalTransition
from codesdk.domain.tool_results import ToolResult
from codesdk.registry import ActiveRegistry, Registry
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied
from stage import POLICY, bundle

WRITE = ("workspace.write", {"path": "a", "content": "b"})
READ = ("workspace.read", {"path": "a"})
EXEC = ("workspace.exec", {"command": "true"})


def approve(stage, call=WRITE):
    waiting = stage.pipeline.submit(*call, stage.subject)
    asked = stage.approval_service.find(stage.principal.tenant_id, waiting.approval_id)
    stage.pipeline.vote(
        asked.tenant_id, asked.id, Verdict.APPROVE, digest=asked.digest, by=stage.principal.id, comment=None
    )
    return asked


def finish(stage, claimed, result=None):
    stage.writer.run(
        lambda unit: complete(
            unit, stage.log, claimed, result or ToolResult(text="ok"), result_ref=None, last_output=(), duration_ms=1.0
        )
    )


def other(stage, policy):
    return bundle(stage.root / "other", policy, stage.registry)


def retold(stage, **changes):
    return Registry(replace(tool, **changes) for tool in stage.registry.tools())


def state(stage, asked):
    return stage.approval_service.find(asked.tenant_id, asked.id).state


def test_the_oldest_call_is_taken_first_and_each_once(stage):
    calls = [stage.pipeline.submit("workspace.read", {"path": str(n)}, stage.subject) for n in range(5)]
    taken = [stage.claims().take() for _ in range(6)]
    assert [claimed.stored.identity for claimed in taken[:5]] == [call.identity for call in calls]
    assert taken[5] is None


def test_claims_of_many_threads_take_each_call_once(stage):
    subject = stage.open_session(parallel_calls=30)
    for number in range(30):
        stage.pipeline.submit("workspace.read", {"path": str(number)}, subject)
    claims = stage.claims()
    start = threading.Barrier(8)

    def take(_):
        start.wait(10)
        taken = []
        while claimed := claims.take():
            taken.append(claimed.stored.identity.tool_call_id)
        return taken

    with ThreadPoolExecutor(8) as pool:
        taken = [call for calls in pool.map(take, range(8)) for call in calls]
    assert len(taken) == len(set(taken)) == 30


def test_a_claim_uses_its_approval_up(stage):
    asked = approve(stage)
    assert isinstance(stage.claims().take(), ClaimedCall)
    assert state(stage, asked) is ApprovalState.CONSUMED


def test_approved_and_started_are_one_transaction(stage):
    approve(stage)
    seen = []
    stage.hints.listen(lambda session: seen.append([e.type.value for e in stage.log.read(session)]))
    stage.claims().take()
    stage.writer.close()
    assert all(("tool.call.approved" in types) == ("tool.call.started" in types) for types in seen)


def test_a_policy_that_denies_now_denies(stage):
    stage.pipeline.submit(*READ, stage.subject)
    denied = stage.claims(
        other(stage, POLICY.replace("allow, classification: read-only", "deny, classification: read-only"))
    ).take()
    assert isinstance(denied, Denied)
    assert denied.code is DenialCode.POLICY
    assert stage.types()[-1] == "tool.call.denied"


def test_a_policy_that_asks_now_denies_what_nobody_was_asked(stage):
    stage.pipeline.submit(*READ, stage.subject)
    denied = stage.claims(
        other(stage, POLICY.replace("allow, classification: read-only", "ask, classification: read-only"))
    ).take()
    assert isinstance(denied, Denied)


def test_an_approval_does_not_outlive_a_policy_that_denies(stage):
    asked = approve(stage)
    denied = stage.claims(
        other(stage, POLICY.replace("effect: ask", "effect: deny").replace(", approval: {timeout: 10m}", ""))
    ).take()
    assert isinstance(denied, Denied)
    assert denied.code is DenialCode.VOIDED
    assert state(stage, asked) is ApprovalState.VOIDED


def test_an_approval_does_not_hold_for_other_rules(stage):
    asked = approve(stage)
    denied = stage.claims(other(stage, POLICY.replace("id: writes", "id: other"))).take()
    assert isinstance(denied, Denied)
    assert (denied.code, state(stage, asked)) == (DenialCode.VOIDED, ApprovalState.VOIDED)


def test_a_rule_that_has_nothing_to_do_with_it_voids_no_approval(stage):
    approve(stage)
    changed = POLICY.replace("No patches here.", "None at all.")
    assert isinstance(stage.claims(other(stage, changed)).take(), ClaimedCall)


def test_an_approval_does_not_hold_for_another_schema(stage):
    asked = approve(stage)
    denied = stage.claims(registry=retold(stage, schema_hash="sha256:" + "9" * 64)).take()
    assert isinstance(denied, Denied)
    assert (denied.code, state(stage, asked)) == (DenialCode.VOIDED, ApprovalState.VOIDED)


@pytest.mark.parametrize("column", ["image", "profile"])
def test_an_approval_does_not_hold_for_another_sandbox(stage, column):
    asked = approve(stage)
    smaller = stage.profile.model_copy(update={"memory_bytes": 1}).model_dump_json()
    changed = {"image": "sha256:other", "profile": smaller}[column]
    stage.sql(f"UPDATE sessions SET {column} = :changed", changed=changed)
    denied = stage.claims().take()
    assert isinstance(denied, Denied)
    assert (denied.code, state(stage, asked)) == (DenialCode.VOIDED, ApprovalState.VOIDED)


def test_an_approval_does_not_hold_for_another_input(stage):
    asked = approve(stage)
    stage.tampered = True
    stage.sql("UPDATE tool_calls SET input_hash = :hash", hash="sha256:" + "9" * 64)
    assert isinstance(stage.claims().take(), Denied)
    assert state(stage, asked) is ApprovalState.VOIDED


def test_an_approval_that_was_used_up_elsewhere_runs_nothing(stage):
    asked = approve(stage)
    stage.sql("UPDATE approvals SET state = 'consumed'")
    assert isinstance(stage.claims().take(), Denied)
    assert state(stage, asked) is ApprovalState.CONSUMED


def test_a_tool_that_is_gone_denies_and_voids(stage):
    asked = approve(stage)
    rest = Registry(tool for tool in stage.registry.tools() if tool.name != "workspace.write")
    denied = stage.claims(registry=rest).take()
    assert isinstance(denied, Denied)
    assert (denied.code, state(stage, asked)) == (DenialCode.VOIDED, ApprovalState.VOIDED)


COUNTER = """\
name: lines.count
version: 1.0.0
title: Count
description: Counts lines.
classification: write
runs: {argv: [wc, -l, {arg: /path}]}
input_schema: {type: object, additionalProperties: false, properties: {path: {type: string}}}
"""
ASKS = "version: 1\nrules: [{id: asks, effect: ask, tool: lines.count}]\n"


@pytest.mark.parametrize(
    ("old", "new", "holds"),
    [
        ("{type: string}", "{type: string, maxLength: 9}", False),
        ("[wc, -l,", "[rm, -r,", False),
        ("classification: write", "classification: network", False),
        ("Counts lines.", "Counts the lines.", True),
        ("version: 1.0.0", "version: 1.0.1", True),
    ],
)
def test_an_approval_ends_with_the_tool_that_it_was_given_for(*, stage, tmp_path, old, new, holds):
    """The manifest changes while the call waits: taken up at once, and the approval with it."""
    (tmp_path / "tools").mkdir()
    file = tmp_path / "tools" / "count.yaml"
    file.write_text(COUNTER)
    registry = ActiveRegistry(tmp_path / "tools")
    rules = bundle(tmp_path / "asks", ASKS, registry.shared)
    stage.pipeline = stage.pipeline_with(rules, registry)
    stage.pipeline.submit("lines.count", {"path": "a"}, stage.subject)
    asked = stage.pending()[0]
    file.write_text(COUNTER.replace(old, new))
    registry.refresh()
    stage.pipeline.vote(
        asked.tenant_id, asked.id, Verdict.APPROVE, digest=asked.digest, by=stage.principal.id, comment=None
    )
    taken = stage.claims(rules, registry).take()
    if holds:
        assert taken.stored.call.name == "lines.count"
    else:
        assert (taken.code, state(stage, asked)) == (DenialCode.VOIDED, ApprovalState.VOIDED)


def test_serial_calls_of_one_session_do_not_overlap_and_those_of_two_do(stage):
    other_session = stage.open_session()
    one = stage.pipeline.submit("workspace.exec", {"command": "true"}, stage.subject)
    two = stage.pipeline.submit("workspace.exec", {"command": "false"}, stage.subject)
    three = stage.pipeline.submit("workspace.exec", {"command": "true"}, other_session)
    claims = stage.claims()
    first, second = claims.take(), claims.take()
    assert [first.stored.identity, second.stored.identity] == [one.identity, three.identity]
    assert claims.take() is None
    finish(stage, first)
    assert claims.take().stored.identity == two.identity


def test_a_call_that_only_reads_runs_beside_a_serial_one(stage):
    stage.pipeline.submit(*EXEC, stage.subject)
    read = stage.pipeline.submit(*READ, stage.subject)
    claims = stage.claims()
    claims.take()
    assert claims.take().stored.identity == read.identity


def test_a_denial_in_the_queue_does_not_stop_the_next_call(stage):
    approve(stage)
    stage.pipeline.submit(*READ, stage.subject)
    claims = stage.claims(
        other(stage, POLICY.replace("effect: ask", "effect: deny").replace(", approval: {timeout: 10m}", ""))
    )
    assert isinstance(claims.take(), Denied)
    assert isinstance(claims.take(), ClaimedCall)


def test_calls_of_another_host_are_not_taken(stage):
    stage.pipeline.submit(*READ, stage.subject)
    stage.sql(
        "INSERT INTO hosts (id, name, generation, heartbeat, images, registered_at) VALUES ('hst_b', 'b', 1, 0, '{}', 0)"
    )
    stage.sql("UPDATE tool_calls SET host_id = 'hst_b'")
    assert stage.claims().take() is None


def test_a_stale_generation_cannot_end_a_call(stage):
    stage.pipeline.submit(*READ, stage.subject)
    claimed = stage.claims(generation=1).take()
    stage.sql("UPDATE tool_calls SET generation = 2")
    before = stage.events()
    with pytest.raises(IllegalTransition):
        finish(stage, claimed)
    assert stage.events() == before


def test_a_call_ends_once(stage):
    stage.pipeline.submit(*READ, stage.subject)
    claimed = stage.claims().take()
    finish(stage, claimed)
    before = stage.events()
    with pytest.raises(IllegalTransition):
        finish(stage, claimed)
    assert stage.events() == before
    assert stage.types()[-1] == "tool.call.completed"


def test_a_claim_is_bounded_by_the_tools_time(stage):
    stage.pipeline.submit(*READ, stage.subject)
    claimed = stage.claims().take()
    assert claimed.timeout_s == stage.registry.resolve("workspace.read").timeout_s
    assert claimed.sandbox.model_dump() == {
        "network": False,
        "timeout_ms": int(claimed.timeout_s * 1000),
        "mounts": ("/workspace",),
    }
