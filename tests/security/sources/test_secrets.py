"""A server's egress and secrets: through the proxy, recorded, and never in the sandbox."""

from __future__ import annotations

import uuid

import pytest

from codesdk.domain.execution import ToolExecutionEnv
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.egress.secret_files import SecretFiles
from codesdk.worker.sandboxes.egress_accounting import EgressRecorder
from egress_stage import Attempts, Authority, HttpServer, rules
from source_stage import source_stage, until

pytestmark = pytest.mark.engine

SECRET = "s3cr3t-of-the-tenant"


@pytest.fixture
def api(tmp_path):
    authority = Authority(tmp_path)
    server = HttpServer(tls=authority.server("api.test"))
    yield server, authority
    server.close()


@pytest.fixture
def reaching(engine, sandbox_image, stage, api, tmp_path):
    """A server whose profile lets it reach the API, with a secret that the proxy adds."""
    server, authority = api
    folder = tmp_path / "secrets" / stage.subject.tenant_id
    folder.mkdir(parents=True)
    (folder / "api-key").write_text(SECRET)
    (folder / "api-key").chmod(0o600)
    record = EgressRecorder(stage.database, stage.writer, stage.log, ToolExecutionEnv.CODESDK_DOCKER)
    secrets = SecretFiles(tmp_path / "secrets", record.tenant_of)
    with Attempts.served(tls=authority.client(), secrets=secrets) as attempts:
        attempts.egress._on_attempt = record
        sandboxes = DockerSandboxes(f"test-{uuid.uuid4().hex}", Engine(engine.host), egress=attempts.egress)
        try:
            with source_stage(stage, sandboxes, sandbox_image, accept=False) as made:
                way = {
                    "host": "api.test",
                    "protocol": "http",
                    "upstream": "https",
                    "upstream_port": server.port,
                    "inject": [{"header": "Authorization", "secret": "api-key", "prefix": "Bearer "}],
                }
                made.profile = made.profile.model_copy(update={"egress": rules(way)})
                made.desk.close()
                made.desk = made.worker()
                yield made
        finally:
            sandboxes.sweep(())
            sandboxes.close()


def test_a_named_secret_is_added_on_the_way_out_and_is_neither_in_the_sandbox_nor_in_the_record(reaching, api):
    reaching.secrets = {"api-key"}
    reaching.write(secrets=["api-key"])
    reaching.registry.refresh()
    reaching.accept("reach", "env")
    assert reaching.call("reach").text == "ok"
    assert f"Authorization: Bearer {SECRET}" in api[0].requests[0].decode()
    assert SECRET not in reaching.call("env").text
    told = until(
        lambda: [event for event in reaching.stage.events() if event.type == "sandbox.egress"], "it is on record"
    )
    assert {event.payload["host"] for event in told} == {"api.test"}
    assert told[0].payload["secrets"] == ["api-key"]
    assert SECRET not in "".join(event.model_dump_json() for event in reaching.stage.events())


def test_a_secret_that_its_manifest_does_not_name_is_not_added(reaching, api):
    reaching.accept("reach")
    assert reaching.call("reach").text == "ok"
    assert "Authorization" not in api[0].requests[0].decode()


def test_a_shared_server_reaches_nothing(reaching, api):
    reaching.write(shared=True)
    reaching.registry.refresh()
    reaching.accept("reach")
    assert reaching.call("reach").text.startswith("nothing:")
    assert api[0].accepted == 0
