"""A tenant's bytes per day, counted while connections are open, so that they can't exceed the limit together."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.quotas import Resource
from codesdk.sandbox.egress.connection_attempt import AttemptPhase, Reason, Refusal
from codesdk.sandbox.egress.relay import ByteCredit
from codesdk.worker.sandboxes.egress_accounting import FIRST_RESERVATION, EgressRecorder
from egress_stage import OWNER, HttpServer, rules, staged
from stage import staged as installed

MIB = 1024 * 1024
LIMIT = 2 * MIB
SIZE = MIB
TOGETHER = 4
BLOCK = 64 * 1024
"""Most bytes that the proxy passes at once."""


@pytest.fixture
def installation(tmp_path, databases):
    """A tenant whose sandbox is the one of the egress tests."""
    with installed(tmp_path, databases.migrated()) as made:
        made.sql(f"UPDATE sandboxes SET id = '{OWNER}'")
        made.limit(Resource.EGRESS_BYTES_A_DAY, LIMIT)
        yield made


@pytest.fixture
def proxy(installation):
    """The proxy of a worker of that installation."""
    where = ToolExecutionEnv.CODESDK_DOCKER
    record = EgressRecorder(installation.database, installation.writer, installation.log, where, installation.quotas)
    with staged(reserve_bytes=record.more) as made:
        told = made._tell
        made.egress._on_attempt = lambda attempt: (record(attempt), told(attempt))
        yield made


def used(installation) -> int:
    report = installation.quotas.report(installation.database, installation.principal.tenant_id)
    return next(quota.used for quota in report if quota.resource is Resource.EGRESS_BYTES_A_DAY)


def ask(proxy, web):
    proxy.grant(rules({"host": "a.example", "protocol": "http", "ports": [web.port]}))
    host = f"a.example:{web.port}"
    return proxy.ask(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{{auth}}\r\n\r\n")


class HeldServer(HttpServer):
    """Answers when all have asked, so that all their connections are open together."""

    def __init__(self, answer: bytes, count: int) -> None:
        self.all = threading.Barrier(count)
        super().__init__(answer)

    def _one(self, made) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            self.all.wait(30)
            super()._one(made)


def answer(size: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)


def test_connections_that_are_open_together_stop_at_the_limit_and_the_log_says_why(installation, proxy, make_server):
    web = make_server(HeldServer, answer(SIZE), TOGETHER)
    asked = [ask(proxy, web) for _ in range(TOGETHER)]
    came = sum(len(each.read_all()) for each in asked)
    proxy.last(TOGETHER)
    assert LIMIT - TOGETHER * BLOCK <= came <= LIMIT
    moved = sum(end.bytes_up + end.bytes_down for end in proxy.ends)
    assert came <= moved == used(installation) <= LIMIT
    ends = [event.payload for event in installation.events() if event.payload.get("phase") == "closed"]
    assert len(ends) == TOGETHER
    stopped = [end for end in ends if end["reason"] == "bytes_a_day"]
    assert len(stopped) >= 2
    assert f"of {LIMIT}" in stopped[0]["detail"]
    assert stopped[0]["bytes_down"] > 0


def test_the_end_of_an_exec_gives_back_what_its_connections_have_not_moved(installation, proxy, make_server):
    web = make_server(HeldServer, answer(10), 2)  # the second never comes
    ask(proxy, web)
    with proxy._told:
        assert proxy._told.wait_for(lambda: proxy.opened, 10)
    assert used(installation) == LIMIT // 8 == FIRST_RESERVATION
    web.all.abort()
    proxy.end_exec()
    end = proxy.last()
    assert end.phase is AttemptPhase.CLOSED
    assert used(installation) == end.bytes_up + end.bytes_down < FIRST_RESERVATION


def test_what_cannot_be_counted_does_not_pass_and_ends_the_connection(make_server):
    def broken(_attempt, _least):
        raise OSError("the disk is full")

    with staged(reserve_bytes=broken) as stage:
        web = make_server(HttpServer, answer(10))
        assert ask(stage, web).read_all().startswith(b"HTTP/1.1 500 ")
        end = stage.last()
        assert (end.phase, end.reason, end.bytes_up) == (AttemptPhase.CLOSED, Reason.INTERNAL, 0)
        assert web.requests in ([], [b""])


def test_both_directions_share_what_was_taken_and_one_asks_at_a_time():
    asked = []

    async def more(least: int) -> int:
        asked.append(least)
        await asyncio.sleep(0)
        if len(asked) > 2:
            raise Refusal(Reason.BYTES_A_DAY)
        return least + 50

    async def two(credit: ByteCredit) -> list[BaseException | None]:
        return await asyncio.gather(credit.spend(30), credit.spend(30), return_exceptions=True)

    async def go() -> None:
        credit = ByteCredit(more)
        assert await two(credit) == [None, None]
        assert asked == [30]
        assert await two(credit) == [None, None]
        assert asked == [30, 10]
        assert [type(each) for each in await two(credit)] == [Refusal, Refusal]

    asyncio.run(go())
