"""The bridge's translation between stdio and HTTP, message by message."""

from __future__ import annotations

import asyncio

import mcp_types as types
import pytest

from codesdk.mcphost.stdio_bridge.host_transport import SESSION_GONE
from codesdk.mcphost.stdio_bridge.message_router import MessageRouter

MODERN = {types.PROTOCOL_VERSION_META_KEY: "2026-07-28"}
AGREED = {"protocolVersion": "2025-11-25"}


class Line:
    """A relay between two lists of what was sent."""

    def __init__(self):
        self.up, self.down = [], []
        self.tasks = []
        self.relay = MessageRouter(self._sent(self.up), self._sent(self.down), self._spawn)

    def _sent(self, to):
        async def send(item):
            to.append((item.message, dict(item.metadata.headers) if item.metadata else None))

        return send

    def _spawn(self, function, *arguments):
        self.tasks.append(asyncio.create_task(function(*arguments)))

    async def client(self, method, number=None, **params):
        """The client sends a request, or a notification where it has no number."""
        message = request(number, method, params) if number is not None else notification(method, params)
        await self.relay.from_client(message)

    async def host(self, message):
        await self.relay.from_host(message)
        await settle()

    async def greeted(self):
        """The handshake, after which nothing was sent."""
        hello = asyncio.create_task(self.client("initialize", 0, protocolVersion="2025-11-25"))
        await settle()
        await self.host(result(0, AGREED))
        await hello
        await self.client("notifications/initialized")
        self.up.clear()
        self.down.clear()

    def sent(self):
        """The newest message to the host, and its headers."""
        return self.up[-1]

    def said(self):
        """The newest message to the client."""
        return self.down[-1][0]


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def request(number, method, params=None):
    return types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params or {})


def notification(method, params=None):
    return types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params or {})


def result(number, value):
    return types.JSONRPCResponse(jsonrpc="2.0", id=number, result=value)


def error(number, code):
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=code, message="no"))


@pytest.fixture
def run():
    def go(coroutine):
        async def bounded():
            async with asyncio.timeout(20):
                await coroutine

        asyncio.run(bounded())

    return go


def test_what_follows_the_handshake_waits_for_its_answer_and_says_the_agreed_version(run):
    async def go():
        line = Line()
        hello = asyncio.create_task(line.client("initialize", 0, protocolVersion="2025-11-25"))
        await settle()
        assert not hello.done()
        await line.host(result(0, AGREED))
        await hello
        await line.client("tools/list", 1)
        assert line.sent()[1] == {"mcp-protocol-version": "2025-11-25"}

    run(go())


def test_a_request_of_the_newer_era_says_in_headers_what_it_asks_for(run):
    async def go():
        line = Line()
        await line.client("tools/call", 1, name="größe", _meta=MODERN)
        headers = line.sent()[1]
        assert (headers["mcp-protocol-version"], headers["mcp-method"]) == ("2026-07-28", "tools/call")
        assert headers["mcp-name"].startswith("=?base64?")

    run(go())


def test_a_tool_whose_arguments_belong_in_headers_is_looked_up_and_called_again(run):
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

    async def go():
        line = Line()
        await line.client("tools/call", 1, name="t", arguments={"region": "eu"}, _meta=MODERN)
        await line.host(error(1, types.HEADER_MISMATCH))
        listing, _ = line.sent()
        assert (listing.method, line.down) == ("tools/list", [])
        await line.host(result(listing.id, {"tools": [{"name": "t", "inputSchema": schema}]}))
        again, headers = line.sent()
        assert (again.id, headers["Mcp-Param-Region"]) == (1, "eu")
        await line.host(error(1, types.HEADER_MISMATCH))  # once is enough
        assert line.said().error.code == types.HEADER_MISMATCH

    run(go())


def test_a_forgotten_session_is_begun_anew_once_with_its_subscriptions(run):
    async def go():
        line = Line()
        await line.greeted()
        await line.client("resources/subscribe", 1, uri="codesdk://workspace/a")
        await line.host(result(1, {}))
        for number in (2, 3):
            await line.client("tools/list", number)
        line.up.clear()
        for number in (2, 3):
            await line.host(error(number, SESSION_GONE))
        hello, headers = line.sent()
        assert (hello.method, headers) == ("initialize", {"mcp-session-id": ""})
        await line.host(result(hello.id, AGREED))
        await line.host(result(line.sent()[0].id, {}))
        sent = [message.method for message, _ in line.up]
        assert sent == [
            "initialize",
            "notifications/initialized",
            "resources/subscribe",
            "tools/list",
            "tools/list",
        ]
        await line.host(error(2, SESSION_GONE))
        await line.host(result(3, {"tools": []}))
        assert [message.id for message, _ in line.down[1:]] == [2, 3]

    run(go())


def test_an_answer_to_a_question_of_a_forgotten_session_goes_nowhere(run):
    async def go():
        line = Line()
        await line.greeted()
        await line.host(request(0, "elicitation/create"))
        asked = line.said().id
        await line.client("tools/list", 1)
        await line.host(error(1, SESSION_GONE))
        assert (line.said().method, line.said().params) == ("notifications/cancelled", {"requestId": asked})
        await line.host(result(line.sent()[0].id, AGREED))
        await line.host(request(0, "elicitation/create"))
        before = len(line.up)
        await line.relay.from_client(result(asked, {"action": "accept"}))
        assert len(line.up) == before
        await line.relay.from_client(result(line.said().id, {"action": "decline"}))
        assert (line.sent()[0].id, line.sent()[0].result) == (0, {"action": "decline"})

    run(go())


def test_what_either_side_takes_back_is_not_waited_for(run):
    async def go():
        line = Line()
        await line.host(request(0, "elicitation/create"))
        asked = line.said().id
        await line.host(notification("notifications/cancelled", {"requestId": 0}))
        assert line.said().params == {"requestId": asked}
        await line.client("tools/list", 1)
        await line.client("notifications/cancelled", requestId=1)
        await line.client("subscriptions/listen", 2, _meta=MODERN)
        await line.relay.finish()
        await line.relay.leave()
        assert [message.id for message, _ in line.down if isinstance(message, types.JSONRPCError)] == [2]
        assert line.sent()[0].params == {"requestId": 2}

    run(go())
