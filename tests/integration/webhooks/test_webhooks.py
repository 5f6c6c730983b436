"""From an approval request to the receiver and back, over real HTTP."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook

from codesdk.tenancy.principal import Role
from receivers import receiving
from stage import REPOSITORY, wait_for

EXAMPLE = REPOSITORY / "deploy" / "examples" / "approver.py"


@pytest.fixture
def tenant(request):
    return request.node.name[:100]


@pytest.fixture
def operator(sending, tenant):
    with sending.http(sending.key(Role.OPERATOR, tenant=tenant)) as client:
        yield client


def ask(sending, tenant, command="make"):
    return sending.ask(command, tenant)


def create(operator, url, **wish):
    answer = operator.post("/v1/webhooks", json={"target": url, **wish})
    assert answer.status_code == 201, answer.text
    return answer.json()["endpoint"], answer.json()["secret"]


def deliveries(operator, endpoint):
    return operator.get(f"/v1/webhooks/{endpoint['id']}/deliveries").json()["deliveries"]


def test_an_approval_reaches_a_receiver_that_can_verify_it(sending, operator, tenant):
    with receiving() as receiver:
        endpoint, secret = create(operator, f"{receiver.url}/hook")
        asked = ask(sending, tenant)
        (got,) = wait_for(lambda: receiver.got, "a delivery")
        told = Webhook(secret).verify(got.body, got.headers)
        assert told["data"]["payload"]["approval_id"] == asked.id
        assert told["data"]["approval"]["input"] == {"command": "make"}
        delivery = wait_for(
            lambda: [d for d in deliveries(operator, endpoint) if d["state"] == "delivered"], "a record"
        )[0]
    assert (delivery["id"], delivery["attempts"][0]["status"]) == (got.headers["webhook-id"], 204)
    assert delivery["attempts"][0]["duration_ms"] >= 0


def test_a_failed_delivery_is_replayed(sending, operator, tenant):
    with receiving() as receiver:
        receiver.answer = lambda _: (500, {}, b"")
        endpoint, _ = create(operator, receiver.url)
        ask(sending, tenant)
        (delivery,) = wait_for(lambda: [d for d in deliveries(operator, endpoint) if d["attempts"]], "an attempt")
        assert (delivery["state"], delivery["attempts"][0]["failure"]) == ("pending", "STATUS")
        receiver.answer = lambda _: (200, {}, b"")
        operator.post(f"/v1/webhooks/{endpoint['id']}/enable")  # its rest is over
        replayed = operator.post(f"/v1/webhooks/{endpoint['id']}/deliveries/{delivery['id']}/replay")
        assert replayed.status_code == 202
        one = f"/v1/webhooks/{endpoint['id']}/deliveries/{delivery['id']}"
        wait_for(lambda: operator.get(one).json()["state"] == "delivered", "the replay")
        assert {got.headers["webhook-id"] for got in receiver.got} == {delivery["id"]}


def test_a_person_can_try_an_endpoint_renew_its_key_stop_it_and_remove_it(operator):
    with receiving() as receiver:
        endpoint, secret = create(operator, receiver.url, types=["task.*"], description="tried")
        path = f"/v1/webhooks/{endpoint['id']}"
        renewed = operator.post(f"{path}/rotate", json={"overlap_s": 60}).json()
        assert len(renewed["endpoint"]["signing_keys"]) == 2
        assert operator.post(f"{path}/test").status_code == 202
        (got,) = wait_for(lambda: receiver.got, "a test")
        for key in (secret, renewed["secret"]):
            assert Webhook(key).verify(got.body, got.headers)["type"] == "webhook.test"
        assert operator.post(f"{path}/disable", json={}).json()["disabled_reason"]
        assert operator.post(f"{path}/test").json()["code"] == "ENDPOINT_WRONG"
        assert secret not in operator.get("/v1/webhooks").text
        assert operator.delete(path).status_code == 200
        assert operator.get(path).json()["code"] == "ENDPOINT_UNKNOWN"


def test_another_tenant_sees_none_of_it(sending, operator):
    with receiving() as receiver:
        endpoint, _ = create(operator, receiver.url)
        delivery = operator.post(f"/v1/webhooks/{endpoint['id']}/test").json()["id"]
        path = f"/v1/webhooks/{endpoint['id']}"
        with sending.http(sending.key(Role.OPERATOR, tenant="stranger")) as stranger:
            assert stranger.get("/v1/webhooks").json() == {"endpoints": []}
            for method, place in (
                ("GET", path),
                ("DELETE", path),
                ("POST", f"{path}/test"),
                ("POST", f"{path}/enable"),
                ("GET", f"{path}/deliveries"),
                ("POST", f"{path}/deliveries/{delivery}/replay"),
            ):
                assert stranger.request(method, place).json()["code"] == "ENDPOINT_UNKNOWN", place


def test_by_default_nothing_is_sent_inside_and_nothing_over_http(api, tmp_path):
    with api.running(tmp_path, 10.0) as stack, stack.http(stack.key(Role.OPERATOR)) as operator:
        for url in ("http://receiver.example/", "https://127.0.0.1/", "https://169.254.169.254/"):
            assert operator.post("/v1/webhooks", json={"target": url}).json()["code"] == "ENDPOINT_WRONG"
        # A name is looked up when something is sent, by whatever address it has then.
        port = stack.url.rpartition(":")[2]
        made = operator.post("/v1/webhooks", json={"target": f"https://localhost:{port}/"}).json()["endpoint"]
        operator.post(f"/v1/webhooks/{made['id']}/test")
        attempts = wait_for(lambda: deliveries(operator, made)[0]["attempts"], "an attempt")
        assert attempts[0]["failure"] in ("ADDRESS_REFUSED", "NO_SUCH_NAME")  # some resolvers know no `localhost.`


@pytest.fixture
def approver_program(sending, operator, tenant, tmp_path):
    """The example, as somebody would run it."""
    principal, _ = sending.principal(Role.APPROVER, tenant=tenant)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint, secret = create(
        operator, f"http://127.0.0.1:{port}/", types=["approval.requested"], principal_id=principal.id
    )
    log = (tmp_path / "log").open("w")
    program = subprocess.Popen(
        [sys.executable, EXAMPLE, str(port), "make test"],
        env={**os.environ, "WEBHOOK_SECRET": secret},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        wait_for(lambda: _listens(port), "the example to listen")
        yield endpoint, principal
    finally:
        program.send_signal(signal.SIGTERM)
        program.wait(10)
        log.close()


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_example_answers_what_it_knows_and_the_call_runs(sending, operator, tenant, approver_program):
    _, principal = approver_program
    asked = ask(sending, tenant, "make test")
    decided = wait_for(lambda: _decided(operator, asked), "the example's vote")
    assert decided["decided_by"] == principal.id
    session = sending.services.sessions.find(asked.tenant_id, asked.session_id)
    types = wait_for(lambda: (t := sending.types(session))[-1] == "tool.call.completed" and t, "the run")
    assert types.index("approval.decided") < types.index("tool.call.approved") < types.index("tool.call.started")


def test_the_example_leaves_the_rest_to_people(sending, operator, tenant, approver_program):
    endpoint, _ = approver_program
    asked = ask(sending, tenant, "make test; rm -rf /")
    wait_for(lambda: [d for d in deliveries(operator, endpoint) if d["state"] == "delivered"], "the delivery")
    assert operator.get(f"/v1/approvals/{asked.id}").json()["state"] == "pending"


def _decided(operator, asked):
    found = operator.get(f"/v1/approvals/{asked.id}").json()
    return found if found["state"] in ("approved", "consumed") else None


def test_the_example_is_as_short_as_it_says():
    lines = Path(EXAMPLE).read_text().split('"""', 2)[2].splitlines()
    assert len([line for line in lines if line.strip()]) <= 40


@pytest.mark.parametrize("secret", [None, "", "whsec_", "whsec_!!!!!!!!!!!!!!!!!!!!!!", "nonsense"])
def test_the_example_says_in_one_line_that_its_secret_is_missing(secret):
    known = {name: value for name, value in os.environ.items() if name != "WEBHOOK_SECRET"}
    env = known if secret is None else {**known, "WEBHOOK_SECRET": secret}
    (line,) = _refused(env, "8080").splitlines()
    assert "set WEBHOOK_SECRET to the whsec_" in line


def test_the_example_says_in_one_line_that_it_needs_a_port():
    env = {**os.environ, "WEBHOOK_SECRET": "whsec_" + "a" * 32}
    for given in ((), ("make test",)):
        (line,) = _refused(env, *given).splitlines()
        assert "name a port" in line


def _refused(env, *given):
    done = subprocess.run(
        [sys.executable, EXAMPLE, *given],
        check=False,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr
