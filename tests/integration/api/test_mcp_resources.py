"""Resources of a session, and streams that a client resumes."""

from __future__ import annotations

import asyncio
import base64
import json

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from codesdk.domain.tool_results import ToolResult
from codesdk.mcphost.session_resources import uris

ERAS = ["legacy", "auto"]
MISSING = {"legacy": -32002, "auto": -32602}


def asks(stack, helpers, token, mode, *steps):
    """What each step says; a protocol error is a value."""

    async def go():
        async with stack.client(token, mode) as client:
            said = []
            for step in steps:
                try:
                    said.append(await step(client))
                except MCPError as error:
                    said.append(error)
            return said

    return helpers.within(go())


def keep(stack, session, content, content_type="text/plain", name="out.txt"):
    artifacts = stack.services.artifacts
    kept = artifacts.put(content, session.tenant_id, session.id, content_type=content_type, name=name)
    stack.services.writer.run(lambda unit: artifacts.record(unit, kept))
    return kept.id


@pytest.mark.parametrize("mode", ERAS)
def test_artifacts_are_listed_and_read_whole_or_in_parts(standing, helpers, mode):
    session, token = standing.open_session()
    words = keep(standing, session, "Grüße, 1013 hPa".encode())
    noise = keep(standing, session, bytes(range(256)), "application/octet-stream", "noise")
    listed, whole, part, cut, rest, binary, past = asks(
        standing,
        helpers,
        token,
        mode,
        lambda client: client.list_resources(),
        lambda client: client.read_resource(uris.artifact_uri(words)),
        lambda client: client.read_resource(uris.artifact_uri(words) + "?start=9&length=4"),
        lambda client: client.read_resource(uris.artifact_uri(words) + "?start=0&length=3"),
        lambda client: client.read_resource(uris.artifact_uri(words) + "?start=3&length=1"),
        lambda client: client.read_resource(uris.artifact_uri(noise) + "?start=250"),
        lambda client: client.read_resource(uris.artifact_uri(words) + "?start=99"),
    )
    assert [(each.name, each.size, str(each.uri)) for each in listed.resources] == [
        ("noise", 256, uris.artifact_uri(noise)),
        ("out.txt", 17, uris.artifact_uri(words)),
    ]
    assert (whole.contents[0].text, part.contents[0].text) == ("Grüße, 1013 hPa", "1013")
    assert (cut.contents[0].text, cut.meta["codesdk/part"]["length"]) == ("Gr", 2)
    assert (rest.contents[0].text, rest.meta["codesdk/part"]) == ("ü", {"start": 2, "length": 2, "size": 17})
    assert base64.b64decode(binary.contents[0].blob) == bytes(range(250, 256))
    assert part.meta["codesdk/part"] == {"start": 9, "length": 4, "size": 17}
    assert past.contents[0].text == ""


@pytest.mark.parametrize("mode", ERAS)
def test_long_lists_come_in_pages_and_a_cursor_of_another_list_is_refused(standing, helpers, monkeypatch, mode):
    monkeypatch.setattr(uris, "PAGE_SIZE", 2)
    session, token = standing.open_session()
    for number in range(3):
        keep(standing, session, b"x", name=str(number))

    async def all_pages(client):
        names, cursor = [], None
        while True:
            page = await client.list_resources(cursor=cursor)
            names += [[each.name for each in page.resources]]
            cursor = page.next_cursor
            if cursor is None:
                return names

    pages, odd, tools = asks(
        standing,
        helpers,
        token,
        mode,
        all_pages,
        lambda client: client.list_resources(cursor="art_of_nobody"),
        lambda client: client.list_tools(cursor="2"),
    )
    assert pages == [["2", "1"], ["0"]]
    assert (odd.code, tools.code) == (-32602, -32602)


@pytest.mark.parametrize("mode", ERAS)
def test_what_is_another_sessions_does_not_exist(standing, helpers, mode):
    session, _ = standing.open_session()
    theirs = keep(standing, session, b"secret")
    _, token = standing.open_session()
    listed, read, nonsense = asks(
        standing,
        helpers,
        token,
        mode,
        lambda client: client.list_resources(),
        lambda client: client.read_resource(uris.artifact_uri(theirs)),
        lambda client: client.read_resource("file:///etc/passwd"),
    )
    assert listed.resources == []
    assert (read.code, nonsense.code) == (MISSING[mode], MISSING[mode])
    assert read.error.data == {"uri": uris.artifact_uri(theirs)}
    assert read.message == nonsense.message


@pytest.mark.parametrize("mode", ERAS)
def test_reading_a_file_is_a_call_that_policy_decides_about_and_that_is_on_record(stack, helpers, mode):
    session, token = stack.open_session()
    good, denied = asks(
        stack,
        helpers,
        token,
        mode,
        lambda client: client.read_resource(uris.file_uri("a.txt")),
        lambda client: client.read_resource(uris.file_uri("server.pem")),
    )
    assert good.contents[0].text == "hello\n"
    assert good.meta["codesdk/part"]["total_lines"] == 1
    assert "Keys are not read." in denied.message
    assert [kind for kind in stack.types(session) if kind.startswith("tool.call")][-1] == "tool.call.denied"
    assert stack.types(session).count("tool.call.completed") == 1


@pytest.mark.parametrize("mode", ERAS)
def test_a_result_links_to_the_artifact_that_has_the_whole(stack, helpers, mode):
    session, token = stack.open_session()
    text = keep(stack, session, b"all of it", "text/plain; charset=utf-8", "call_1-stdout.txt")
    noise = keep(stack, session, b"\xff", "application/octet-stream", "call_1-stderr.bin")
    repeated = keep(stack, session, b"{}", "application/json", "call_1-result.json")
    stack.worker.answer = lambda _: ToolResult(text="some", is_error=True, artifacts=(text, noise, repeated))
    (result,) = asks(stack, helpers, token, mode, lambda client: client.call_tool("workspace_read", {"path": "a"}))
    said, *links = result.content
    assert said.text.split("\n") == [
        "some",
        f'[The whole stdout of call_1, text/plain; charset=utf-8, 9 bytes: workspace_read {{"path": "{uris.artifact_uri(text)}"}}]',
        f"[The whole stderr of call_1, application/octet-stream, 1 bytes: {uris.artifact_uri(noise)}]",
    ]
    assert [(link.type, str(link.uri), link.title, link.mime_type, link.size) for link in links] == [
        ("resource_link", uris.artifact_uri(text), "The whole stdout of call_1", "text/plain; charset=utf-8", 9),
        ("resource_link", uris.artifact_uri(noise), "The whole stderr of call_1", "application/octet-stream", 1),
        ("resource_link", uris.artifact_uri(repeated), "The whole result of call_1", "application/json", 2),
    ]


def test_a_client_whose_connection_drops_takes_the_result_up_again_and_nothing_runs_twice(stack, helpers):
    session, token = stack.open_session()
    stack.worker.gate.clear()
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-11-25",
    }

    def message(method, params, **more):
        return {"jsonrpc": "2.0", "method": method, "params": params, **more}

    async def go():
        async with httpx2.AsyncClient(headers=headers, timeout=20) as http:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            opened = await http.post(stack.mcp_url, json=message("initialize", hello, id=0))
            ours = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            await http.post(stack.mcp_url, json=message("notifications/initialized", {}), headers=ours)
            call = message("tools/call", {"name": "workspace_read", "arguments": {"path": "a"}}, id=1)
            async with http.stream("POST", stack.mcp_url, json=call, headers=ours) as stream:
                lines = stream.aiter_lines()
                first = await anext(line async for line in lines if line.startswith("id: "))
                await asyncio.to_thread(helpers.eventually, lambda: stack.worker.ran)
            last_seen = {"Last-Event-ID": first.removeprefix("id: ")}
            resume = http.stream("GET", stack.mcp_url, headers={**ours, **last_seen})
            async with resume as stream:
                stack.worker.gate.set()
                data = await anext(line async for line in stream.aiter_lines() if line.startswith("data: {"))
            _, other = await asyncio.to_thread(stack.open_session)
            stolen = {**ours, **last_seen, "Authorization": f"Bearer {other}"}
            return json.loads(data[6:]), (await http.get(stack.mcp_url, headers=stolen)).status_code

    answer, stolen = helpers.within(go())
    assert answer["result"]["structuredContent"]["content"] == "hello\n"
    assert stack.worker.ran == ["workspace.read"]
    assert stack.types(session).count("tool.call.requested") == 1
    assert stolen == 404


@pytest.mark.parametrize("mode", ERAS)
def test_an_answer_shows_its_images_and_links_to_what_only_claims_to_be_one(stack, helpers, mode):
    session, token = stack.open_session()
    image = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (10).to_bytes(4, "big") * 2 + b"\xff"
    kept = (
        keep(stack, session, image, "image/png", "call_1-image.png"),
        keep(stack, session, b"GIF", "image/gif", "call_1-image-2"),
        keep(stack, session, image.replace(b"\0\0\0\n", b"\0\0\xff\n"), "image/png", "call_1-image-3"),
        keep(stack, session, image, "image/svg+xml", "call_1-image-4"),
    )
    stack.worker.answer = lambda _: ToolResult(text="a.png is a PNG image.", is_error=True, artifacts=kept)
    (result,) = asks(stack, helpers, token, mode, lambda client: client.call_tool("workspace_read", {"path": "a"}))
    assert [part.type for part in result.content] == ["text", "image", *["resource_link"] * 4]
    assert (result.content[1].mime_type, base64.b64decode(result.content[1].data)) == ("image/png", image)
    assert result.content[0].text.count("codesdk://") == 3


@pytest.mark.parametrize("mode", ERAS)
def test_an_image_of_the_workspace_is_read_as_a_resource(stack, helpers, mode):
    session, token = stack.open_session()
    image = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (10).to_bytes(4, "big") * 2 + b"\xff"
    kept = keep(stack, session, image, "image/png", "call_1-image.png")
    about = {"path": "a.png", "content": "", "start_line": 0, "end_line": 0, "total_lines": 0, "truncated": False}
    about |= {"sha256": None, "media": {"type": "image/png", "width": 10, "height": 10, "bytes": len(image)}}
    stack.worker.answer = lambda _: ToolResult(text="a PNG image", structured=about, artifacts=(kept,))
    (read,) = asks(stack, helpers, token, mode, lambda client: client.read_resource(uris.file_uri("a.png")))
    assert (read.contents[0].mime_type, base64.b64decode(read.contents[0].blob)) == ("image/png", image)
