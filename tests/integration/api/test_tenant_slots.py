"""One tenant's requests against another's: threads, uploads and policy comparisons that one tenant can hold."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from codesdk.api.tenant_slots import AT_ONCE, OWN_THREADS, SHARED_THREADS
from codesdk.tenancy.principal import Role
from stage import wait_for

THREADS = 40
"""Of the process, which all tenants share."""
DEADLINE_S = 30.0


@pytest.fixture
def stack(standing):
    return standing


class Busy:
    """Stands in for a function of the services; blocks the calls of one tenant, and counts them."""

    def __init__(self, function, blocks):
        self.most = 0
        self.end = threading.Event()
        self._function = function
        self._blocks = blocks
        self._running = 0
        self._lock = threading.Lock()

    def __call__(self, *given):
        if not self._blocks(*given):
            return self._function(*given)
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        assert self.end.wait(DEADLINE_S)
        with self._lock:
            self._running -= 1
        return self._function(*given)


def test_slow_requests_of_one_tenant_leave_threads_to_the_others(stack, monkeypatch):
    sessions = stack.services.sessions
    principal, key = stack.principal(Role.OPERATOR, tenant="slots-busy")
    other = stack.key(Role.OPERATOR, tenant="slots-other")
    busy = Busy(sessions.listing, lambda tenant, _limit: tenant == principal.tenant_id)
    monkeypatch.setattr(sessions, "listing", busy)
    with stack.http(key) as client, stack.http(other) as others, ThreadPoolExecutor(THREADS + 20) as senders:
        try:
            answers = [senders.submit(client.get, "/v1/sessions") for _ in range(THREADS + 20)]
            wait_for(lambda: busy.most == AT_ONCE, "as many as may run", DEADLINE_S)
            assert others.get("/v1/sessions", timeout=DEADLINE_S / 2).json() == {"sessions": []}
        finally:
            busy.end.set()
        assert {answer.result(DEADLINE_S).status_code for answer in answers} == {200}
    assert busy.most == AT_ONCE


def test_several_busy_tenants_leave_threads_to_another(stack, monkeypatch):
    sessions = stack.services.sessions
    busy_ones = dict(stack.principal(Role.OPERATOR, tenant=f"slots-busy-{at}") for at in range(4))
    tenants = {principal.tenant_id for principal in busy_ones}
    other = stack.key(Role.OPERATOR, tenant="slots-other")
    busy = Busy(sessions.listing, lambda tenant, _limit: tenant in tenants)
    monkeypatch.setattr(sessions, "listing", busy)
    most = SHARED_THREADS + OWN_THREADS * len(tenants)
    with ExitStack() as opened:
        clients = [opened.enter_context(stack.http(key)) for key in busy_ones.values()]
        others = opened.enter_context(stack.http(other))
        senders = opened.enter_context(ThreadPoolExecutor(AT_ONCE * len(clients)))
        try:
            answers = [senders.submit(client.get, "/v1/sessions") for _ in range(AT_ONCE) for client in clients]
            wait_for(lambda: busy.most == most, "as many as may run", DEADLINE_S)
            assert others.get("/v1/sessions", timeout=DEADLINE_S / 2).json() == {"sessions": []}
        finally:
            busy.end.set()
        assert {answer.result(DEADLINE_S).status_code for answer in answers} == {200}
    assert busy.most == most < THREADS


def test_comparisons_of_one_tenant_run_one_after_the_other_and_hold_up_nothing_else(stack, monkeypatch):
    versions = stack.services.versions
    principal, key = stack.principal(Role.OPERATOR, tenant="slots-diff")
    other = stack.key(Role.OPERATOR, tenant="slots-other")
    busy = Busy(versions.candidate, lambda layer, _wanted: layer == principal.tenant_id)
    monkeypatch.setattr(versions, "candidate", busy)
    wanted = {"files": {"policy.yaml": "version: 1\nname: x\ndefault: deny\n"}}
    with stack.http(key) as client, stack.http(other) as others, ThreadPoolExecutor(4) as senders:
        try:
            answers = [senders.submit(client.post, "/v1/policy/diff", json=wanted) for _ in range(4)]
            wait_for(lambda: busy.most == 1, "a comparison", DEADLINE_S)
            assert client.get("/v1/sessions", timeout=DEADLINE_S / 2).status_code == 200
            assert others.post("/v1/policy/diff", json=wanted, timeout=DEADLINE_S / 2).status_code == 200
        finally:
            busy.end.set()
        assert {answer.result(DEADLINE_S).status_code for answer in answers} == {200}
    assert busy.most == 1


def test_a_body_that_does_not_come_holds_no_slot(stack):
    key = stack.key(Role.OPERATOR, tenant="slots-bodies")
    stop = threading.Event()

    def slow():
        yield b"{"
        stop.wait(DEADLINE_S)
        yield b"}"

    with stack.http(key) as client, ThreadPoolExecutor(AT_ONCE + 4) as senders:
        try:
            path, headers = "/v1/policy/decide", {"Content-Type": "application/json"}
            answers = [senders.submit(client.post, path, content=slow(), headers=headers) for _ in range(AT_ONCE + 4)]
            assert client.get("/v1/sessions", timeout=DEADLINE_S / 2).status_code == 200
        finally:
            stop.set()
        assert {answer.result(DEADLINE_S).status_code for answer in answers} == {422}


@pytest.mark.parametrize("count", [2, 5])
def test_uploads_that_end_take_threads_of_the_same_share(stack, monkeypatch, count):
    sessions, artifacts = stack.services.sessions, stack.services.artifacts
    busy_ones = dict(stack.principal(Role.OPERATOR, tenant=f"slots-ends-{count}-{at}") for at in range(count))
    tenants = {principal.tenant_id for principal in busy_ones}
    other = stack.key(Role.OPERATOR, tenant=f"slots-ends-other-{count}")
    listing = Busy(sessions.listing, lambda tenant, _limit: tenant in tenants)
    keeping = Busy(lambda *given: keep(*given[:-1], **given[-1]), lambda _spool, tenant, *_: tenant in tenants)
    keeping.end = listing.end
    keep = artifacts.keep_spool
    monkeypatch.setattr(sessions, "listing", listing)
    monkeypatch.setattr(artifacts, "keep_spool", lambda *given, **more: keeping(*given, more))
    with ExitStack() as opened:
        clients = [opened.enter_context(stack.http(key)) for key in busy_ones.values()]
        others = opened.enter_context(stack.http(other))
        senders = opened.enter_context(ThreadPoolExecutor(200))
        try:
            sent = [senders.submit(client.post, "/v1/artifacts", content=b"x") for _ in range(8) for client in clients]
            wait_for(lambda: keeping.most >= min(8 * count, SHARED_THREADS), "the ends of uploads", DEADLINE_S)
            sent += [senders.submit(client.get, "/v1/sessions") for _ in range(AT_ONCE) for client in clients]
            assert others.get("/v1/sessions", timeout=DEADLINE_S / 2).json() == {"sessions": []}
            held = listing.most + keeping.most
        finally:
            listing.end.set()
        assert {answer.result(DEADLINE_S).status_code for answer in sent} == {200, 201}
    assert held <= SHARED_THREADS + OWN_THREADS * count
