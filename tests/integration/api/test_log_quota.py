"""One agent's token against the database: the tenant's quota of log bytes and the session's rate, over MCP and HTTP."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from codesdk.archive.retention import Retention
from codesdk.tenancy.principal import Reach, Role
from codesdk.toolcalls.decision.log_limits import CALL_RESERVE_BYTES, USAGE_S
from stage import wait_for
from whole_stage import DEADLINE_S, Installation

pytestmark = [pytest.mark.redis, pytest.mark.timeout(300)]
BURST = 256 * 1024


@pytest.fixture
def whole(redis_url, tmp_path: Path):
    made = Installation(tmp_path, redis_url, log_bytes_per_s=1024, log_burst_bytes=BURST, poll_s=0.1)
    try:
        made.start_api()
        made.start_worker()
        yield made
    finally:
        made.close()


class Operator:
    """An operator of the installation, over HTTP."""

    def __init__(self, whole):
        self.whole = whole
        _, self.key = whole.api.writer.run(
            lambda unit: whole.api.directory.enroll(unit, "default", "chief", (Role.OPERATOR,), reach=Reach.INSTANCE)
        )

    def log_bytes(self):
        with self.whole.http(self.key) as http:
            answer = http.get("/v1/quotas").raise_for_status().json()
        return next(each for each in answer["quotas"] if each["resource"] == "log_bytes")

    def leave(self, room):
        """Set the limit so that so many bytes are left."""
        limit = self.log_bytes()["used"] + room if room is not None else None
        with self.whole.http(self.key) as http:
            http.patch("/v1/quotas", json={"limits": {"log_bytes": limit}}).raise_for_status()
        time.sleep(USAGE_S)  # for as long the usage is believed

    def metrics(self):
        with self.whole.http(self.key) as http:
            lines = http.get("/metrics").raise_for_status().text.splitlines()
        found = [line.split()[-1] for line in lines if 'refused_total{code="LOG_QUOTA_EXCEEDED"}' in line]
        return float(found[0])


def test_a_full_tenant_gets_no_new_call_but_ends_those_that_run(whole):
    operator, busy, sibling = Operator(whole), whole.open_session(), whole.open_session()
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(busy.call("hold on")))
    waiting.start()
    wait_for(lambda: whole.ran("hold on"), "the run", DEADLINE_S)
    operator.leave(0)
    requested = busy.requested()
    for agent in (busy, sibling):
        refused = agent.call("echo more")
        assert (refused.code, refused.details["retryable"]) == ("LOG_QUOTA_EXCEEDED", True)
        assert "codesdk tenants quota" in refused.text
    assert (busy.requested(), sibling.requested()) == (requested, 0)
    assert operator.metrics() == 2
    whole.release("hold on")
    waiting.join(DEADLINE_S)
    (ended,) = answers
    assert (ended.details["status"], ended.output) == ("completed", "hold on")
    assert busy.events()[-1].type == "tool.call.completed"
    busy.is_lawful()


def test_removed_sessions_make_room_again(whole):
    operator, old, agent = Operator(whole), whole.open_session(), whole.open_session()
    old.call("x" * 8000)
    operator.leave(CALL_RESERVE_BYTES // 2)
    assert agent.call("echo").code == "LOG_QUOTA_EXCEEDED"
    with whole.http(old.key) as http:
        http.delete(f"/v1/sessions/{old.session}").raise_for_status()
    services = whole.api
    retention = Retention(
        database=services.database, writer=services.writer, artifacts=services.artifacts, clock=services.clock
    )
    held = operator.log_bytes()["used"]
    wait_for(lambda: retention.prune(-1.0, reason="test").sessions, "the removal", DEADLINE_S)
    freed = held - operator.log_bytes()["used"]
    assert freed > 2 * 8000, "its input and its output"
    operator.leave(CALL_RESERVE_BYTES + freed)
    assert agent.call("echo").details["status"] == "completed"


def test_one_token_fills_the_database_no_faster_than_its_rate(whole):
    operator, greedy, other = Operator(whole), whole.open_session(), whole.open_session()
    refused = None
    for number in range(100):
        answer = greedy.call(f"{number} " + "x" * 7000)
        if answer.code == "LOG_RATE_EXCEEDED":
            refused = answer
            break
    assert refused is not None
    assert (refused.details["retryable"], refused.details["retry_after_s"] > 0) == (True, True)
    grown = operator.log_bytes()["used"]
    assert grown < 2 * BURST
    for number in range(10):
        assert greedy.call(f"again {number} " + "y" * 60_000).code == "LOG_RATE_EXCEEDED"
    assert operator.log_bytes()["used"] == grown
    assert other.call("echo").details["status"] == "completed"
