"""Recorded calls as policy queries."""

from __future__ import annotations

from codesdk.toolcalls.records import policy_inputs


def test_a_tenants_calls_are_judged_again_without_reading_those_of_others(stage):
    stage.pipeline.submit("workspace.read", {"path": "a"}, stage.subject)
    other, _ = stage.enroll("another", "stranger")
    stranger = stage.open_session(other)
    stage.pipeline.submit("workspace.read", {"path": "a"}, stranger)
    stage.sql("UPDATE tool_calls SET input = 'damaged' WHERE tenant_id = :other", other=other.tenant_id)
    found = list(policy_inputs.newest_inputs(stage.database, 1.0, stage.principal.tenant_id, 10))
    assert policy_inputs.count_inputs(stage.database, 1.0, stage.principal.tenant_id) == 1
    assert [one.session.id for one in found] == [stage.subject.session_id]


def test_calls_are_read_page_by_page_and_each_is_asked_once(stage, monkeypatch):
    monkeypatch.setattr(policy_inputs, "PAGE", 2)
    for number in range(5):
        stage.pipeline.submit("workspace.read", {"path": f"f{number}"}, stage.subject)
    asked = [one.input["path"] for one in policy_inputs.inputs_since(stage.database, 1.0)]
    assert asked == ["f0", "f1", "f2", "f3", "f4"]
    newest = policy_inputs.newest_inputs(stage.database, 1.0, stage.principal.tenant_id, 3)
    assert [one.input["path"] for one in newest] == ["f4", "f3", "f2"]
    assert policy_inputs.count_inputs(stage.database, 1.0, stage.principal.tenant_id) == 5
