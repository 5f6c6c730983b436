"""No search shows a file that policy keeps from agents: at the whole chain from submission to the sandbox's answer."""

from __future__ import annotations

import json

import pytest

from codesdk.toolcalls.records.call_record import Denied, Queued, Waiting
from stage import REPOSITORY, Room, bundle, said

SECRETS = (REPOSITORY / "policies/default/secrets.yaml").read_text()
READS = """\
version: 1
rules:
  - {id: read, effect: allow, classification: read-only}
"""
FILES = (".env", ".github/ci.yml", ".ssh/config", "deep/.env", "server.pem", "src/.env.example", "src/a.py")


def lines(*paths):
    found = [
        {"path": {"text": path}, "lines": {"text": "needle\n"}, "line_number": 1, "absolute_offset": 0}
        for path in paths
    ]
    return b"".join(json.dumps({"type": "match", "data": data}).encode() + b"\n" for data in found)


@pytest.fixture
def guarded(stage, tmp_path):
    (tmp_path / "guarded").mkdir()
    (tmp_path / "guarded" / "secrets.yaml").write_text(SECRETS)
    stage.bundle = bundle(tmp_path / "guarded", READS, stage.registry)
    return stage


def run(stage, given, room):
    outcome = stage.pipeline_with(stage.bundle, stage.registry).submit("workspace.search", given, stage.subject)
    assert isinstance(outcome, Queued), outcome
    return stage.execution().run(stage.claims().take(), lambda: room)


def workspace(output):
    room = Room(said(output))
    for path in FILES:
        room.files.put(path, b"needle\n")
    return room


def test_a_default_search_names_no_hidden_place_that_policy_denies_and_shows_none_of_its_files(guarded):
    room = workspace(lines(*(f"./{path}" for path in FILES)))
    result = run(guarded, {"pattern": "needle"}, room)
    argv = room.requests[0].argv
    assert "--hidden" not in argv
    assert argv[argv.index("--") + 1 :] == (".", ".github")
    shown = [match["path"] for match in result.structured["matches"]]
    assert shown == [".github/ci.yml", "src/a.py"]
    assert not any(secret in result.model_dump_json() for secret in ("server.pem", ".ssh", "deep", '".env"'))


@pytest.mark.parametrize(
    "given",
    [
        {"hidden": True},
        {"hidden": True, "glob": "*.py"},
        {"hidden": True, "ignored": True},
        {"glob": "a,*"},
        {"glob": "*"},
    ],
)
def test_a_search_that_would_read_hidden_files_waits_for_a_person(guarded, given):
    pipeline = guarded.pipeline_with(guarded.bundle, guarded.registry)
    assert isinstance(pipeline.submit("workspace.search", {"pattern": "x", **given}, guarded.subject), Waiting)


@pytest.mark.parametrize("given", [{"path": ".env"}, {"glob": "*.py,.env"}, {"glob": "./.env"}, {"glob": ".ssh/"}])
def test_a_search_of_a_secret_is_denied(guarded, given):
    pipeline = guarded.pipeline_with(guarded.bundle, guarded.registry)
    assert isinstance(pipeline.submit("workspace.search", {"pattern": "x", **given}, guarded.subject), Denied)
