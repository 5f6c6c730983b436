"""Egress of a local sandbox: the same proxy, from a network namespace of its own; without one it is refused."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

import pytest

from codesdk.sandbox.egress.attempt import Phase, Reason
from codesdk.sandbox.local.driver import LocalSandboxes
from codesdk.sandbox.local.faults import LocalRefused
from egress_stage import Attempts, HttpServer, rules
from local_sandboxes import local_sandboxes, plain
from sandboxes import python, run, spec

FETCH = """
import os, sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
except OSError as error:
    print(type(error).__name__, error)
    raise SystemExit(1)
"""


@pytest.fixture(scope="module")
def site():
    server = HttpServer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    yield server
    server.close()


@pytest.fixture(scope="module")
def allowed(site):
    return rules({"host": "*.web.test", "protocol": "http", "ports": [site.port]})


@pytest.fixture(scope="module")
def local(bubblewrap_here):
    with Attempts.served() as attempts, tempfile.TemporaryDirectory(prefix="codesdk-local-") as folder:
        instance = f"test-{uuid.uuid4().hex}"
        made = LocalSandboxes(instance, Path(folder) / "local", bubblewrap_here, egress=attempts.egress)
        try:
            yield made, attempts
        finally:
            made.sweep(())
            made.close()


@pytest.fixture(scope="module")
def sandbox(local, allowed):
    made = local[0].open(spec(local[0]._instance, local[0].image, egress=allowed))
    yield made
    local[0].destroy(made.owner)


@pytest.fixture
def attempts(local):
    local[1].clear()
    return local[1]


def fetch(sandbox, url, **more):
    return run(sandbox, "python3", "-c", FETCH, url, **more)


def test_an_exec_reaches_the_hosts_that_it_may_and_each_attempt_is_recorded(sandbox, site, allowed, attempts):
    ran = fetch(sandbox, f"http://a.web.test:{site.port}/x", egress=allowed)
    assert ran.stdout == b"hello\n", ran
    assert [item.phase for item in attempts.all] == [Phase.OPENED, Phase.CLOSED]
    assert (attempts.all[1].owner, attempts.all[1].call) == (sandbox.owner, ran.call)


def test_an_exec_reaches_nothing_else(sandbox, site, allowed, attempts):
    ran = fetch(sandbox, f"http://evil.test:{site.port}/", egress=allowed)
    assert ran.result.exit_code == 1
    assert b"403" in ran.stdout
    assert attempts.all[-1].reason is Reason.NOT_ALLOWED


def test_an_exec_without_egress_is_refused_though_it_finds_the_proxy(sandbox, site, attempts):
    before = site.accepted
    ran = fetch(sandbox, f"http://a.web.test:{site.port}/", env={"http_proxy": "http://127.0.0.1:3128"})
    assert (ran.result.exit_code, b"403" in ran.stdout) == (1, True)
    attempts.until(lambda: attempts.all)
    assert attempts.all[0].reason is Reason.NOT_THE_EXEC
    assert site.accepted == before


def test_the_sandbox_has_no_other_way_out(sandbox, site, allowed):
    assert sandbox.attestation.network_interfaces == ("lo",)
    program = f"import socket; socket.create_connection(('127.0.0.1', {site.port}), 2)"
    assert b"ConnectionRefused" in python(sandbox, program, egress=allowed).stderr


def test_without_a_network_of_its_own_a_profile_with_hosts_is_refused(allowed):
    with local_sandboxes(plain()) as made, pytest.raises(LocalRefused, match="nothing would hold tools to them"):
        made.open(spec(made._instance, made.image, egress=allowed))
