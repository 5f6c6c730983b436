"""A planted secret of one tool, through claim, execution and a real sandbox: only its host gets it."""

from __future__ import annotations

import contextlib
import json
import logging
import uuid

import pytest

from codesdk.registry import Registry
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.egress.secret_files import SecretFiles, secret_problem
from codesdk.sandbox.isolation.spec import container_name
from codesdk.sandbox.profiles.profile import Profile
from codesdk.storage.database import Database
from codesdk.storage.migration import upgrade
from codesdk.toolcalls.execution import Execution
from egress_stage import LOOPBACK, Attempts, Authority, HttpServer, rules
from sandboxes import spec
from stage import bundle, staged

pytestmark = pytest.mark.engine
SECRET = f"planted-{uuid.uuid4().hex}"
ASK = """
import glob, os, sys, time, urllib.request
if sys.argv[1:]:
    print(urllib.request.urlopen(sys.argv[1], timeout=10).status)
mark = b"planted" + b"-"
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        print("HELD" if mark in open(path, "rb").read() else "clean", path)
    except OSError:
        pass
"""
MANIFEST = f"""name: tracker.ask
version: 1.0.0
title: Ask the tracker
description: Asks the tracker for what it has.
classification: network
runs: {{argv: [python3, -c, {json.dumps(ASK)}, {{arg: /url}}]}}
secrets: [tracker-key]
input_schema:
  type: object
  additionalProperties: false
  properties:
    url: {{type: string, maxLength: 200}}
"""
POLICY = "version: 1\ndefault: allow\nenable: [workspace.exec]\nrules: [{id: all, effect: allow, tool: ['*']}]\n"


class Site:
    """A session whose profile adds the secret, a sandbox for it, and a worker's execution."""

    def __init__(self, stage, sandboxes, image, egress_rules, secrets):
        self.stage, self.secrets, self.sandboxes = stage, secrets, sandboxes
        (stage.root / "tools").mkdir()
        (stage.root / "tools" / "tracker.yaml").write_text(MANIFEST)
        tools = (*stage.registry.tools(), *Registry.load(stage.root / "tools").tools())
        self.registry = Registry(tools)
        self.rules = bundle(stage.root / "rules", POLICY, self.registry)
        stage.pipeline = stage.pipeline_with(self.rules, self.registry)
        self.profile = Profile(grace_s=0.3, egress=egress_rules)
        stage.sql("UPDATE sessions SET profile = :profile", profile=self.profile.model_dump_json())
        self.sandbox = sandboxes.open(spec(sandboxes._instance, image, egress=egress_rules))

    def run(self, name, given, profile=None):
        if profile is not None:
            self.stage.sql("UPDATE sessions SET profile = :profile", profile=profile.model_dump_json())
        self.stage.pipeline.submit(name, given, self.stage.subject)
        claimed = self.stage.claims(self.rules, self.registry).take()
        execution = Execution(
            registry=self.registry,
            log=self.stage.log,
            artifacts=self.stage.artifacts,
            writer=self.stage.writer,
            clock=self.stage.clock,
            lost_attempts=self.stage.lost_attempts(self.rules, self.registry),
            secret_problem=lambda tenant, name: secret_problem(self.secrets, tenant, name),
        )
        return execution.run(claimed, lambda: self.sandbox)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def api(authority):
    server = HttpServer(tls=authority.server("api.test"))
    yield server
    server.close()


@pytest.fixture
def site(*, engine, sandbox_image, api, authority, tmp_path):
    secrets = tmp_path / "secrets"
    allowed = rules(
        {
            "host": "api.test", "protocol": "http", "upstream": "https", "upstream_port": api.port,
            "inject": [{"header": "Authorization", "secret": "tracker-key", "prefix": "Bearer "}],
        }
    )  # fmt: skip
    url = f"sqlite:///{tmp_path}/stage.db"
    with contextlib.closing(Database(url)) as database:
        upgrade(database)
    with staged(tmp_path / "stage", url) as stage:
        tenant = stage.principal.tenant_id
        files = SecretFiles(secrets, lambda _owner: tenant)
        (secrets / tenant).mkdir(parents=True)
        with Attempts.served(tls=authority.client(), secrets=files, resolve=lambda _name: [LOOPBACK]) as attempts:
            sandboxes = DockerSandboxes(f"test-{uuid.uuid4().hex}", Engine(engine.host), egress=attempts.egress)
            try:
                made = Site(stage, sandboxes, sandbox_image, allowed, secrets)
                made.attempts = attempts
                yield made
            finally:
                sandboxes.sweep(())
                sandboxes.close()


def plant(site, mode=0o600):
    file = site.secrets / site.stage.principal.tenant_id / "tracker-key"
    file.write_text(SECRET)
    file.chmod(mode)


def test_a_tools_secret_reaches_its_host_from_that_tool_alone_and_is_held_nowhere(site, api, caplog):
    caplog.set_level(logging.DEBUG)
    plant(site)
    url = "http://api.test/items"
    asked = site.run("tracker.ask", {"url": url})
    assert (asked.is_error, "200" in asked.text, "HELD" in asked.text) == (False, True, False), asked
    other = site.run("workspace.exec", {"argv": ["python3", "-c", ASK, url]})
    assert (other.is_error, "200" in other.text, "HELD" in other.text) == (False, True, False), other
    assert not site.run("http.fetch", {"url": url}).is_error
    heads = [f"Authorization: Bearer {SECRET}\r\n".encode() in head for head in api.requests]
    assert heads == [True, False, False]
    events = json.dumps([event.model_dump(mode="json") for event in site.stage.events()])
    rows = json.dumps([[str(value) for value in row] for row in site.stage.sql("SELECT * FROM tool_calls")])
    listed = site.stage.artifacts.listing(site.stage.principal.tenant_id, site.stage.subject.session_id)
    kept = "".join(site.stage.artifacts.read(item).decode("utf-8", "replace") for item in listed)
    inspected = site.sandboxes._engine.api.inspect_container(
        container_name(site.sandboxes._instance, site.sandbox.owner)
    )
    attempts = "".join(item.model_dump_json() for item in site.attempts.all)
    assert "tracker-key" in attempts  # that it was added is on record; what it is, is not
    for text in (events, rows, kept, json.dumps(inspected), attempts, caplog.text, asked.text, other.text):
        assert SECRET not in text


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        ("missing", "SECRET_MISSING", "this tenant has none of that name"),
        ("mode", "SECRET_MISSING", "its file cannot be used"),
        ("profile", "SECRET_NOT_GRANTED", "adds it to no host"),
    ],
)
def test_a_tool_whose_secret_cannot_be_had_is_not_run_and_says_so(*, site, api, spoil, code, words):
    if spoil != "missing":
        plant(site, 0o644 if spoil == "mode" else 0o600)
    result = site.run("tracker.ask", {"url": "http://api.test/"}, Profile() if spoil == "profile" else None)
    assert (result.is_error, result.code) == (True, code)
    assert words in result.text
    assert "`tracker-key`" in result.text
    assert str(site.secrets) not in result.text
    assert (api.accepted, SECRET in result.text) == (0, False)
