"""Administration from the command line, on the data directory and over HTTP, and its effects on a running API."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from codesdk.cli.admin import DatabaseAdminClient, HttpAdminClient, tenant_of
from codesdk.cli.api_client import ApiClient
from codesdk.cli.entrypoint import run_command
from codesdk.cli.stack.operator_key import write_key
from codesdk.domain.calls import DenialCode
from codesdk.domain.quotas import Resource
from codesdk.errors import ExitCode, Fault
from codesdk.hosts import HostState
from codesdk.mcphost.tool_calls.caller import CALL_ID_KEY
from codesdk.sources.servers.server_list import ServerReporter
from codesdk.sources.servers.server_status import ServerRecord, ServerState, ServerStatus
from codesdk.tenancy.principal import PrincipalKind, Reach, Role
from codesdk.tenancy.tenant import TenantUnknown
from codesdk.worker.ownership.registration import HostOffer, register


@pytest.fixture(scope="module")
def chief(standing):
    services = standing.services
    _, key = services.writer.run(
        lambda unit: services.directory.enroll(unit, "hq", "chief", tuple(Role), reach=Reach.INSTANCE)
    )
    return key


@pytest.fixture(params=["directory", "http"])
def office(standing, chief, request):
    if request.param == "directory":
        yield DatabaseAdminClient(
            standing.services.administration, standing.services.hosts, standing.services.mcp_servers
        )
    else:
        with ApiClient(standing.url, chief) as daemon:
            yield HttpAdminClient(daemon)


@pytest.fixture
def tenant(office, request):
    return office.create_tenant(request.node.name.replace("[", " ").replace("]", ""))


def code_of(work):
    with pytest.raises(Fault) as refused:
        work()
    return refused.value.code


def test_a_tenant_is_found_by_name_and_by_id_and_made_once(office, tenant):
    assert tenant_of(office, tenant.name) == tenant_of(office, tenant.id) == tenant
    assert code_of(lambda: office.create_tenant(tenant.name)) == "TENANT_TAKEN"
    with pytest.raises(TenantUnknown):
        tenant_of(office, "none")


def test_a_tenants_weight_is_set_and_shown(office, tenant):
    assert tenant.weight == 1
    assert office.set_weight(tenant.id, 4).weight == 4
    assert next(each for each in office.tenants() if each.id == tenant.id).weight == 4


def test_a_tenant_is_allowed_yolo_and_not_any_more_and_keeps_its_weight(office, tenant):
    office.set_weight(tenant.id, 3)
    assert not tenant.yolo
    assert office.allow_yolo(tenant.id, allowed=True).yolo
    assert next(each for each in office.tenants() if each.id == tenant.id).yolo
    after = office.allow_yolo(tenant.id, allowed=False)
    assert (after.yolo, after.weight) == (False, 3)


def test_a_suspended_tenants_keys_stop_at_the_next_request_and_come_back(standing, office, tenant):
    holder = office.create_principal(tenant.id, "ann", (Role.AUDITOR,), PrincipalKind.PERSON)
    key = office.create_key(holder.id, "k", None)
    with standing.http(key.secret) as client:
        assert client.get("/v1/sessions").status_code == 200
        assert office.suspend(tenant.id).suspended_at is not None
        assert client.get("/v1/sessions").status_code == 401
        assert office.resume(tenant.id).suspended_at is None
        assert client.get("/v1/sessions").status_code == 200
        assert office.revoke_key(key.key.id).revoked_at is not None
        assert client.get("/v1/sessions").status_code == 401
    assert code_of(lambda: office.revoke_key("key_none")) == "KEY_UNKNOWN"


def test_principals_and_keys_are_listed_without_their_secrets(office, tenant):
    holder = office.create_principal(tenant.id, "ci", (Role.DEVELOPER, Role.APPROVER), PrincipalKind.PROGRAM)
    key = office.create_key(holder.id, "nightly", 3600.0)
    assert office.principals(tenant.id) == [holder]
    (listed,) = office.keys(tenant.id)
    assert listed == key.key
    assert listed.expires_at - listed.created_at == pytest.approx(3600, abs=60)
    assert key.secret not in listed.model_dump_json()
    taken = lambda: office.create_principal(tenant.id, "ci", (Role.AUDITOR,), PrincipalKind.PERSON)  # noqa: E731
    assert code_of(taken) == "PRINCIPAL_TAKEN"


def test_limits_are_set_for_one_tenant_and_taken_back(office, tenant):
    office.set_limits(tenant.id, {Resource.SESSIONS: 2, Resource.ARTIFACT_BYTES: 0})
    own = {quota.resource: quota.limit for quota in office.quotas(tenant.id) if quota.own}
    assert own == {Resource.SESSIONS: 2, Resource.ARTIFACT_BYTES: 0}
    after = office.set_limits(tenant.id, {Resource.SESSIONS: None})
    assert [quota.resource for quota in after if quota.own] == [Resource.ARTIFACT_BYTES]
    assert office.quotas(tenant_of(office, "hq").id) != after


def test_commands_speak_to_the_daemon_where_one_runs(standing, chief, capsys):
    place = str(standing.settings.data_dir)
    write_key(standing.settings.data_dir, chief)

    def answer(*words):
        assert run_command([*words, "--data-dir", place, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    tenant = answer("tenants", "create", "by command")
    key = answer("keys", "create", "ann", "--role", "developer", "--tenant", "by command")["secret"]
    with standing.http(key) as client:
        assert client.get("/v1/quotas").json()["tenant_id"] == tenant["id"]
    answer("tenants", "quota", "by command", "sessions=1")
    with standing.http(key) as client:
        assert client.post("/v1/sessions", json={}).status_code == 201
        refused = client.post("/v1/sessions", json={})
    assert (refused.status_code, refused.json()["code"]) == (409, "QUOTA_EXCEEDED")
    assert refused.json()["details"] == {"resource": "sessions", "used": 1, "limit": 1, "asked": 1}
    scraper = answer("keys", "create", "prometheus", "--role", "auditor", "--installation", "--tenant", "by command")
    with standing.http(scraper["secret"]) as client:
        assert client.get("/metrics").status_code == 200
    widened = ["keys", "create", "ann", "--installation", "--tenant", "by command", "--data-dir", place]
    assert run_command(widened) == ExitCode.USAGE
    write_key(standing.settings.data_dir, "csdk_key_none")
    assert run_command(["tenants", "list", "--data-dir", place]) == 77


def test_a_full_queue_is_a_denial_over_mcp_that_may_be_tried_again(standing, helpers):
    session, token = standing.open_session(tenant="full")
    services = standing.services
    services.writer.run(lambda unit: services.quotas.set_limits(unit, session.tenant_id, {Resource.QUEUED_CALLS: 1}))
    subject = services.directory.subject(token)
    services.pipeline.submit("workspace_exec", {"command": "one"}, subject)

    async def call(meta=None):
        async with standing.client(token, "auto") as client:
            return await client.call_tool("workspace_exec", {"command": "two"}, meta=meta)

    result = helpers.within(call())
    assert result.is_error
    agents = {"claudecode/toolUseId": "toolu_01A09q90qw90lq917835lq9x"}
    told = [helpers.within(call(meta)).content[0].text for meta in ({CALL_ID_KEY: "mine/1"}, agents)]
    assert ["under a new id" in text for text in (result.content[0].text, *told)] == [False, True, False]
    details = result.meta["codesdk/call"]
    assert (details["code"], details["retryable"], details["status"]) == ("QUEUE_FULL", True, "denied")
    assert details["retry_after_s"] == 5.0
    assert "1 of 1" in result.content[0].text
    watcher = services.writer.run(
        lambda unit: services.directory.enroll(unit, "hq", "scraper", (Role.AUDITOR,), reach=Reach.INSTANCE)
    )
    with standing.http(watcher[1]) as http:
        page = http.get("/metrics")
    assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE codesdk_calls_refused_total counter\n" in page.text
    (refused,) = [each for each in text_string_to_metric_families(page.text) if each.name == "codesdk_calls_refused"]
    counts = {sample.labels["code"]: sample.value for sample in refused.samples}
    assert set(counts) == {code.value for code in DenialCode}
    assert counts["QUEUE_FULL"] >= 1


def test_principals_join_and_leave_groups(office, tenant):
    ann, bob = (
        office.create_principal(tenant.id, name, (Role.APPROVER,), PrincipalKind.PERSON) for name in ("ann", "bob")
    )
    assert office.groups(tenant.id) == []
    assert office.update_groups(ann.id, join=("finance", "ops")) == ["finance", "ops"]
    assert office.update_groups(ann.id, join=("finance",), leave=("ops", "none")) == ["finance"]
    office.update_groups(bob.id, join=("finance",))
    assert [(group.name, group.members) for group in office.groups(tenant.id)] == [("finance", (ann.id, bob.id))]
    assert (
        code_of(lambda: office.update_groups("prn_00000000000000000000000000", join=("finance",)))
        == "PRINCIPAL_UNKNOWN"
    )


def test_operators_see_the_mcp_servers_of_a_host(standing, office):
    services = standing.services
    name = "olive" if isinstance(office, DatabaseAdminClient) else "pink"
    entered = register(services.writer, services.ids, name, {}, 1.0)
    told = ServerStatus(source="fx", state=ServerState.ENDED, since=7.5, restarts=2, reason="ended (exit code 3)")
    ServerReporter(services.writer, entered.id, entered.generation).tell([told])
    found = [server for server in office.servers() if server.host == name]
    assert found == [ServerRecord(host=name, **told.model_dump())]


def test_a_host_is_drained_put_back_and_given_up(standing, office):
    name = "blue" if isinstance(office, DatabaseAdminClient) else "red"
    entered = register(
        standing.services.writer, standing.services.ids, name, {}, 1.0, offer=HostOffer(labels={"zone": "a"})
    )
    found = office.host(name)
    assert (found.id, found.labels, found.state) == (entered.id, {"zone": "a"}, HostState.ACTIVE)
    assert found.id in {host.id for host in office.hosts()}
    assert found.silent_s < 300
    assert office.change_host(name, "drain").state is HostState.DRAINING
    assert office.change_host(entered.id, "activate").state is HostState.ACTIVE
    assert office.change_host(name, "lose").state is HostState.LOST
    assert code_of(lambda: office.change_host(name, "drain")) == "HOST_CONFLICT"
    assert code_of(lambda: office.host("nowhere")) == "HOST_UNKNOWN"
