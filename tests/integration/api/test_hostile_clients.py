"""Misbehaving clients: each is refused with its own error, and the next one is served."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from types import SimpleNamespace
from urllib.parse import urlsplit

import httpx2
import pytest

from codesdk.api import http_timeouts
from codesdk.mcphost.server import bearer_auth, throttle

MIB = 1024 * 1024
MODERN = {"MCP-Protocol-Version": "2026-07-28"}
LEGACY = {"MCP-Protocol-Version": "2025-11-25"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def stack(standing):
    standing.worker.gate.set()
    yield standing
    standing.worker.gate.set()


def headers(token, **more):
    return {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        **more,
    }


def send(stack, token, content, **more):
    return httpx2.post(stack.mcp_url, content=content, headers=headers(token, **more), timeout=30)


def call(name, arguments, number=1):
    params = {"name": name, "arguments": arguments, "_meta": META}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})


def serves(stack, token):
    modern = {**MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "workspace_read"}
    answer = send(stack, token, call("workspace_read", {"path": "a"}), **modern)
    return answer.status_code == 200 and "hello" in answer.text


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
@pytest.mark.parametrize("era", [MODERN, LEGACY], ids=["modern", "legacy"])
def test_a_body_of_64_mib_is_refused_before_it_is_all_taken(stack, declared, era):
    session, token = stack.open_session()
    taken = 0

    def pieces():
        nonlocal taken
        for _ in range(64):
            taken += MIB
            yield b" " * MIB

    more = {"Content-Length": str(64 * MIB)} if declared else {}
    try:
        assert send(stack, token, pieces(), **more, **era).status_code == 413
    except httpx2.TransportError:
        assert taken < 64 * MIB  # the connection was closed while we still wrote
    assert stack.types(session) == ["session.created"]
    assert serves(stack, token)


DEEP = "[" * 100_000 + "]" * 100_000
NESTED = "[" * 300 + "]" * 300


@pytest.mark.parametrize("nested", [DEEP, NESTED, '{"a":' * 50_000 + "1" + "}" * 50_000])
@pytest.mark.parametrize("where", ["body", "arguments"])
def test_json_that_is_nested_without_end_is_refused(stack, nested, where):
    _, token = stack.open_session()
    text = nested if where == "body" else call("workspace_write", {"path": "a", "content": "@"}).replace('"@"', nested)
    modern = {**MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "workspace_write"}
    answer = send(stack, token, text, **modern)
    assert answer.status_code in (200, 400)
    told = answer.text[answer.text.index("{") :]
    said = json.loads(told.splitlines()[0])
    assert "error" in said or said["result"]["isError"]
    assert "workspace.write" not in stack.worker.ran
    assert serves(stack, token)


@pytest.mark.parametrize("era", [MODERN, LEGACY, {}, {"MCP-Protocol-Version": "1999-01-01"}])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "null",
        "[]",
        "[1, 2]",
        '{"jsonrpc": "1.0", "id": 1, "method": "tools/list"}',
        '{"jsonrpc": "2.0", "id": {}, "method": "tools/list"}',
        '{"jsonrpc": "2.0", "id": 1, "method": 7}',
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}',
        '{"jsonrpc": "2.0", "id": 1, "result": {}}',
        '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}, "extra": "\\ud800"}',
        '{"jsonrpc": "2.0", "id": 1e999, "method": "tools/list"}',
    ],
)
def test_what_is_no_message_of_its_era_is_an_error_of_the_client(stack, text, era):
    _, token = stack.open_session()
    assert 400 <= send(stack, token, text, **era).status_code < 500


def test_the_eras_do_not_mix(stack):
    _, token = stack.open_session()
    discover = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}})
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    initialize = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    assert send(stack, token, discover, **LEGACY).status_code == 400
    assert send(stack, token, initialize, **MODERN).status_code in (400, 404)
    opened = send(stack, token, initialize)
    ours = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
    said = send(stack, token, call("workspace_read", {"path": "a"}), **ours, **MODERN)
    assert said.status_code == 400  # a session's id does not open the era that has none: the method's header is missing


# -- messages that can be read in two ways ------------------------------------------------------------------------------

NAMED = {**MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "workspace_read"}
FILE = '{"path": "a"}'


def raw(arguments=FILE, *, number="1", name='"name": "workspace_read"', method='"method": "tools/call"'):
    """A call as text, so that it can say what no library would."""
    params = f'{{{name}, "arguments": {arguments}, "_meta": {json.dumps(META)}}}'
    return f'{{"jsonrpc": "2.0", "id": {number}, {method}, "params": {params}}}'


@pytest.fixture
def opened(stack):
    """A session, its token, and the headers of a client of each era."""
    session, token = stack.open_session()
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    first = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    ours = {"Mcp-Session-Id": send(stack, token, first).headers["mcp-session-id"], **LEGACY}
    return SimpleNamespace(session=session, token=token, eras={"modern": NAMED, "legacy": ours})


ERAS = ["modern", "legacy"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "text",
    [
        raw('{"path": "a", "offset": NaN}'),
        raw('{"path": "a", "offset": -Infinity}'),
        raw('{"path": "a", "offset": 1e999}'),
        raw('{"path": "a", "offset": 18446744073709551617}'),
        raw(f'{{"path": "a", "offset": {"9" * 5000}}}'),
        raw(f'{{"path": "a", "offset": 1e-{"9" * 5000}}}'),
        raw('{"path": "\\ud800"}'),
        raw('["a"]'),
        raw('"a"'),
        raw(number="null"),
        raw(number="1.5"),
        raw(number="true"),
        f"[{raw()}]",
        f"[{raw()}, {raw(number='2')}]",
        raw() + raw(),
        raw().encode().replace(b'"a"', b'"\xff\xfe"'),
        gzip.compress(raw().encode()),
    ],
    ids=lambda _: "text",
)
def test_what_json_cannot_say_or_no_message_may_hold_runs_nothing(stack, opened, text, era):
    stack.worker.ran.clear()
    answer = send(stack, opened.token, text, **opened.eras[era])
    assert answer.status_code in (200, 202, 400)
    if answer.status_code == 200:
        assert '"status":"refused"' in answer.text or '"error"' in answer.text
    assert stack.worker.ran == []
    assert stack.types(opened.session) == ["session.created"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("path", ['"path": "a", "path": "server.pem"', '"path": "a", "p\\u0061th": "server.pem"'])
def test_of_a_name_that_stands_twice_everybody_reads_the_last(stack, opened, era, path):
    stack.worker.ran.clear()
    assert "DENIED_BY_POLICY" in send(stack, opened.token, raw(f"{{{path}}}"), **opened.eras[era]).text
    asked = next(e for e in stack.services.log.read(opened.session.id) if e.type.value == "tool.call.requested")
    assert asked.payload["input"] == {"path": "server.pem"}
    assert stack.worker.ran == []


@pytest.mark.parametrize("era", ERAS)
def test_a_tool_that_is_named_twice_is_the_one_that_is_judged(stack, opened, era):
    stack.worker.ran.clear()
    twice = raw('{"command": "make"}', name='"name": "workspace_read", "name": "workspace_exec"')
    told = send(stack, opened.token, twice, **opened.eras[era], **{"CodeSDK-Wait": "0.2"})
    # The newer era's header must name what runs; the other era has none.
    assert (told.status_code == 400) if era == "modern" else ("APPROVAL_PENDING" in told.text)
    assert stack.worker.ran == []


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"Content-Type": "text/plain"}, 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 400),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 400),
        ({"Accept": "text/html"}, 406),
        ({"Accept": "application/json"}, 406),
        ({"MCP-Protocol-Version": "2099-01-01"}, 400),
        ({"MCP-Protocol-Version": "x" * 5000}, 400),
        ({"Mcp-Session-Id": "0" * 32, "MCP-Protocol-Version": "2025-06-18"}, (400, 404)),
    ],
)
def test_a_request_in_the_wrong_dress_runs_nothing(stack, opened, era, more, status):
    stack.worker.ran.clear()
    answer = send(stack, opened.token, raw(), **{**opened.eras[era], **more})
    assert answer.status_code in (status if isinstance(status, tuple) else (status,))
    assert stack.worker.ran == []


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT", "GET", "DELETE"])
def test_a_method_that_the_newer_era_has_not_is_none(stack, opened, method):
    with httpx2.Client(timeout=30) as http:
        answer = http.request(method, stack.mcp_url, headers=headers(opened.token, **NAMED))
    assert answer.status_code in (400, 405)
    assert serves(stack, opened.token)


def test_one_session_of_mcp_cannot_be_taken_over_into_the_other_era_and_goes_on(stack, opened):
    ours = opened.eras["legacy"]
    discover = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}})
    listed = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    assert "error" in send(stack, opened.token, discover, **ours).text
    mixed = {**ours, **MODERN, "Mcp-Method": "tools/list"}
    assert send(stack, opened.token, listed, **mixed).status_code == 400  # its envelope is missing
    again = send(stack, opened.token, listed, **ours)
    assert (again.status_code, "workspace_read" in again.text) == (200, True)


@pytest.mark.parametrize("forged", ["x", "0" * 32, "../../etc/passwd", "é", "0" * 4000])
def test_a_forged_session_id_opens_nothing(stack, forged):
    _, token = stack.open_session()
    ours = {"Mcp-Session-Id": forged.encode()}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    given = {
        name.encode(): value.encode() if isinstance(value, str) else value
        for name, value in headers(token, **ours, **LEGACY).items()
    }
    answer = httpx2.post(stack.mcp_url, content=text, headers=given, timeout=30)
    assert answer.status_code in (400, 404)


def connected(stack, first):
    parts = urlsplit(stack.url)
    opened = socket.create_connection((parts.hostname, parts.port), timeout=10)
    opened.sendall(first)
    return opened


def answers(opened):
    """Whether a whole good answer comes."""
    got = b""
    while not got.endswith(b"}"):
        piece = opened.recv(4096)
        if not piece:
            return False
        got += piece
    return got.startswith(b"HTTP/1.1 200")


def closed_within(opened, seconds):
    """Whether the other side closes it although we go on sending."""
    deadline = time.monotonic() + seconds
    opened.settimeout(0.2)
    while time.monotonic() < deadline:
        try:
            if opened.recv(4096) == b"":
                return True
            opened.sendall(b"x")
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


@pytest.mark.parametrize("first", [b"", b"POST /mcp HT", b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "])
def test_a_head_that_never_ends_ends_the_connection(stack, monkeypatch, first):
    monkeypatch.setattr(http_timeouts, "REQUEST_HEAD_TIMEOUT_S", 0.5)
    with connected(stack, first) as opened:
        assert closed_within(opened, 10)


def test_a_second_head_that_never_ends_ends_the_connection_too(stack, monkeypatch):
    monkeypatch.setattr(http_timeouts, "REQUEST_HEAD_TIMEOUT_S", 0.5)
    with connected(stack, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as opened:
        assert answers(opened)
        opened.sendall(b"GET /hea")
        assert closed_within(opened, 10)


def test_an_idle_connection_between_two_requests_stays(stack, monkeypatch):
    monkeypatch.setattr(http_timeouts, "REQUEST_HEAD_TIMEOUT_S", 0.2)
    request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with connected(stack, request) as opened:
        assert answers(opened)
        time.sleep(0.6)  # longer than a head may take: nothing was begun
        opened.sendall(request)
        assert answers(opened)


def test_a_body_that_never_ends_ends_the_request(stack, monkeypatch):
    monkeypatch.setattr(bearer_auth, "BODY_TIMEOUT_S", 0.5)
    _, token = stack.open_session()
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Length: 1000\r\n\r\n"
    with connected(stack, head.encode() + b'{"jsonrpc": ') as opened:
        assert closed_within(opened, 10)
    assert serves(stack, token)


def test_a_session_with_too_many_requests_at_once_is_told_so_and_holds_up_nobody(stack, helpers):
    _, token = stack.open_session()
    _, other = stack.open_session()
    stack.worker.gate.clear()
    modern = {**MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "workspace_read"}

    async def go():
        async with httpx2.AsyncClient(timeout=90, limits=httpx2.Limits(max_connections=None)) as http:

            async def one(number):
                content = call("workspace_read", {"path": f"file-{number}"}, number)
                answer = await http.post(stack.mcp_url, content=content, headers=headers(token, **modern))
                return answer.status_code, answer.headers.get("retry-after")

            asked = [asyncio.create_task(one(number)) for number in range(throttle.MAX_CONCURRENT + 3)]
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=60)
            refused = [task.result() for task in done]
            listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
            theirs = await http.post(
                stack.mcp_url, json=listing, headers=headers(other, **MODERN, **{"Mcp-Method": "tools/list"})
            )
            stack.worker.gate.set()
            await asyncio.wait(asked, timeout=60)
            return refused, theirs.status_code, sorted(task.result()[0] for task in asked)

    refused, theirs, statuses = helpers.within(go(), 90.0)
    assert set(refused) == {(429, "1")}
    assert theirs == 200
    assert statuses[-1] == 429
    assert statuses.count(200) == throttle.MAX_CONCURRENT


NO_OBJECT = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}'
FIELDS = {
    "half a pair": (raw('{"path": "\\ud800"}'), "params.arguments.path contains half"),
    "half a pair in a key": (raw('{"\\udfff": "x"}'), "a key of params.arguments contains half"),
    "half a pair in a list": (raw('{"argv": ["a", "\\udfff"]}'), "params.arguments.argv[1] contains half"),
    "NaN": (raw('{"path": "a", "offset": NaN}'), "'/offset' is nan"),
    "beyond range": (raw('{"path": "a", "offset": 1e999}'), "'/offset' is inf"),
    "beyond 2^53": (raw('{"path": "a", "offset": 18446744073709551617}'), "'/offset' is an integer past"),
    "many digits": (raw(f'{{"path": "a", "offset": {"9" * 5000}}}'), "params.arguments.offset is not a finite number"),
    "deep list": (raw(f'{{"path": {NESTED}}}'), "params.arguments.path is nested"),
    "deeper list": (raw(f'{{"path": {DEEP}}}'), "params.arguments.path is nested"),
    "deep for a tool": (raw(f'{{"path": "a", "offset": {"[" * 150 + "]" * 150}}}'), "'/offset' is nested deeper"),
    "deep object": (raw('{"path": ' + '{"a":' * 50_000 + "1" + "}" * 50_001), "params.arguments.path is nested"),
    "arguments in a list": (raw('["a"]'), "params.arguments: Input should be a valid dictionary"),
    "arguments as text": (raw('"a"'), "params.arguments: Input should be a valid dictionary"),
    "no name": (raw(name='"x": 7'), "params.name: Field required"),
    "params in a list": (NO_OBJECT, "params: Input should be an object"),
    "method of another type": (raw(method='"method": 7'), "method: Input should be a valid string"),
    "id null": (raw(number="null"), "its id is neither a string nor an integer"),
    "id of a fraction": (raw(number="1.5"), "its id is neither a string nor an integer"),
    "another version": (raw().replace('"2.0"', '"1.0"'), "jsonrpc: Input should be '2.0'"),
    "batch": (f"[{raw()}]", "several messages in one are not supported"),
    "wrong type of an argument": (raw('{"path": 7}'), "`/path` of"),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("text", "said"), FIELDS.values(), ids=FIELDS)
def test_an_error_names_the_field(stack, opened, era, text, said):
    answer = send(stack, opened.token, text, **opened.eras[era])

    assert said in answer.text
    assert answer.status_code in (200, 400)


@pytest.mark.parametrize("era", ERAS)
def test_an_error_of_a_body_that_cannot_be_parsed_has_its_requests_id(stack, opened, era):
    answer = send(stack, opened.token, raw('{"path": "\\ud800"}', number="77"), **opened.eras[era])

    assert answer.json()["id"] == 77


@pytest.mark.parametrize("era", ERAS)
def test_a_byte_order_mark_is_ignored(stack, opened, era):
    assert "hello" in send(stack, opened.token, "\ufeff" + raw(), **opened.eras[era]).text
