from __future__ import annotations

import pytest

from codesdk.hosts.host import Capacity, HostRecord, HostState
from codesdk.provision.checks import config_checks, doctor, installation_checks, local_sandbox_checks
from codesdk.provision.checks.check import Check, Status
from codesdk.provision.checks.installation_checks import InstallationFacts
from codesdk.sandbox.isolation.disk_quota import QuotaSupport
from codesdk.sandbox.local.cgroups import CgroupSupport, Controller
from codesdk.sandbox.local.confinement import Confinement, Isolation
from codesdk.settings import Settings
from codesdk.sources.servers.server_status import ServerRecord, ServerState
from codesdk.storage.database import Database
from codesdk.storage.migration import downgrade, upgrade


@pytest.fixture
def settings(tmp_path):
    return Settings(data_dir=tmp_path / "data", docker_host=f"unix://{tmp_path}/none.sock")


def test_doctor_changes_nothing(settings, tmp_path):
    doctor.run_checks(settings)
    assert not list(tmp_path.iterdir())


def test_a_data_directory_below_a_file_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    check = doctor.data_directory(tmp_path / "file" / "data")
    assert check.status is Status.FAIL
    assert "--data-dir" in check.fix


def test_a_file_that_is_no_database_is_told(tmp_path):
    path = tmp_path / "codesdk.db"
    path.write_bytes(b"not a database" * 100)
    assert doctor.database(f"sqlite:///{path}").status is Status.FAIL


def test_the_password_of_a_database_or_redis_is_not_shown(tmp_path):
    settings = Settings(data_dir=tmp_path, redis_url="redis://user:hunter2@127.0.0.1:1/0")
    said = [doctor.redis(settings), doctor.database("postgresql://user:hunter2@db/x")]
    assert "hunter2" not in repr(said)


def test_an_engine_that_was_chosen_and_is_gone_fails_with_a_next_step(settings):
    found = {check.name: check for check in doctor.run_checks(settings)}
    assert found["engine"].status is Status.FAIL
    assert found["engine"].fix


def test_the_worst_status_counts():
    assert doctor.worst_status(()) is Status.OK
    assert (
        doctor.worst_status((Check("a", Status.OK, ""), Check("b", Status.FAIL, ""), Check("c", Status.WARN, "")))
        is Status.FAIL
    )


def test_the_workspace_cap_in_force_is_said_and_its_absence_too():
    works = doctor.workspace_cap(QuotaSupport(loop_missing=(), project_quota=True))
    assert works.status is Status.OK
    assert "1024 MiB and 100000 files" in works.detail
    assert "project quotas" in works.detail
    missing = doctor.workspace_cap(QuotaSupport(loop_missing=("the worker is not root",)))
    assert missing.status is Status.WARN
    assert "counted by the runner" in missing.detail
    assert "the worker is not root" in missing.detail
    assert missing.fix


WALLED = Confinement(
    isolation=Isolation.BUBBLEWRAP, apart=True, groups=CgroupSupport(parents=dict.fromkeys(Controller, "/x"))
)
OPEN = Confinement(
    isolation=Isolation.NONE,
    apart=False,
    why_not="bubblewrap is not installed",
    groups=CgroupSupport(why_not="no right"),
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
    checks = local_sandbox_checks.check_local_sandboxes(found, said)
    assert [check.status for check in checks] == statuses
    assert all(check.fix for check in checks if check.status in (Status.WARN, Status.FAIL))


def test_the_limits_of_local_sandboxes_that_are_not_in_force_are_named():
    limits = local_sandbox_checks.check_local_sandboxes(OPEN, "on")[2]
    assert "memory, CPU, processes, pausing" in limits.detail
    assert "no right" in limits.detail


def test_an_engine_is_not_looked_for_where_sandboxes_are_local(settings):
    found = {check.name: check for check in doctor.run_checks(settings.model_copy(update={"local_sandbox": "plain"}))}
    assert found["engine"].status is Status.INFO


# -- what runs --------------------------------------------------------------------------------------------------------

NOTHING = InstallationFacts((), (), frozenset())


def host(**more):
    usual = {
        "id": "host_1",
        "name": "local",
        "engine": "E1",
        "state": HostState.ACTIVE,
        "away": False,
        "capacity": Capacity(),
        "reserved": {},
        "sessions": 2,
        "labels": {},
        "images": {},
        "generation": 1,
        "heartbeat": 1,
        "silent_s": 2.0,
        "registered_at": 0.0,
    }
    return HostRecord.model_validate({**usual, **more})


def running(settings, *hosts, servers=()):
    return {
        check.name: check
        for check in installation_checks.check_installation(InstallationFacts(hosts, servers, frozenset()), settings)
    }


def test_the_hosts_are_named_with_what_they_do(settings):
    check = running(settings, host(running_calls=3))["hosts"]
    assert check.status is Status.OK
    assert "local (this host): active, heartbeat 2 s ago, engine E1, sessions 2, 3 calls run, 0 wait" in check.detail
    assert running(settings)["hosts"].status is Status.INFO


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"state": HostState.LOST}, "Start the worker of local again"),
        ({"silent_s": 31.0}, "it sends no heartbeats"),
        ({"silent_s": 31.0, "away": True}, ""),
        ({"silent_s": None}, ""),
    ],
)
def test_a_host_that_is_lost_or_silent_is_a_warning_and_one_that_was_stopped_is_none(settings, more, words):
    check = running(settings, host(**more))["hosts"]
    assert check.status is (Status.WARN if words else Status.OK)
    assert words in check.fix


def test_the_mcp_servers_that_run_are_named_with_their_sessions_and_restarts(settings):
    first = ServerRecord(
        source="fx", host="local", session_id="ses_1", state=ServerState.RUNNING, since=0.0, restarts=2
    )
    check = running(settings, servers=(first,))["MCP servers running"]
    assert (check.status, check.detail) == (
        Status.OK,
        "fx on local for ses_1: running since 1970-01-01 00:00:00Z, 2 restarts",
    )
    ended = ServerRecord(source="git", host="local", state=ServerState.ENDED)
    check = running(settings, servers=(first,) * 8 + (ended,))["MCP servers running"]
    assert check.status is Status.WARN
    assert check.detail.endswith("; and 1 more")


def test_a_database_is_looked_at_where_there_is_one(settings):
    assert installation_checks.read_installation(settings) is None
    settings.prepare_data_dir()
    database = Database(settings.resolved_database_url())
    upgrade(database)
    assert installation_checks.read_installation(settings) == NOTHING
    downgrade(database, "0028")
    assert installation_checks.read_installation(settings).status is Status.INFO
    told = installation_checks.read_installation(settings.model_copy(update={"auto_migrate": False}))
    assert (told.status, told.fix[:21]) == (Status.FAIL, "Run `codesdk migrate`")
    database.close()


# -- logins -----------------------------------------------------------------------------------------------------------

ISSUERS = "version: 1\nissuers:\n  - {issuer: https://a.example.com, audience: x, tenant: acme, roles: [developer]}\n"


def test_a_list_of_issuers_is_told_and_its_tenants_must_be_there(settings):
    assert config_checks.check_logins(settings, None).status is Status.INFO
    settings.prepare_data_dir()
    settings.resolved_logins_file().write_text(ISSUERS)
    good = config_checks.check_logins(settings, {"acme"})
    assert good.status is Status.OK
    assert "https://a.example.com for acme" in good.detail
    assert config_checks.check_logins(settings, None).status is Status.OK
    wrong = config_checks.check_logins(settings, {"default"})
    assert wrong.status is Status.WARN
    assert "No such tenant: acme" in wrong.fix


def test_a_list_of_issuers_that_cannot_be_used_fails_with_its_place(settings):
    settings.prepare_data_dir()
    settings.resolved_logins_file().write_text(ISSUERS.replace("[developer]", "[operator]"))
    check = config_checks.check_logins(settings, None)
    assert check.status is Status.FAIL
    assert "logins.yaml:" in check.detail
    assert "keep the last valid list" in check.fix
