"""Measures what the MCP host adds to the bare SDK: a tool that does nothing, and the memory of an idle MCP session.

Two servers run as separate processes on loopback: the application as served, with one additional tool that answers at
once, and the SDK's server with that tool alone. The official client calls them in turn, so that other load on the
machine affects both. Before the tool, our host looks up the token, counts the request, and reads and limits the body;
pipeline and sandbox take no part.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route

from codesdk.api.app import create_app
from codesdk.api.http_timeouts import TimeoutH11Protocol
from codesdk.api.server import KEEP_ALIVE_S
from codesdk.bootstrap import Services
from codesdk.eventlog.hints import LocalHints
from codesdk.jobs import LocalWakeups
from codesdk.sessions import NewSession
from codesdk.settings import Settings
from codesdk.storage.schema import hosts
from codesdk.tenancy.principal import Role

CALLS = 400
WARM_UP = 40
SESSIONS = 300
STREAMS = 1000
"""Idle streams of the newer era, of ten sessions: one has at most 128 requests open."""
PLAIN = (
    "mcp_noop_ms",
    "sdk_noop_ms",
    "mcp_noop_per_sdk",
    "mcp_session_kb",
    "mcp_stream_kb",
    "mcp_noop_1000_streams_ms",
)
"""The report's keys."""
NAME = "noop"


async def noop(_ctx: Any, _params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text="done")])


async def listing(_ctx: Any, _params: Any) -> types.ListToolsResult:
    schema = {"type": "object", "properties": {}}
    return types.ListToolsResult(tools=[types.Tool(name=NAME, description="Nothing.", input_schema=schema)])


def serve(kind: str, place: Path) -> None:
    """Run one of the two servers; print its port and its token on stdout."""
    with ExitStack() as opened:
        app, token = _ours(opened, place) if kind == "ours" else (_bare(), "none")
        http = TimeoutH11Protocol if kind == "ours" else "h11"
        config = uvicorn.Config(app, port=0, http=http, ws="none", log_config=None, timeout_keep_alive=KEEP_ALIVE_S)
        server = uvicorn.Server(config)

        async def run() -> None:
            task = asyncio.create_task(server.serve())
            while not server.started:  # noqa: ASYNC110 (uvicorn gives nothing to wait for)
                await asyncio.sleep(0.01)
            print(server.servers[0].sockets[0].getsockname()[1], token, flush=True)
            await task

        asyncio.run(run())


def _ours(opened: ExitStack, place: Path) -> tuple[Any, str]:
    settings = Settings(data_dir=place, host_lease_s=0.0)  # the fake host sends no heartbeats
    services = Services(settings, hints=LocalHints(), wakeups=LocalWakeups())
    opened.callback(services.close)
    row = {
        "id": "hst_00000000000000000000000001",
        "name": "host",
        "generation": 1,
        "heartbeat": 1,
        "registered_at": 1.0,
    }
    with services.database.writer.begin() as connection:
        connection.execute(hosts.insert(), {**row, "images": '{"base": "sha256:image"}'})

    principal, _ = services.writer.run(
        lambda unit: services.directory.enroll(unit, "default", "bench", (Role.OPERATOR,))
    )
    token = ",".join(services.sessions.open(principal, NewSession())[1] for _ in range(1 + STREAMS // 100))
    app = create_app(services, settings)
    server = app.state.mcp.server
    own = server.get_request_handler("tools/call")

    async def call(ctx: Any, params: types.CallToolRequestParams) -> Any:
        return await (noop if params.name == NAME else own.handler)(ctx, params)

    server.add_request_handler("tools/call", own.params_type, call)
    # List the tools first: the client lists them all after a call of one that it doesn't know.
    server.add_request_handler("tools/list", types.PaginatedRequestParams, listing)
    return app, token


def _bare() -> Any:
    server: Server[Any] = Server("bare", on_list_tools=listing, on_call_tool=noop)
    manager = StreamableHTTPSessionManager(server)

    @asynccontextmanager
    async def lifespan(_app: Any) -> Any:
        async with manager.run():
            yield

    return Starlette(routes=[Route("/mcp", endpoint=StreamableHTTPASGIApp(manager))], lifespan=lifespan)


def measure(say: Callable[[str], None]) -> dict[str, float]:
    """Return the milliseconds (p50) of a call on each, their ratio, and KiB of an idle session."""
    say("the MCP host and the bare SDK")
    with tempfile.TemporaryDirectory() as place, ExitStack() as opened:
        servers = {kind: _started(opened, kind, Path(place) / kind) for kind in ("ours", "bare")}
        return asyncio.run(
            _measure({kind: (url, token) for kind, (url, token, _) in servers.items()}, servers["ours"][2])
        )


def _started(opened: ExitStack, kind: str, place: Path) -> tuple[str, str, int]:
    place.mkdir()
    line = [sys.executable, __file__, kind, str(place)]
    process = opened.enter_context(subprocess.Popen(line, stdout=subprocess.PIPE, text=True))
    opened.callback(process.terminate)
    port, tokens = process.stdout.readline().split()
    return f"http://127.0.0.1:{port}/mcp", tokens, process.pid


async def _measure(servers: dict[str, tuple[str, str]], pid: int) -> dict[str, float]:
    times: dict[str, list[float]] = {kind: [] for kind in servers}
    async with AsyncExitStack() as opened:
        clients = {}
        for kind, (url, tokens) in servers.items():
            token = tokens.split(",")[0]
            http = await opened.enter_async_context(
                httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False)
            )
            clients[kind] = await opened.enter_async_context(Client(streamable_http_client(url, http_client=http)))
        for number in range(WARM_UP + CALLS):
            for kind, client in clients.items():
                began = time.perf_counter()
                await client.call_tool(NAME, {})
                if number >= WARM_UP:
                    times[kind].append((time.perf_counter() - began) * 1000)
    ours, bare = (statistics.median(times[kind]) for kind in ("ours", "bare"))
    url, tokens = servers["ours"]
    caller, *listeners = tokens.split(",")
    held = await _per_session(url, caller, pid)
    stream, beside = await _beside_streams(url, caller, listeners, pid)
    found = (round(ours, 3), round(bare, 3), round(ours / bare, 2), round(held, 1), round(stream, 1), round(beside, 3))
    return dict(zip(PLAIN, found, strict=True))


async def _beside_streams(url: str, caller: str, listeners: list[str], pid: int) -> tuple[float, float]:
    """Return the KiB of one idle stream, and the milliseconds (p50) of a call while all of them are open."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    common = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "subscriptions/listen",
    }
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(timeout=60, limits=limits, trust_env=False) as http:
        before, streams = _resident_kib(pid), []
        for number in range(STREAMS):
            token = listeners[number % len(listeners)]
            request = http.build_request("POST", url, json=body, headers={**common, "Authorization": f"Bearer {token}"})
            answer = await http.send(request, stream=True)
            answer.raise_for_status()
            streams.append(answer)
        held = (_resident_kib(pid) - before) / STREAMS
        times = []
        plain = httpx2.AsyncClient(headers={"Authorization": f"Bearer {caller}"}, timeout=30, trust_env=False)
        async with plain as own, Client(streamable_http_client(url, http_client=own)) as client:
            for number in range(WARM_UP + CALLS // 4):
                began = time.perf_counter()
                await client.call_tool(NAME, {})
                if number >= WARM_UP:
                    times.append((time.perf_counter() - began) * 1000)
        for stream in streams:
            await stream.aclose()
        return held, statistics.median(times)


async def _per_session(url: str, token: str, pid: int) -> float:
    """Return the KiB of one more idle session of the handshake era."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    async with httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:

        async def open_one() -> None:
            body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
            answer = await http.post(url, json=body)
            answer.raise_for_status()
            known = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
            await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=known)

        for _ in range(50):  # fills pools and caches
            await open_one()
        before = _resident_kib(pid)
        for _ in range(SESSIONS):
            await open_one()
        return (_resident_kib(pid) - before) / SESSIONS


def _resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1], Path(sys.argv[2]))
    else:
        print(measure(print))
