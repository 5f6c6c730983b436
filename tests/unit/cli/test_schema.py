from __future__ import annotations

import json

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from codesdk.cli.app import app
from codesdk.cli.schema import events_reference, json_schema
from codesdk.cli.schema.published_models import PUBLISHED, closure, field_docs
from codesdk.domain.payloads import PAYLOADS
from models import records
from stage import REPOSITORY, Room, said

REFERENCE = REPOSITORY / "docs" / "reference"
SCHEMA = json_schema.build_schema()
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)


def event(kind, payload):
    return {
        "schema_version": 1,
        "seq": 1,
        "time": "2026-01-01T00:00:00.000Z",
        "type": kind,
        "trace": {"session_id": "ses_1"},
        "runtime": {"name": "mcp-client"},
        "payload": payload,
    }


@pytest.mark.parametrize(
    ("file", "text"),
    [("events.md", events_reference.page), (f"schema/{json_schema.FILE_NAME}", json_schema.schema_text)],
    ids=["events.md", json_schema.FILE_NAME],
)
def test_what_is_generated_is_current(file, text):
    assert (REFERENCE / file).read_text() == text(), "run `make reference`"


def test_the_same_models_give_the_same_bytes():
    assert json_schema.schema_text() == json_schema.schema_text()


def test_the_command_writes_what_is_in_the_repository(tmp_path):
    done = CliRunner().invoke(app, ["schema", "export", str(tmp_path / "new")])
    assert done.exit_code == 0
    assert (tmp_path / "new" / json_schema.FILE_NAME).read_text() == (
        REFERENCE / "schema" / json_schema.FILE_NAME
    ).read_text()


def test_the_bundle_is_a_json_schema():
    jsonschema_rs.meta.validate(SCHEMA)


@pytest.mark.parametrize("model", PUBLISHED, ids=lambda model: model.__name__)
def test_every_published_shape_is_in_the_bundle(model):
    assert model.__name__ in SCHEMA["$defs"]


@pytest.mark.parametrize("model", closure(tuple(PAYLOADS.values())), ids=lambda model: model.__name__)
def test_every_field_of_a_payload_is_documented(model):
    assert set(model.model_fields) <= set(field_docs(model))


@pytest.mark.parametrize("model", PAYLOADS.values(), ids=lambda model: model.event_type)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_written_fits_the_schema(model, data):
    VALIDATOR.validate(json.loads(json.dumps(event(model.event_type.value, data.draw(records(model)).wire()))))


def test_a_stored_run_fits_the_schema(stage):
    stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    stage.execution().run(stage.claims().take(), lambda: Room(said(b"y" * 50_000, ("stderr", b"z"))))
    stage.pipeline.submit("patch.apply", {"patch": "x"}, stage.subject)
    stage.pipeline.submit("workspace.write", {"path": "a", "content": "b"}, stage.subject)
    stage.sessions.close(stage.principal.tenant_id, stage.subject.session_id)
    events = stage.events()
    assert len(events) > 10
    for stored in events:
        VALIDATOR.validate(stored.model_dump(mode="json", exclude_none=True))


def test_a_payload_of_another_type_does_not_fit():
    wrong = event("tool.call.denied", {"sandbox_id": "sbx_1", "execution_env": "codesdk_docker"})
    assert not VALIDATOR.is_valid(wrong)
    assert VALIDATOR.is_valid({**wrong, "type": "sandbox.stopped"})


def test_readers_may_meet_keys_and_types_of_a_later_version():
    later = event("sandbox.stopped", {"sandbox_id": "s", "execution_env": "codesdk_host", "later": 1})
    assert VALIDATOR.is_valid({**later, "later": 2})
    assert VALIDATOR.is_valid(event("extension.ours.done", {"x": 1}))
    assert not VALIDATOR.is_valid(event("tool.call.paused", {}))


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["schema", "export", str(tmp_path / "file")])
    assert done.exit_code != 0
    assert "cannot be written" in str(done.exception)
