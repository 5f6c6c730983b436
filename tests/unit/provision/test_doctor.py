from __future__ import annotations

import pytest

from codesdk.provision import doctor
from codesdk.provision.check import Check, Status
from codesdk.sandbox.disk import Facts
from codesdk.settings import Settings


@pytest.fixture
def settings(tmp_path):
    return Settings(data_dir=tmp_path / "data", docker_host=f"unix://{tmp_path}/none.sock")


def test_doctor_changes_nothing(settings, tmp_path):
    doctor.examine(settings)
    assert not list(tmp_path.iterdir())


def test_a_data_directory_below_a_file_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    check = doctor.data_directory(tmp_path / "file" / "data")
    assert check.status is Status.FAIL
    assert "--data-dir" in check.mend


def test_a_file_that_is_no_database_is_told(tmp_path):
    path = tmp_path / "codesdk.db"
    path.write_bytes(b"not a database" * 100)
    assert doctor.database(f"sqlite:///{path}").status is Status.FAIL


def test_the_password_of_a_database_or_redis_is_not_shown(tmp_path):
    settings = Settings(data_dir=tmp_path, redis_url="redis://user:hunter2@127.0.0.1:1/0")
    said = [doctor.redis(settings), doctor.database("postgresql://user:hunter2@db/x")]
    assert "hunter2" not in repr(said)


def test_an_engine_that_was_chosen_and_is_gone_fails_with_a_next_step(settings):
    found = {check.name: check for check in doctor.examine(settings)}
    assert found["engine"].status is Status.FAIL
    assert found["engine"].mend


def test_the_worst_status_counts():
    assert doctor.worst(()) is Status.OK
    assert (
        doctor.worst((Check("a", Status.OK, ""), Check("b", Status.FAIL, ""), Check("c", Status.WARN, "")))
        is Status.FAIL
    )


def test_the_workspace_cap_in_force_is_said_and_its_absence_too():
    works = doctor.workspace_cap(Facts(loop_missing=(), project_quota=True))
    assert works.status is Status.OK
    assert "1024 MiB and 100000 files" in works.detail
    assert "project quotas" in works.detail
    missing = doctor.workspace_cap(Facts(loop_missing=("the worker is not root",)))
    assert missing.status is Status.WARN
    assert "not enforced" in missing.detail
    assert "the worker is not root" in missing.detail
    assert missing.mend
