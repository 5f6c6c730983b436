from __future__ import annotations

import json

import pytest

from codesdk.approvals import Verdict
from codesdk.cli.entrypoint import run_command
from codesdk.cli.logs.replay import compare
from codesdk.cli.logs.stored_log import read_stored_log
from codesdk.settings import Settings
from stage import Room, said


@pytest.fixture
def worked(stage):
    """A session in which calls ran, failed, were denied, rejected, and still wait."""
    submit = stage.pipeline.submit
    submit("workspace.exec", {"command": "x"}, stage.subject)
    stage.execution().run(stage.claims().take(), lambda: Room(said(b"hi\n", ("stderr", b"oh"), exit_code=3)))
    submit("workspace.exec", {"command": "large"}, stage.subject)
    stage.execution().run(stage.claims().take(), lambda: Room(said(b"y" * 50_000)))
    submit("patch.apply", {"patch": "x"}, stage.subject)
    submit("workspace.write", {"path": "a", "content": "b" * 9000}, stage.subject)
    (approval,) = stage.pending()
    by = stage.principal
    stage.pipeline.vote(by.tenant_id, approval.id, Verdict.REJECT, digest=approval.digest, by=by.id, comment=None)
    submit("workspace.write", {"path": "c", "content": "d"}, stage.subject)
    submit("workspace.exec", {"command": "queued"}, stage.subject)
    return stage


def settings_of(stage):
    return Settings(data_dir=stage.root, database_url=stage.url)


def compared(stage):
    return compare(read_stored_log(settings_of(stage), stage.subject.session_id))


def test_log_and_rows_agree(worked):
    replayed = compared(worked)
    assert (replayed.violation, replayed.differences) == (None, ())
    states = [call.state for call in replayed.history.calls]
    assert states == ["failed", "completed", "denied", "denied", "waiting", "requested"]


@pytest.mark.parametrize(
    ("statement", "said_"),
    [
        (
            "UPDATE tool_calls SET state = 'completed' WHERE state = 'denied'",
            "its state is 'denied' in the log, 'completed'",
        ),
        (
            "UPDATE tool_calls SET input = '{}' WHERE state = 'queued'",
            "its input is {'command': 'queued'} in the log, {}",
        ),
        ("UPDATE tool_calls SET result = replace(result, 'oh', 'no')", "its result is"),
        ("UPDATE tool_calls SET sources = '[]' WHERE state = 'queued'", "its voices is"),
        ("DELETE FROM tool_calls WHERE state = 'queued'", "has events, but no row"),
        ("UPDATE sessions SET last_seq = last_seq + 1", "the session counts"),
    ],
)
def test_a_row_that_says_something_else_is_named(worked, statement, said_):
    worked.tampered = True
    worked.sql(statement)
    assert any(said_ in difference for difference in compared(worked).differences)


def test_an_imported_log_has_no_rows_to_be_compared_with(worked, tmp_path, monkeypatch, capsys):
    file, session = tmp_path / "out.jsonl", worked.subject.session_id
    there = tmp_path / "there"
    monkeypatch.delenv("CODESDK_DATABASE_URL", raising=False)
    assert run(worked, monkeypatch, "events", "export", session, "--output", str(file)) == 0
    monkeypatch.delenv("CODESDK_DATABASE_URL")
    assert run_command(["init", "--data-dir", str(there)]) == 0
    assert run_command(["events", "import", str(file), "--tenant", "default", "--data-dir", str(there)]) == 0
    capsys.readouterr()
    assert run_command(["events", "replay", session, "--data-dir", str(there)]) == 0
    assert "was imported" in capsys.readouterr().out


def test_an_event_that_is_gone_is_named(worked):
    worked.tampered = True
    worked.sql("DELETE FROM events WHERE seq = 4")
    assert compared(worked).violation == "Event 5 (tool.call.started): it stands where 4 should."


def run(stage, monkeypatch, *arguments):
    monkeypatch.setenv("CODESDK_DATABASE_URL", stage.url)
    return run_command([*arguments, "--data-dir", str(stage.root)])


def test_the_command_says_yes_and_no_with_its_exit_code(worked, monkeypatch, capsys):
    session = worked.subject.session_id
    assert run(worked, monkeypatch, "events", "replay", session, "--json") == 0
    assert json.loads(capsys.readouterr().out)["differences"] == []
    worked.tampered = True
    worked.sql("UPDATE tool_calls SET input_hash = 'sha256:0'")
    assert run(worked, monkeypatch, "events", "replay", session) == 1
    assert "its input hash is" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_the_transcript_can_be_read(worked, monkeypatch, tmp_path, form):
    place = tmp_path / "out" / form
    assert run(worked, monkeypatch, "transcript", worked.subject.session_id, "--format", form, "-o", str(place)) == 0
    text = place.read_text()
    assert "workspace.exec" in text
    assert "No patches here." in text
