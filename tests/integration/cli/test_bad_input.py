"""A command that can't start prints the reason in one line, exits with its code, and leaves nothing behind."""

from __future__ import annotations

import json
import socket

import pytest

from codesdk.api import __main__ as api
from codesdk.settings import Settings
from codesdk.worker import __main__ as worker
from integration.cli.running import DEMO_POLICIES

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]


@pytest.fixture
def nothing_started(tmp_path):
    """After the test: no database, no socket, no process's word, no instance."""
    yield
    left = {path.name for path in (tmp_path / "data").rglob("*")} if (tmp_path / "data").exists() else set()
    assert left.isdisjoint({"codesdk.db", "redis.sock", "api.json", "worker.json", "api.log", "worker.log"}), left


def test_a_bad_policy_file_is_named_with_line_and_column(codesdk, tmp_path, nothing_started):
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "policy.yaml").write_text("version: 1\nname: bad\ndefault: deny\nrules:\n  - id: x\n    effect: maybe\n")

    ended = codesdk("up", "--policies", str(rules))

    assert ended.code == 65
    assert f"{rules / 'policy.yaml'}:6:" in ended.line


def test_a_policy_file_that_is_no_yaml_is_named_with_line_and_column(codesdk, tmp_path, nothing_started):
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "policy.yaml").write_text("version: 1\nrules: [\n")

    ended = codesdk("demo", "--policies", str(rules))

    assert ended.code == 65
    assert f"{rules / 'policy.yaml'}:" in ended.line


def test_a_directory_without_policies_is_refused(codesdk, tmp_path, nothing_started):
    ended = codesdk("up", "--policies", str(tmp_path / "nowhere"))

    assert ended.code == 65
    assert str(tmp_path / "nowhere") in ended.line


def test_a_bad_manifest_is_named_with_its_file(codesdk, tmp_path, nothing_started):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "x.yaml").write_text("name: x.y\nversion: [\n")

    ended = codesdk("up", CODESDK_REGISTRY_DIR=str(tmp_path / "tools"))

    assert ended.code == 65
    assert f"{tmp_path / 'tools' / 'x.yaml'}:" in ended.line


def test_a_workspace_that_is_not_there_is_told_before_anything_starts(codesdk, tmp_path, nothing_started):
    ended = codesdk("up", "--workspace", str(tmp_path / "nowhere"))

    assert ended.code == 65
    assert str(tmp_path / "nowhere") in ended.line


@pytest.mark.parametrize("main", [api.main, worker.main])
def test_a_process_of_its_own_names_the_setting_that_is_wrong(main, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CODESDK_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CODESDK_HOST_LABELS", "zone")

    assert main() == 64
    said = capsys.readouterr().err
    assert said.startswith("error: The setting host_labels is wrong")
    assert "CODESDK_HOST_LABELS" in said


def test_a_worker_without_a_named_engine_takes_the_standard_socket(monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("CODESDK_DOCKER_HOST", raising=False)

    assert worker.engine_host(Settings()) == "unix:///var/run/docker.sock"


def test_a_taken_port_is_told_before_anything_starts(codesdk, nothing_started):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = codesdk("up", "--port", str(port))

    assert ended.code == 73
    assert f"127.0.0.1:{port}" in ended.line
    assert "--port" in ended.line


def test_a_data_directory_that_cannot_be_written_is_named(codesdk, tmp_path):
    (tmp_path / "file").write_text("")

    ended = codesdk("up", "--port", "0", "--data-dir", str(tmp_path / "file" / "data"))

    assert ended.code == 73
    assert "--data-dir" in ended.line


def test_an_engine_that_does_not_answer_is_named(codesdk, nothing_started):
    ended = codesdk("up", "--port", "0", CODESDK_DOCKER_HOST="unix:///nowhere/docker.sock")

    assert ended.code == 69
    assert "unix:///nowhere/docker.sock" in ended.line


def test_a_redis_that_does_not_answer_is_named_without_its_password(codesdk, sandbox_image, nothing_started):
    ended = codesdk("up", "--port", "0", CODESDK_REDIS_URL="redis://:hunter2@127.0.0.1:1/0")

    assert ended.code == 69
    assert "127.0.0.1:1" in ended.line
    assert "hunter2" not in ended.err


def test_a_missing_image_folder_is_named(codesdk, base_image, tmp_path, nothing_started):
    ended = codesdk("up", "--port", "0", CODESDK_IMAGES_DIR=str(tmp_path))

    assert ended.code == 64
    assert "no sandbox image `base`" in ended.line


def test_with_json_the_line_is_an_object(codesdk, nothing_started):
    ended = codesdk("up", "--json", "--port", "0", CODESDK_DOCKER_HOST="unix:///nowhere/docker.sock")

    assert ended.code == 69
    assert json.loads(ended.line)["error"]["code"] == "ENGINE_MISSING"


def test_a_process_that_cannot_start_takes_the_others_with_it(codesdk, sandbox_image, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "codesdk.db").write_text("this is no database, but long enough to look like a damaged one " * 20)

    ended = codesdk("up", "--port", "0", "--policies", str(DEMO_POLICIES))

    assert ended.code == 69
    assert "database" in ended.line
    assert not (data / "redis.sock").exists()


def test_doctor_names_what_is_missing_and_fails(codesdk):
    ended = codesdk("doctor", "--json", CODESDK_DOCKER_HOST="unix:///nowhere/docker.sock")

    assert ended.code == 1
    checks = {check["name"]: check for check in json.loads(ended.out)["checks"]}
    assert checks["engine"]["status"] == "fail"
    assert checks["engine"]["mend"]


def test_doctor_is_content_with_a_machine_that_has_everything(codesdk, sandbox_image):
    ended = codesdk("doctor")

    assert ended.code == 0, ended.out
    assert "engine" in ended.out
