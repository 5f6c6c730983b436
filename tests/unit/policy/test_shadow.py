"""A shadow bundle: counted, never enforced, and without effect on live decisions."""

from __future__ import annotations

import threading

import pytest

from codesdk.domain.calls import CallIdentity, ToolCall
from codesdk.domain.decisions import Effect
from codesdk.policy import decide
from codesdk.policy.rollout import shadow as shadow_module
from codesdk.policy.rollout.shadow import ShadowEvaluator
from codesdk.policy.rollout.version_models import SHARED
from codesdk.toolcalls.decision.call_decision import CallDecisions
from codesdk.toolcalls.records.call_record import Denied, Queued

from .conftest import WRITE, subject
from .test_versions import Office, rules

ALLOW, ASK, DENY = Effect.ALLOW, Effect.ASK, Effect.DENY


@pytest.fixture
def office(stage, tmp_path):
    return Office(stage, tmp_path)


@pytest.fixture
def shadow(office):
    made = ShadowEvaluator(office.active, office.versions.add_differences)
    yield made
    made.close()


def call(number):
    identity = CallIdentity(tool_call_id=f"call_{number}", input_hash="sha256:" + "0" * 64)
    return ToolCall(identity=identity, name="workspace.write", input={"path": "a", "content": ""})


def see(office, shadow, number=1):
    made = call(number)
    decision = decide(made, WRITE, subject(), office.active.of("ten_1"))
    shadow.observe(made, WRITE, subject(), decision)
    return decision.effect


def seen(office, version):
    return [
        (d.before, d.after, d.rule, d.count, d.last_call) for d in office.versions.differences(SHARED, version.hash)
    ]


def test_differences_are_counted_and_the_live_decision_stays(office, shadow):
    version = office.versions.shadow(SHARED, {"policy.yaml": rules(DENY)}, "prn_boss")
    office.active.refresh()
    assert [see(office, shadow, number) for number in range(3)] == [ALLOW] * 3
    shadow.process_queue()
    see(office, shadow, 9)
    shadow.process_queue()
    assert seen(office, version) == [(ALLOW, DENY, "a", 4, "call_9")]
    assert office.effect() is ALLOW


def test_what_decides_the_same_is_counted_too_and_nothing_is_tried_after_the_end(office, shadow):
    version = office.versions.shadow(SHARED, {"policy.yaml": rules(ALLOW, "default: ask\n")}, "prn_boss")
    office.active.refresh()
    see(office, shadow)
    shadow.process_queue()
    assert seen(office, version) == [(ALLOW, ALLOW, "a", 1, "call_1")]
    office.versions.end_shadow(SHARED, "prn_boss")
    office.active.refresh()
    see(office, shadow)
    shadow.process_queue()
    assert seen(office, version) == [(ALLOW, ALLOW, "a", 1, "call_1")]


def test_an_error_in_the_candidate_is_counted_and_touches_nothing(office, shadow, monkeypatch):
    version = office.versions.shadow(SHARED, {"policy.yaml": rules(DENY)}, "prn_boss")
    office.active.refresh()

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(shadow_module, "decide", fail)
    assert see(office, shadow) is ALLOW
    shadow.process_queue()
    assert seen(office, version) == [(ALLOW, None, "", 1, "call_1")]


def test_a_candidate_that_falls_behind_skips_calls_and_holds_none_up(office, shadow, monkeypatch):
    office.versions.shadow(SHARED, {"policy.yaml": rules(DENY)}, "prn_boss")
    office.active.refresh()
    monkeypatch.setattr(shadow_module, "MAX_QUEUED", 5)
    assert [see(office, shadow, number) for number in range(8)] == [ALLOW] * 8
    assert (shadow.skipped(), shadow.skipped("ten_1"), shadow.skipped("ten_2")) == (3, 3, 0)


def test_large_inputs_wait_in_bounded_memory_and_let_go_of_it(office, shadow, monkeypatch):
    office.versions.shadow(SHARED, {"policy.yaml": rules(DENY)}, "prn_boss")
    office.active.refresh()
    monkeypatch.setattr(shadow_module, "MAX_QUEUED_BYTES", 3 * shadow_module.estimate_size(call(1).input))
    assert [see(office, shadow, number) for number in range(5)] == [ALLOW] * 5
    assert shadow.skipped() == 2
    shadow.process_queue()
    see(office, shadow)
    assert shadow.skipped() == 2


def test_what_an_input_holds_is_measured_to_a_bound():
    assert shadow_module.estimate_size({"a": ["b" * 100, {"c": "d" * 50}]}) == 152 + 8 * 5
    assert shadow_module.estimate_size([0] * 20_000) == shadow_module.MAX_QUEUED_BYTES


def test_a_tenants_candidate_stands_on_the_shared_rules_and_is_tried_for_it_alone(office, shadow):
    version = office.versions.shadow("ten_1", {"policy.yaml": rules(ASK)}, "prn_boss")
    office.active.refresh()
    assert office.active.candidate("ten_2", None) is None
    see(office, shadow)
    shadow.process_queue()
    found = office.versions.differences("ten_1", version.hash)
    assert [(d.before, d.after, d.rule) for d in found] == [(ALLOW, ASK, "tenant/a")]


def test_the_thread_writes_what_it_counted_before_it_ends(office, shadow):
    version = office.versions.shadow(SHARED, {"policy.yaml": rules(DENY)}, "prn_boss")
    office.active.refresh()
    others = set(threading.enumerate())  # an installation that another test keeps open has such a thread as well
    shadow.start()
    (ours,) = (thread for thread in set(threading.enumerate()) - others if thread.name == "codesdk-shadow")
    see(office, shadow)
    shadow.close()
    assert seen(office, version) == [(ALLOW, DENY, "a", 1, "call_1")]
    assert not ours.is_alive()


def test_the_pipeline_shows_every_call_and_obeys_the_bundle_in_force(stage, office, shadow):
    version = office.versions.shadow(SHARED, {"policy.yaml": rules(DENY, "default: deny\n")}, "prn_boss")
    office.active.refresh()
    pipeline = stage.pipeline_of(stage.registry, CallDecisions(office.active, stage.approval_service), shadow=shadow)
    outcomes = [
        pipeline.submit("workspace.write", {"path": "a", "content": "b"}, stage.subject),
        pipeline.submit("workspace.read", {"path": "a"}, stage.subject),
    ]
    assert [type(outcome) for outcome in outcomes] == [Queued, Denied]
    shadow.process_queue()
    assert {(before, after) for before, after, *_ in seen(office, version)} == {(ALLOW, DENY), (DENY, DENY)}
