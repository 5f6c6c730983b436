"""Requests whose credential is checked again while they are being answered."""

from __future__ import annotations

import logging

import anyio
import pytest
from anyio import CapacityLimiter

from codesdk.domain.clock import ManualClock
from codesdk.domain.ids import PrincipalId, SessionId, TenantId
from codesdk.domain.subjects import Subject
from codesdk.mcphost.server.bearer_auth import BearerAuthMiddleware
from codesdk.mcphost.server.protected_resource import ProtectedResource
from codesdk.mcphost.server.request_registry import RequestCredential, RequestRegistry
from codesdk.mcphost.server.throttle import Throttle
from codesdk.storage.faults import DatabaseGone
from codesdk.tenancy.logins import LoginExpired, LoginRefused

SUBJECT = Subject(tenant_id=TenantId("ten_1"), principal_id=PrincipalId("pri_1"), session_id=SessionId("ses_1"))
CALL, LISTEN, STANDING = ("POST", b"tools/call"), ("POST", b"subscriptions/listen"), ("GET", b"")


@pytest.fixture
def anyio_backend():
    return "asyncio"


def scope(kind):
    method, of_mcp = kind
    headers = [(b"authorization", b"Bearer a.b.c"), (b"mcp-method", of_mcp)]
    return {"type": "http", "method": method, "path": "/mcp", "query_string": b"", "headers": headers}


async def left_open(refusal, kinds):
    """Which of the requests go on, once their credential is refused for that reason."""
    refused, over, answered = [], [], anyio.Event()

    def admit(_credential, _named, *, opens, again=False):
        if again and refused:
            raise refused[0]
        return SUBJECT

    async def app(_scope, _receive, _send):
        await answered.wait()

    async def receive():
        return {"type": "http.request", "body": b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}', "more_body": False}

    async def send(_message):
        pass

    async def ask(kind):
        await gate(scope(kind), receive, send)
        over.append(kind)

    resource, throttle = ProtectedResource("", tuple, tuple), Throttle(ManualClock())
    gate = BearerAuthMiddleware(app, admit, resource, CapacityLimiter(1), throttle, max_body=1000)
    async with anyio.create_task_group() as group:
        for kind in kinds:
            group.start_soon(ask, kind)
        await anyio.wait_all_tasks_blocked()
        await gate.open_requests.look()
        assert over == []
        refused.append(refusal)
        await gate.open_requests.look()
        await anyio.wait_all_tasks_blocked()
        ended = set(over)
        answered.set()
    return set(kinds) - ended


@pytest.mark.anyio
async def test_a_call_goes_on_though_its_logins_token_expires_and_no_stream_does():
    expired = LoginExpired("This token has expired.")
    assert await left_open(expired, [CALL, LISTEN, STANDING]) == {CALL}


@pytest.mark.anyio
async def test_nothing_goes_on_for_a_login_that_is_refused():
    assert await left_open(LoginRefused("No."), [CALL, LISTEN, STANDING]) == set()


class Heard(logging.Handler):
    """What was logged, as (level, text, whether with a traceback)."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.lines = []

    def emit(self, record):
        self.lines.append((record.levelname, record.getMessage(), record.exc_info is not None))


@pytest.fixture
def heard():
    log, handler = logging.getLogger("codesdk.mcphost.server.request_registry"), Heard()
    before, log.level = log.level, logging.INFO
    log.addHandler(handler)
    yield handler.lines
    log.removeHandler(handler)
    log.setLevel(before)


async def looks(heard, *met):
    """The lines of each look at three open streams; `met`: what each look meets, None for a good credential."""
    found, in_the_way = [], []

    async def is_good(_admitted):
        for error in in_the_way:
            raise error
        return True

    async def send(_message):
        pass

    requests = RequestRegistry(is_good)
    one, two, three = (RequestCredential(credential, None, "ses_1") for credential in "abc")
    with requests.answering(one, send), requests.answering(two, send), requests.answering(three, send) as last:
        for each in met:
            in_the_way[:] = [each] if each else []
            heard.clear()
            await requests.look()
            found.append(list(heard))
        assert not last.ended
    return found


@pytest.mark.anyio
async def test_an_outage_of_the_database_is_one_line_however_many_streams_stand_and_one_when_it_is_over(heard):
    gone = DatabaseGone("Nobody answers.", advice="Start it.")
    first, second, over, again = await looks(heard, gone, gone, None, gone)
    [(level, text, traced)] = first
    assert (level, traced) == ("WARNING", False)
    assert text.startswith("cannot recheck 3 credentials")
    assert text.endswith("Nobody answers. Start it.")
    assert second == []
    assert over == [("INFO", "credentials of open streams can be rechecked again: DATABASE_GONE is over", False)]
    assert again == first


@pytest.mark.anyio
async def test_a_defect_in_looking_is_traced_once(heard):
    first, second = await looks(heard, ValueError("odd"), ValueError("odd"))
    assert [(level, traced) for level, _, traced in first] == [("WARNING", True)]
    assert second == []
