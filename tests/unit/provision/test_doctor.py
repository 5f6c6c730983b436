from __future__ import annotations

import pytest

from codesdk.provision import doctor, local_report
from codesdk.provision.check import Check, Status
from codesdk.sandbox.disk import Facts
from codesdk.sandbox.local.cgroups import Control, Groups
from codesdk.sandbox.local.confinement import Confinement, Wall
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
    assert "counted by the runner" in missing.detail
    assert "the worker is not root" in missing.detail
    assert missing.mend


WALLED = Confinement(wall=Wall.BUBBLEWRAP, apart=True, groups=Groups(parents=dict.fromkeys(Control, "/x")))
OPEN = Confinement(
    wall=Wall.NONE, apart=False, why_not="bubblewrap is not installed", groups=Groups(why_not="no right")
)


@pytest.mark.parametrize(
    ("found", "said", "statuses"),
    [
        (WALLED, "", [Status.INFO] * 3),
        (WALLED, "on", [Status.OK] * 3),
        (WALLED, "plain", [Status.WARN, Status.OK, Status.OK]),
        (OPEN, "", [Status.INFO] * 3),
        (OPEN, "on", [Status.FAIL, Status.WARN, Status.WARN]),
        (OPEN, "plain", [Status.WARN] * 3),
        (OPEN, "off", [Status.INFO]),
    ],
)
def test_what_local_sandboxes_would_be_here_is_said_and_graver_where_they_are_in_use(found, said, statuses):
    checks = local_report.judge(found, said)
    assert [check.status for check in checks] == statuses
    assert all(check.mend for check in checks if check.status in (Status.WARN, Status.FAIL))


def test_the_limits_of_local_sandboxes_that_are_not_in_force_are_named():
    limits = local_report.judge(OPEN, "on")[2]
    assert "memory, CPU, processes, pausing" in limits.detail
    assert "no right" in limits.detail


def test_an_engine_is_not_looked_for_where_sandboxes_are_local(settings):
    found = {check.name: check for check in doctor.examine(settings.model_copy(update={"local_sandbox": "plain"}))}
    assert found["engine"].status is Status.INFO
