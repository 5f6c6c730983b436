from __future__ import annotations

import importlib
import json
import pkgutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

import codesdk.domain
from codesdk.domain.canonical import canonical_json
from codesdk.domain.content import TextBlock, ToolResultBlock, TranscriptMessage
from codesdk.domain.decisions import UNREDACTED
from codesdk.domain.model import FrozenModel
from codesdk.domain.runtime_input import RuntimeInput, ToolManifest, ToolManifestEntry
from codesdk.domain.runtimes import RuntimeCapabilities, RuntimeEnv
from models import records


def models() -> list[type[BaseModel]]:
    for module in pkgutil.walk_packages(codesdk.domain.__path__, "codesdk.domain."):
        importlib.import_module(module.name)
    found, todo = [], [FrozenModel]
    while todo:
        for model in todo.pop().__subclasses__():
            if model.__module__.startswith("codesdk.domain"):
                found.append(model)
                todo.append(model)
    return sorted(set(found), key=lambda model: model.__name__)


CAPABILITIES = {
    "supports_streaming": True,
    "supports_tool_calls": True,
    "supports_parallel_tool_calls": False,
    "supports_stop": True,
    "supports_artifacts": False,
    "supports_session_create": True,
    "supports_session_resume": True,
    "supports_usage_reporting": True,
    "supports_non_interactive": True,
    "auth_model": "both",
    "tool_execution_model": "external_mcp",
    "permission_model": "codesdk",
    "state_model": "local_disk",
    "resume_model": "native",
    "tool_replay_safety": "requires_reapproval",
    "mcp_support": "client_only",
    "mcp_transports": ["http", "stdio"],
    "cancellation_model": "best_effort",
    "supported_isolation_modes": ["subprocess"],
    "recommended_isolation_mode": "subprocess",
}


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_a_record_comes_back_from_json_as_it_went(model, data):
    record = data.draw(records(model))
    assert model.model_validate_json(record.model_dump_json(context=UNREDACTED)) == record
    assert model.model_validate_json(record.model_dump_json(exclude_none=True, context=UNREDACTED)) == record
    assert model.model_validate(json.loads(json.dumps(record.model_dump(mode="json", context=UNREDACTED)))) == record


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_a_record_says_what_it_is(model):
    assert model.__doc__


def test_a_record_is_not_changed_once_it_is_made():
    with pytest.raises(ValidationError):
        TextBlock(text="x").text = "y"


def test_a_misspelt_field_is_an_error():
    with pytest.raises(ValidationError):
        TextBlock.model_validate({"text": "x", "txt": "y"})


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "a"},
        {"type": "code", "code": "a", "language": "python"},
        {"type": "artifact_ref", "artifact_id": "art_1", "content_type": "image/png"},
        {"type": "tool_use", "tool_call_id": "call_1", "name": "workspace.read", "input": {"path": "a"}},
        {"type": "tool_result", "tool_call_id": "call_1", "result": None, "is_error": True},
    ],
    ids=lambda block: block["type"],
)
def test_a_block_is_told_by_its_type(block):
    message = TranscriptMessage.model_validate({"role": "tool", "content": [block]})
    assert message.content[0].type == block["type"]
    assert message.content[0].model_dump(mode="json", exclude_unset=True) == block


@pytest.mark.parametrize("block", [{"type": "image"}, {"text": "a"}, {"type": "tool_use", "text": "a"}])
def test_anything_else_is_no_block(block):
    with pytest.raises(ValidationError):
        TranscriptMessage.model_validate({"role": "user", "content": [block]})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"recommended_isolation_mode": "in_process"}, "recommended_isolation_mode"),
        ({"max_outstanding_tool_calls": 2}, "max_outstanding_tool_calls"),
        ({"max_outstanding_tool_calls": 0}, "max_outstanding_tool_calls"),
        ({"mcp_support": "none"}, "mcp_transports"),
        ({"supported_isolation_modes": []}, "supported_isolation_modes"),
        ({"auth_model": "magic"}, "auth_model"),
    ],
)
def test_capabilities_that_contradict_themselves_are_refused(change, what):
    RuntimeCapabilities.model_validate(CAPABILITIES)
    with pytest.raises(ValidationError, match=what):
        RuntimeCapabilities.model_validate({**CAPABILITIES, **change})


def test_a_runtimes_environment_is_not_printed():
    env = RuntimeEnv(cwd="/", env={"KEY": "secret-value"}, credential_namespace="prn_1")
    assert "secret-value" not in repr(env)


def runtime_input(**change):
    tools = (ToolManifestEntry(name="workspace.read", description="Reads.", input_schema={}, schema_hash="sha256:1"),)
    said = TranscriptMessage(role="user", content=(TextBlock(text="hi"),))
    given_input = {"messages": (said,), "tool_manifest": ToolManifest(tools=tools), "runtime_config": {"model": "m"}}
    return RuntimeInput(**{**given_input, **change})


def test_the_hash_of_an_input_counts_schemas_by_hash_and_not_their_words():
    tools = (ToolManifestEntry(name="workspace.read", description="Reads files.", schema_hash="sha256:1"),)
    assert runtime_input(tool_manifest=ToolManifest(tools=tools)).input_hash() == runtime_input().input_hash()
    other = (ToolManifestEntry(name="workspace.read", schema_hash="sha256:2"),)
    assert runtime_input(tool_manifest=ToolManifest(tools=other)).input_hash() != runtime_input().input_hash()


@pytest.mark.parametrize(
    "change",
    [
        {"messages": ()},
        {"runtime_config": {"model": "n"}},
        {"context_window": {"strategy": "drop_oldest", "truncated": True, "omitted_ids": ("tsk_1",)}},
    ],
)
def test_the_hash_of_an_input_changes_with_what_the_runtime_sees(change):
    assert runtime_input(**change).input_hash() != runtime_input().input_hash()


def test_a_result_that_is_null_stays_in_the_canonical_form():
    block = ToolResultBlock(tool_call_id="call_1", result={"a": None})
    assert canonical_json(block.model_dump(mode="json", exclude_none=True)).endswith(b'"type":"tool_result"}')
    assert b'"a":null' in canonical_json(block.model_dump(mode="json", exclude_none=True))
