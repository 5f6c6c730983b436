"""The commands of the archive, as a person runs them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from codesdk.archive.log_import import SessionExists
from codesdk.cli.app import app
from codesdk.cli.entrypoint import run_command
from codesdk.cli.logs.export_import import NoSessionSelected


@pytest.fixture
def run():
    def run(*words):
        done = CliRunner().invoke(app, list(words), catch_exceptions=False, standalone_mode=False)
        return done.stdout

    return run


def test_a_log_goes_out_to_a_backup_and_back_in(stage, run, tmp_path):
    session, here = stage.session.id, ("--data-dir", str(stage.root))
    lines = run("events", "export", session, *here).splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["export", "session", "event", "end"]
    said = json.loads(run("backup", str(tmp_path / "backup"), *here, "--json"))
    assert (said["damaged"], said["instance"]) == ([], (stage.root / "instance").read_text())
    there = ("--data-dir", str(tmp_path / "there"))
    assert json.loads(run("restore", str(tmp_path / "backup"), *there, "--json"))["closed_sessions"] == 1
    out = str(tmp_path / "out.jsonl")
    assert json.loads(run("events", "export", "--all", "-o", out, *there, "--json"))["sessions"] == 1
    with pytest.raises(SessionExists):
        run("events", "import", out, *there)
    assert json.loads(run("events", "prune", "--older-than", "0", "--dry-run", *there, "--json"))["sessions"] == [
        session
    ]
    assert json.loads(run("events", "prune", "--older-than", "0", *there, "--json"))["sessions"] == [session]
    assert json.loads(run("events", "import", out, *there, "--json"))["events"] == 2
    assert json.loads(run("artifacts", "gc", "--strays", *there, "--json")) == {
        "blobs": 0,
        "strays": 0,
        "unfinished": 0,
    }


@pytest.mark.parametrize("words", [(), ("ses_x", "--all")])
def test_an_export_names_one_session_or_all_of_them(stage, run, words):
    with pytest.raises(NoSessionSelected):
        run("events", "export", *words, "--data-dir", str(stage.root))


def test_an_export_of_a_session_that_is_none_writes_nothing(stage, capsys):
    assert run_command(["events", "export", "ses_nope", "--data-dir", str(stage.root)]) != 0
    said = capsys.readouterr()
    assert (said.out, "no session ses_nope" in said.err) == ("", True)


def test_the_audit_tells_what_was_done_to_the_record_and_is_verified_from_the_command_line(stage, run, tmp_path):
    here = ("--data-dir", str(stage.root))
    session, tenant = stage.session.id, stage.principal.tenant_id
    out = str(tmp_path / "out.jsonl")
    assert json.loads(run("audit", "seal", *here, "--json")) == {"sessions": 1}
    run("events", "export", session, "-o", out, *here)
    stage.sessions.close(tenant, session)
    stage.sql("UPDATE sandboxes SET state = 'gone'")
    stage.sql("UPDATE sessions SET closed_at = 0 WHERE state = 'closed'")
    run("events", "prune", "--older-than", "1", *here)
    run("events", "import", out, *here)
    run("audit", "seal", *here)
    acts = [json.loads(line)["act"] for line in run("audit", "list", *here, "--json").splitlines()]
    assert acts == ["session.sealed", "session.removed", "session.imported", "session.sealed"]
    verified = json.loads(run("audit", "verify", *here, "--json"))
    assert (verified["entries"], verified["sealed_events"], verified["findings"]) == (4, 1, [])
    kept = f"{tenant}:{verified['heads'][tenant]}"
    assert "nothing was changed" in run("audit", "verify", "--head", kept, *here)
    run("backup", str(tmp_path / "backup"), *here)
    there = ("--data-dir", str(tmp_path / "there"))
    run("restore", str(tmp_path / "backup"), *there)
    (restored,) = [
        json.loads(line) for line in run("audit", "list", "--tenant", "installation", *there, "--json").splitlines()
    ]
    assert (restored["act"], restored["details"]["backup_of"]) == (
        "installation.restored",
        (stage.root / "instance").read_text(),
    )
    assert "nothing was changed" in run("audit", "verify", "--head", kept, *there)
    stage.sql("UPDATE audit_entries SET actor = 'nobody' WHERE number = 2")
    assert run_command(["audit", "verify", *here]) == 1
    assert run_command(["audit", "verify", "--head", "nonsense", *here]) == 64


def test_the_operators_first_key_is_on_record(run, tmp_path):
    there = ("--data-dir", str(tmp_path / "new"))
    run("init", *there)
    run("init", "--rotate", *there)
    acts = [json.loads(line)["act"] for line in run("audit", "list", *there, "--json").splitlines()]
    assert acts == ["key.created", "key.revoked", "key.created"]
    (founded,) = run("audit", "list", "--tenant", "installation", *there).splitlines()
    assert "installation.founded" in founded
