"""A sending process that is killed with SIGKILL, and the command line with a running daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from codesdk.bootstrap import Services
from codesdk.cli.app import app
from codesdk.eventlog.hints import LocalHints
from codesdk.jobs import LocalWakeups
from codesdk.settings import Settings
from codesdk.tenancy.principal import Role
from codesdk.webhooks.endpoint import NewEndpoint
from receivers import receiving
from stage import START_S, wait_for

PROGRAM = """
from codesdk.api.server import serve
from codesdk.bootstrap import Services
from codesdk.eventlog.hints import LocalHints
from codesdk.jobs import LocalWakeups
from codesdk.settings import Settings

serve(Settings(), lambda settings: Services(settings, hints=LocalHints(), wakeups=LocalWakeups()))
"""


@pytest.fixture
def settings(tmp_path):
    return Settings(data_dir=tmp_path, webhook_networks="127.0.0.0/8", webhook_allow_http=True, port=0)


@pytest.fixture
def services(settings):
    opened = Services(settings, hints=LocalHints(), wakeups=LocalWakeups())
    yield opened
    opened.close()


@pytest.fixture
def start(settings, tmp_path):
    started = []

    def start():
        environment = {
            **os.environ,
            "CODESDK_DATA_DIR": str(tmp_path),
            "CODESDK_PORT": "0",
            "CODESDK_WEBHOOK_NETWORKS": "127.0.0.0/8",
            "CODESDK_WEBHOOK_ALLOW_HTTP": "true",
        }
        with (tmp_path / "api.log").open("a") as log:
            started.append(subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=log, stderr=log))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait(10)


def test_a_message_whose_sender_was_killed_before_it_was_recorded_comes_again_as_itself(services, start):
    operator, _ = services.writer.run(lambda unit: services.directory.enroll(unit, "default", "op", (Role.OPERATOR,)))
    endpoints, tenant = services.outbound.endpoints, operator.tenant_id
    with receiving() as receiver:
        endpoint = endpoints.create(tenant, NewEndpoint(target=receiver.url)).endpoint
        sent = endpoints.test(tenant, endpoint.id)
        with services.database.writer.begin() as connection:  # two processes may take longer to start than it is tried
            connection.exec_driver_sql("UPDATE webhook_deliveries SET until = until + 600")
        process = start()

        def kill(_got):
            process.kill()
            process.wait(10)
            return 204, {}, b""

        receiver.answer = kill
        wait_for(lambda: process.poll() is not None, "the kill", START_S)
        assert endpoints.delivery(tenant, endpoint.id, sent.id).attempts == ()
        receiver.answer = lambda _: (204, {}, b"")
        with services.database.writer.begin() as connection:  # as after a minute: the dead one's lease has ended
            connection.exec_driver_sql("UPDATE webhook_endpoints SET lease_until = 1")
        start()
        wait_for(
            lambda: endpoints.delivery(tenant, endpoint.id, sent.id).state == "delivered", "the second try", START_S
        )
        assert {got.headers["webhook-id"] for got in receiver.got} == {sent.id}
        assert len(receiver.got) == 2
        assert len(endpoints.delivery(tenant, endpoint.id, sent.id).attempts) == 1


def test_the_command_line_makes_tries_renews_and_ends_an_endpoint(services, start, tmp_path):
    _, key = services.writer.run(lambda unit: services.directory.enroll(unit, "default", "op", (Role.OPERATOR,)))
    (tmp_path / "operator.key").write_text(key)
    (tmp_path / "operator.key").chmod(0o600)
    start()
    wait_for((tmp_path / "run" / "api.json").exists, "the API", START_S)

    def run(*words, code=0):
        done = CliRunner().invoke(app, ["webhooks", *words, "--data-dir", str(tmp_path)], catch_exceptions=True)
        assert done.exit_code == code, (words, done.output, done.exception)
        return done.output

    with receiving() as receiver:
        made = json.loads(run("create", receiver.url, "--type", "task.*", "--description", "mine", "--json"))
        id_ = made["endpoint"]["id"]
        assert made["secret"].startswith("whsec_")
        assert id_ in run("list")
        delivered = json.loads(run("test", id_, "--json"))
        assert delivered["id"] in run("deliveries", id_)
        assert "again." in run("replay", id_, delivered["id"])
        wait_for(lambda: len(receiver.got) == 2, "the replay", 20)
        assert "whsec_" in run("rotate", id_, "--overlap", "0s")
        assert "Disabled" in run("disable", id_)
        assert "Enabled" in run("enable", id_)
        receiver.answer = lambda _: (503, {}, b"")
        refused = CliRunner().invoke(app, ["webhooks", "test", id_, "--data-dir", str(tmp_path)])
        assert "it answered 503" in str(refused.exception)
        assert "Deleted" in run("delete", id_)
    assert "There is no endpoint" in run("list")
