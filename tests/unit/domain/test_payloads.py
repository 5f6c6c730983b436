from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from codesdk.domain.events import Event, EventType, EventUnreadable, RuntimeInfo, Trace
from codesdk.domain.payloads import PAYLOADS, CallCompleted, CallPayload, ModelOutputDelta, SessionCreated, read_payload
from models import records


def event(type_, payload):
    return Event(
        seq=1,
        time="2026-01-01T00:00:00.000Z",
        type=type_,
        trace=Trace(session_id="ses_1"),
        runtime=RuntimeInfo(name="mcp-client"),
        payload=payload,
    )


def test_every_type_has_exactly_one_payload():
    assert set(PAYLOADS) == set(EventType)
    assert len(set(PAYLOADS.values())) == len(EventType)


@pytest.mark.parametrize("model", PAYLOADS.values(), ids=lambda model: model.event_type)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_a_payload_comes_back_from_its_event(model, data):
    payload = data.draw(records(model))
    stored = event(model.event_type, payload.wire())
    assert read_payload(Event.model_validate_json(stored.model_dump_json(exclude_none=True))) == payload


@pytest.mark.parametrize("model", PAYLOADS.values(), ids=lambda model: model.event_type)
def test_every_event_of_a_call_carries_the_identity_of_the_attempt(model):
    if model.event_type.startswith("tool."):
        assert issubclass(model, CallPayload)
        assert {"tool_call_id", "runtime_tool_call_id", "attempt", "input_hash"} <= set(model.model_fields)


def test_a_reader_ignores_keys_that_it_does_not_know():
    payload = {
        "contract_version": "1.0",
        "permission_mode": "auto",
        "labels": {},
        "profile": "default",
        "image": "sha256:0",
        "later": 1,
    }
    assert isinstance(read_payload(event("session.created", payload)), SessionCreated)


def test_a_writer_may_not_write_what_is_not_declared():
    with pytest.raises(ValidationError):
        ModelOutputDelta.model_validate({"kind": "text_delta", "block_id": "b", "delta": "x", "blck": 1})


def test_a_wrong_payload_is_a_fault_that_names_event_and_field():
    with pytest.raises(EventUnreadable, match=r"Event 1 \(tool.call.denied\) has a wrong payload: policy_snapshot"):
        read_payload(
            event(
                "tool.call.denied",
                {"tool_call_id": "c", "attempt": 1, "input_hash": "h", "name": "a.b", "reason": "r", "code": "X"},
            )
        )


@pytest.mark.parametrize("type_", ["extension.ours.done", "sandbox.later", "approval.dreamt", "failover.switched"])
def test_an_unknown_type_under_our_prefixes_is_passed_on(type_):
    passed = event(type_, {"anything": [1]})
    assert (passed.type, passed.payload) == (type_, {"anything": [1]})
    assert Event.model_validate_json(passed.model_dump_json()) == passed
    assert read_payload(passed) is None


@pytest.mark.parametrize("type_", ["tool.call.paused", "extension", "extension.", "extensions.x", "sandbox.X", ""])
def test_any_other_type_is_none(type_):
    with pytest.raises(ValidationError):
        event(type_, {})


def test_missing_values_are_left_out_and_nulls_in_what_tools_said_are_not():
    payload = CallCompleted.model_validate(
        {
            "tool_call_id": "call_1",
            "input_hash": "sha256:0",
            "name": "a.b",
            "executed_by": "codesdk",
            "execution_env": "codesdk_docker",
            "policy_snapshot": {"decision": "allow", "sources": []},
            "result_preview": {"signal": None},
        }
    )
    assert payload.wire() == {
        "tool_call_id": "call_1",
        "attempt": 1,
        "input_hash": "sha256:0",
        "name": "a.b",
        "executed_by": "codesdk",
        "execution_env": "codesdk_docker",
        "policy_snapshot": {"decision": "allow", "sources": []},
        "is_error": False,
        "result_preview": {"signal": None},
    }
