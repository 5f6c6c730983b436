"""`codesdk artifacts` with a running API."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from codesdk.artifacts import ArtifactDamaged
from codesdk.cli import artifact_files
from codesdk.cli.app import app
from codesdk.errors import Fault
from codesdk.tenancy.principal import Role


@pytest.fixture
def run(standing, request):
    """Runs a command with the key of an operator of a tenant of the test's own."""
    data_dir = standing.settings.data_dir
    (data_dir / "operator.key").write_text(standing.key(Role.OPERATOR, tenant=request.node.name))

    def run(*words):
        line = [*words, "--data-dir", str(data_dir)]
        return CliRunner().invoke(app, line, catch_exceptions=False, standalone_mode=False).stdout

    return run


def test_a_file_goes_in_and_comes_out_and_is_listed_and_deleted(run, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x" * 3_000_000)
    made = json.loads(run("artifacts", "put", str(tmp_path / "a.bin"), "--json"))
    assert (made["name"], made["size"]) == ("a.bin", 3_000_000)
    run("artifacts", "get", made["id"], "-o", str(tmp_path / "b.bin"))
    assert (tmp_path / "b.bin").read_bytes() == (tmp_path / "a.bin").read_bytes()
    assert made["id"] in run("artifacts", "list")
    run("artifacts", "delete", made["id"])
    assert "no artifact" in run("artifacts", "list")
    with pytest.raises(Fault, match="no artifact"):
        run("artifacts", "get", made["id"], "-o", str(tmp_path / "c.bin"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bin", "b.bin"]


def test_what_has_not_the_recorded_hash_is_not_kept(tmp_path):
    pieces = artifact_files._verified("art_x", "sha256:0", [b"bytes"])
    with pytest.raises(ArtifactDamaged):
        artifact_files._write(tmp_path / "out", pieces)
    assert list(tmp_path.iterdir()) == []


def test_a_removed_sessions_log_says_that_it_was_removed(standing):
    session, _ = standing.open_session()
    gone = "INSERT INTO removed_sessions VALUES ('ses_gone', ?, 3, 1.0, 2.0, 'test')"
    standing.services.writer.run(lambda unit: unit.connection.exec_driver_sql(gone, (session.tenant_id,)))
    with standing.http(standing.key()) as client:
        for headers in ({}, {"Accept": "text/event-stream", "Last-Event-ID": "epoch-2"}):
            answer = client.get("/v1/sessions/ses_gone/events", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (410, "SESSION_REMOVED")
    with standing.http(standing.key(tenant="strangers")) as client:
        assert client.get("/v1/sessions/ses_gone/events").status_code == 404
