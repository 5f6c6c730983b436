"""A planted secret on the whole path of a real sandbox: it reaches its host, and is stored nowhere else."""

from __future__ import annotations

import json
import logging
import uuid

import pytest

from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.egress.connection_attempt import Reason
from codesdk.sandbox.egress.secret_files import SecretFiles
from codesdk.sandbox.isolation.spec import container_name
from egress_stage import Attempts, HttpServer, rules, staged
from sandboxes import run, spec

pytestmark = pytest.mark.engine
SECRET = f"planted-{uuid.uuid4().hex}"
LOOK = """
import glob, os, subprocess, sys, urllib.request
def get(url):
    try:
        return urllib.request.urlopen(url, timeout=10).read().decode()
    except OSError as error:
        return f"{error} {getattr(error, 'headers', '')}"
for url in sys.argv[2:]:
    print(get(url))
mark = sys.argv[1].replace("+", "-").encode()
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        held = open(path, "rb").read()
    except OSError:
        continue
    if mark in held:
        print("HELD", path)
found = subprocess.run(["grep", "-rlF", mark.decode(), "/workspace", "/tmp", "/run", "/etc"], capture_output=True).stdout
print("HELD" if found else "CLEAN", found.decode())
"""


@pytest.fixture
def api(make_server, authority):
    """Speaks TLS, and sends whoever asks on to other places."""
    answer = b"HTTP/1.1 302 Found\r\nLocation: http://evil.test/taken\r\nContent-Length: 0\r\n\r\n"
    return make_server(HttpServer, answer, tls=authority.server("api.test"))


def test_a_planted_secret_reaches_its_host_and_is_held_nowhere_else(
    *, engine, sandbox_image, api, authority, make_server, tmp_path, caplog
):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "api-key").write_text(f"{SECRET}\n")
    (tmp_path / "acme" / "api-key").chmod(0o600)
    evil = make_server(HttpServer)
    allowed = rules(
        {
            "host": "api.test", "protocol": "http", "upstream": "https", "upstream_port": api.port,
            "inject": [{"header": "Authorization", "secret": "api-key", "prefix": "Bearer "}],
        },
        {"host": "*.web.test", "protocol": "http", "ports": [evil.port]},
    )  # fmt: skip
    secrets = SecretFiles(tmp_path, lambda _owner: "acme")
    with Attempts.served(tls=authority.client(), secrets=secrets) as attempts:
        sandboxes = DockerSandboxes(f"test-{uuid.uuid4().hex}", Engine(engine.host), egress=attempts.egress)
        made = sandboxes.open(spec(sandboxes._instance, sandbox_image, egress=allowed))
        try:
            asked = ("http://api.test/v1", "https://api.test/v1", f"http://a.web.test:{evil.port}/")
            # The secret itself must not be in the argv of what looks for it.
            ran = run(made, "python3", "-c", LOOK, SECRET.replace("-", "+"), *asked, egress=allowed)
            inspected = sandboxes._engine.api.inspect_container(container_name(sandboxes._instance, made.owner))
        finally:
            sandboxes.destroy(made.owner)
            sandboxes.close()
    assert [f"Authorization: Bearer {SECRET}\r\n".encode() in head for head in api.requests] == [True]
    assert all(SECRET.encode() not in head for head in evil.requests)
    assert len(evil.requests) == 1
    assert b"CLEAN" in ran.stdout
    assert b"HELD" not in ran.stdout
    said = [item.model_dump_json() for item in attempts.all]
    refused = [item for item in attempts.all if item.reason is Reason.NOT_ALLOWED]
    # The redirect led nowhere, and TLS of the tool's own is refused with the way that works.
    assert {(item.host, item.port) for item in refused} == {("evil.test", 80), ("api.test", 443)}
    assert "A secret is added to http://api.test/" in next(item.detail for item in refused if item.port == 443)
    held = (*said, json.dumps(inspected), caplog.text, ran.stdout.decode(), ran.stderr.decode())
    assert not any(SECRET in text for text in held)


@pytest.mark.parametrize("spoil", ["mode", "missing"])
def test_a_secret_that_may_not_be_used_sends_nothing_and_says_so(api, authority, tmp_path, caplog, spoil):
    (tmp_path / "acme").mkdir()
    if spoil == "mode":
        (tmp_path / "acme" / "api-key").write_text(SECRET)
        (tmp_path / "acme" / "api-key").chmod(0o644)
    rule = {
        "host": "api.test", "protocol": "http", "upstream": "https", "upstream_port": api.port,
        "inject": [{"header": "Authorization", "secret": "api-key"}],
    }  # fmt: skip
    with staged(tls=authority.client(), secrets=SecretFiles(tmp_path, lambda _owner: "acme")) as stage:
        stage.grant(rules(rule))
        reason, answer = stage.refused("GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n{auth}\r\n\r\n")
    assert reason is Reason.SECRET_UNAVAILABLE
    assert b"api-key" in answer
    assert api.accepted == 0
    assert SECRET not in answer.decode() + caplog.text
