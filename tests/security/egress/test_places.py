"""Egress of one exec, for each driver: through the same proxy, and no other way out."""

from __future__ import annotations

import pytest

from codesdk.sandbox.egress.connection_attempt import AttemptPhase, Reason
from codesdk.sandbox.local.faults import LocalRefused
from egress_stage import fetch
from local_sandboxes import local_sandboxes, plain
from sandboxes import python, spec


@pytest.fixture
def sandbox(place):
    return place[0]


@pytest.fixture
def attempts(place):
    place[1].clear()
    return place[1]


def test_an_exec_reaches_the_hosts_that_it_may_and_each_attempt_is_recorded(sandbox, site, allowed, attempts):
    ran = fetch(sandbox, f"http://a.web.test:{site.port}/x", egress=allowed)
    assert ran.stdout == b"hello\n", ran
    attempts.until(lambda: len(attempts.all) == 2)
    assert [item.phase for item in attempts.all] == [AttemptPhase.OPENED, AttemptPhase.CLOSED]
    assert (attempts.all[1].owner, attempts.all[1].call) == (sandbox.owner, ran.call)


def test_an_exec_reaches_nothing_else(sandbox, site, allowed, attempts):
    ran = fetch(sandbox, f"http://evil.test:{site.port}/", egress=allowed)
    assert ran.result.exit_code == 1
    assert b"403" in ran.stdout
    attempts.until(lambda: attempts.all)
    assert attempts.all[-1].reason is Reason.NOT_ALLOWED


def test_an_exec_without_egress_is_refused_though_it_finds_the_proxy(sandbox, site, attempts):
    before = site.accepted
    ran = python(sandbox, "import os; print([name for name in os.environ if 'proxy' in name.lower()])")
    assert ran.stdout == b"[]\n"
    assert fetch(sandbox, f"http://a.web.test:{site.port}/").result.exit_code == 1
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
