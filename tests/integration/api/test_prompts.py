"""Prompts, completions and resource subscriptions, as the official client sees them in both eras."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.payloads import FileChange, SandboxFilesChanged
from codesdk.domain.tool_results import ToolResult
from codesdk.mcphost.listings import list_changed
from codesdk.mcphost.session_resources import uris
from codesdk.toolcalls.records import call_events
from stage import REPOSITORY

pytestmark = pytest.mark.filterwarnings(
    "ignore::mcp.shared.exceptions.MCPDeprecationWarning"
)  # subscribing in the handshake era

ERAS = ["legacy", "auto"]
REVIEW = """\
version: 1
name: review
arguments:
  - {name: path, required: true, description: Which file.}
  - {name: tone, default: kind, values: [kind, Keen, strict]}
messages:
  - text: "Review {path}, be {tone}."
"""
TEMPLATE = types.ResourceTemplateReference(uri=uris.ARTIFACT_TEMPLATE)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(list_changed, "POLL_S", 0.1)


@pytest.fixture(scope="module")
def prompted(tmp_path_factory, helpers):
    root = tmp_path_factory.mktemp("prompted")
    tools = root / "tools"
    shutil.copytree(REPOSITORY / "tool-registry", tools)
    (tools / "prompts").mkdir(exist_ok=True)
    (tools / "prompts" / "review.yaml").write_text(REVIEW)
    with helpers.running(root, 10.0, registry_dir=tools) as stack:
        yield stack


@asynccontextmanager
async def hearing(stack, token, kind):
    """A client of the handshake era, and what it hears of that kind."""
    heard = asyncio.Queue()

    async def on_message(message):
        if isinstance(message, kind):
            heard.put_nowait(message)

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http,
        Client(
            streamable_http_client(stack.mcp_url, http_client=http), mode="legacy", message_handler=on_message
        ) as client,
    ):
        yield client, heard


@pytest.mark.parametrize("mode", ERAS)
def test_prompts_are_listed_and_filled_and_what_is_wrong_is_said(prompted, helpers, mode):
    _, token = prompted.open_session()

    async def go():
        async with prompted.client(token, mode) as client:
            (listed,) = (await client.list_prompts()).prompts
            filled = await client.get_prompt("review", {"path": "a.py", "tone": "strict"})
            wrong = []
            for name, given in (("review", {}), ("review", {"path": "a", "x": "y"}), ("none", {})):
                with pytest.raises(MCPError) as error:
                    await client.get_prompt(name, given)
                wrong.append((error.value.code, str(error.value)))
            return listed, filled, wrong

    listed, filled, wrong = helpers.within(go())
    assert [(a.name, a.required) for a in listed.arguments] == [("path", True), ("tone", False)]
    assert [(m.role, m.content.text) for m in filled.messages] == [("user", "Review a.py, be strict.")]
    assert {code for code, _ in wrong} == {-32602}
    assert "'path'" in wrong[0][1]


@pytest.mark.parametrize("mode", ERAS)
def test_a_prompts_values_and_the_sessions_own_artifacts_are_completed(prompted, helpers, mode):
    session, token = prompted.open_session()
    other, _ = prompted.open_session()
    artifacts = prompted.services.artifacts
    kept = [artifacts.put(b"x", s.tenant_id, s.id, content_type="text/plain", name="n") for s in (session, other)]
    for each in kept:
        prompted.services.writer.run(lambda unit, each=each: artifacts.record(unit, each))

    async def go():
        async with prompted.client(token, mode) as client:
            prompt = types.PromptReference(name="review")
            tones = await client.complete(prompt, {"name": "tone", "value": "k"})
            paths = await client.complete(prompt, {"name": "path", "value": ""})
            ids = await client.complete(TEMPLATE, {"name": "id", "value": kept[0].id[:6]})
            with pytest.raises(MCPError):
                await client.complete(prompt, {"name": "none", "value": ""})
            with pytest.raises(MCPError):
                await client.complete(types.ResourceTemplateReference(uri="x://{y}"), {"name": "y", "value": ""})
            return [found.completion.values for found in (tones, paths, ids)]

    assert helpers.within(go()) == [["kind", "Keen"], [], [kept[0].id]]


def test_clients_of_both_eras_hear_that_the_prompts_are_others(prompted, helpers):
    _, token = prompted.open_session()
    file = prompted.settings.registry_dir / "prompts" / "review.yaml"

    def change(text):
        file.write_text(text)
        prompted.services.registry.refresh()

    async def go():
        async with (
            prompted.client(token, "auto") as modern,
            modern.listen(prompts_list_changed=True) as changes,
            hearing(prompted, token, types.PromptListChangedNotification) as (legacy, heard),
        ):
            assert legacy.server_capabilities.prompts.list_changed
            await asyncio.to_thread(change, REVIEW.replace("be {tone}", "be very {tone}"))  # not in the list
            await asyncio.to_thread(change, REVIEW.replace("Which file.", "Which of the files."))
            await heard.get()
            first = await anext(aiter(changes))
            return type(first).__name__, (await legacy.list_prompts()).prompts[0].arguments[0].description

    try:
        assert helpers.within(go()) == ("PromptsListChanged", "Which of the files.")
    finally:
        change(REVIEW)


# -- subscriptions ----------------------------------------------------------------------------------------------------

WRITE = ("workspace_write", {"path": "notes/a.txt", "content": "b"})
A, B = uris.file_uri("notes/a.txt"), uris.file_uri("other.txt")


def writes(stack):
    """Writing works; nothing else does."""
    written = {"path": "notes/a.txt", "bytes": 1, "created": False, "sha256": "0" * 64}
    failed = ToolResult(text="There is no such file.", is_error=True, code="NOT_FOUND")

    def answer(claimed):
        writing = claimed.stored.call.name == "workspace.write"
        return ToolResult(text="written", structured=written) if writing else failed

    stack.worker.answer = answer


def test_a_client_of_the_handshake_era_hears_of_the_file_that_a_call_writes_until_it_leaves(stack, helpers):
    writes(stack)
    _, token = stack.open_session()

    async def go():
        async with hearing(stack, token, types.ResourceUpdatedNotification) as (client, heard):
            assert client.server_capabilities.resources.subscribe
            for uri in (A, B):
                await client.subscribe_resource(uri)
            await client.unsubscribe_resource(B)
            await client.subscribe_resource(B)
            await client.call_tool(*WRITE)
            told = [str((await heard.get()).params.uri)]
            await client.call_tool("workspace_read", {"path": "other.txt"})
            await client.call_tool(*WRITE)
            told.append(str((await heard.get()).params.uri))
            with pytest.raises(MCPError):
                await client.subscribe_resource("codesdk://nowhere/x")
            return told, heard.qsize(), stack.mcp.watching.followed

    assert helpers.within(go()) == ([A, A], 0, 1)
    helpers.eventually(lambda: not stack.mcp.watching.followed)


def test_a_client_of_the_newer_era_hears_it_on_its_stream_which_ends_with_the_session(stack, helpers):
    writes(stack)
    session, token = stack.open_session()

    async def go():
        async with stack.client(token, "auto") as client, client.listen(resource_subscriptions=[A, B]) as changes:
            seen = aiter(changes)
            await client.call_tool(*WRITE)
            told = str((await anext(seen)).uri)
            await asyncio.to_thread(stack.services.sessions.close, session.tenant_id, session.id)
            with pytest.raises(StopAsyncIteration):
                await anext(seen)
            return told

    assert helpers.within(go()) == A
    helpers.eventually(lambda: not stack.mcp.watching.followed)


def changes(stack, token, *paths, times=1, **more):
    """A watched workspace tells that files changed, so many times at once, as its worker writes it down."""
    told = SandboxFilesChanged(
        sandbox_id="sbx_00000000000000000000000001",
        phase="changed",
        changes=[FileChange(kind="changed", path=path) for path in paths],
        execution_env=ToolExecutionEnv.CODESDK_DOCKER,
        **more,
    )
    event = call_events.draft(stack.services.directory.subject(token), told)
    stack.services.writer.run(lambda unit: [stack.services.log.append(unit, event) for _ in range(times)])


@pytest.mark.parametrize("mode", ERAS)
def test_what_changes_in_a_watched_workspace_is_heard_however_often_it_changes_once(stack, helpers, mode):
    _, token = stack.open_session()

    async def hears(next_):
        await asyncio.to_thread(changes, stack, token, "notes/a.txt", "made/by/the/build.o", times=50)
        await asyncio.to_thread(changes, stack, token, "other.txt")
        told = []
        while B not in told:
            told.append(await next_())
        return told

    async def go():
        if mode == "legacy":
            async with hearing(stack, token, types.ResourceUpdatedNotification) as (client, heard):
                for uri in (A, B):
                    await client.subscribe_resource(uri)

                async def next_():
                    return str((await heard.get()).params.uri)

                return await hears(next_)
        async with stack.client(token, "auto") as client, client.listen(resource_subscriptions=[A, B]) as listened:
            seen = aiter(listened)

            async def next_():
                return str((await anext(seen)).uri)

            return await hears(next_)

    told = helpers.within(go())
    assert (told.count(B), set(told)) == (1, {A, B})
    assert told.count(A) < 50


@pytest.mark.parametrize("more", [{"dropped": 3}, {"lost": ("notes",)}, {"lost": (".",)}])
def test_of_changes_that_a_watch_missed_everything_there_is_told(stack, helpers, more):
    _, token = stack.open_session()

    async def go():
        async with hearing(stack, token, types.ResourceUpdatedNotification) as (client, heard):
            await client.subscribe_resource(A)
            await asyncio.to_thread(changes, stack, token, "x", **more)
            return str((await heard.get()).params.uri)

    assert helpers.within(go()) == A


def test_subscriptions_are_bounded_and_another_sessions_calls_are_not_heard(stack, helpers):
    writes(stack)
    _, token = stack.open_session()
    _, other = stack.open_session()

    async def go():
        async with (
            hearing(stack, token, types.ResourceUpdatedNotification) as (client, heard),
            stack.client(other, "auto") as stranger,
        ):
            for number in range(200):
                await client.subscribe_resource(uris.file_uri(f"f{number}"))
            with pytest.raises(MCPError, match="200"):
                await client.subscribe_resource(A)
            await client.unsubscribe_resource(uris.file_uri("f0"))
            await client.subscribe_resource(A)
            await stranger.call_tool(*WRITE)
            await client.call_tool(*WRITE)
            first = str((await heard.get()).params.uri)
            return first, heard.qsize()

    assert helpers.within(go()) == (A, 0)


@pytest.mark.parametrize("told", [True, False])
def test_the_operator_can_have_clients_ask_about_tools_that_only_read(tmp_path, helpers, told):
    with helpers.running(tmp_path, 10.0, read_only_hints=told) as stack:
        _, token = stack.open_session()

        async def go():
            async with stack.client(token, "auto") as client:
                return {tool.name: tool.annotations.read_only_hint for tool in (await client.list_tools()).tools}

        hints = helpers.within(go())
    assert (hints["workspace_read"], hints["collect_result"]) == ((True, True) if told else (None, None))
    assert hints["workspace_write"] is (False if told else None)
