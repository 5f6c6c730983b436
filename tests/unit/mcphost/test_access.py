"""What becomes of a request whose credential is looked at again while it is being answered."""

from __future__ import annotations

import anyio
import pytest
from anyio import CapacityLimiter

from codesdk.domain.clock import ManualClock
from codesdk.domain.ids import PrincipalId, SessionId, TenantId
from codesdk.domain.subjects import Subject
from codesdk.mcphost.access import TokenGate
from codesdk.mcphost.discovery import Resource
from codesdk.mcphost.throttle import Throttle
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
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(_message):
        pass

    async def ask(kind):
        await gate(scope(kind), receive, send)
        over.append(kind)

    resource, throttle = Resource("", tuple, tuple), Throttle(ManualClock())
    gate = TokenGate(app, admit, resource, CapacityLimiter(1), throttle, max_body=1000)
    async with anyio.create_task_group() as group:
        for kind in kinds:
            group.start_soon(ask, kind)
        await anyio.wait_all_tasks_blocked()
        await gate.standing.look()
        assert over == []
        refused.append(refusal)
        await gate.standing.look()
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
