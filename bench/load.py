"""Measures calls per second, 16 at once, against `docker exec` and `docker run`; and the memory of API and worker.

- governed_16: 16 sessions, each with one `true` after the other over MCP. The requests are those of an MCP client, but
  written by hand: 16 whole clients would use a third of two cores;
- docker_exec_16, docker_run_16: 16 threads that do the same through the engine's API, with all execs in one container;
- memory: the share of each process (PSS) after some calls and 10 idle seconds, and with 200 calls running.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from codesdk.cli.api_client import OpenedSession
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.stack.stack import Stack
from codesdk.domain.tool_results import wire_name
from codesdk.sessions import NewSession
from codesdk.settings import runfile

AT_ONCE = 16
BLOCKS = 3
CALLS = 20
"""Of each of the 16 in a block."""
EXECS = 6
RUNNING = 200
SESSIONS = 10
REST_S = 10.0
START_S = 120.0
SLEEP_S = 300
PROTOCOL = "2026-07-28"
META = "io.modelcontextprotocol"
TOOL = "bench.sleep"
PLAIN = (
    "governed_16_per_s",
    "governed_16_p50_ms",
    "governed_16_p95_ms",
    "docker_exec_16_per_s",
    "docker_run_16_per_s",
    "api_rest_mb",
    "worker_rest_mb",
    "api_200_running_mb",
    "worker_200_running_mb",
)
"""Keys of the report that are plain numbers."""
Say = Callable[[str], None]
_SLEEPER = f"""\
name: {TOOL}
version: 1.0.0
title: Sleep
description: Does nothing for a while. It only reads, so a session may have many of it running.
classification: read-only
runs: {{argv: [sleep, "{SLEEP_S}"]}}
timeout_s: {SLEEP_S + 60}
input_schema: {{type: object, additionalProperties: false, properties: {{number: {{type: integer}}}}}}
"""


class Caller:
    """One connection to the MCP endpoint of one session."""

    def __init__(self, session: OpenedSession) -> None:
        self._session = session
        self._number = 0

    async def open(self) -> None:
        """Connect."""
        place = urlsplit(self._session.mcp_url)
        self._reader, self._writer = await asyncio.open_connection(place.hostname, place.port)

    async def send(self, tool: str, arguments: dict[str, Any]) -> None:
        """Send a call. It is cancelled if the connection ends before its answer."""
        self._number += 1
        meta = {
            f"{META}/protocolVersion": PROTOCOL,
            f"{META}/clientInfo": {"name": "bench", "version": "1"},
            f"{META}/clientCapabilities": {},
        }
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params}).encode()
        place = urlsplit(self._session.mcp_url)
        head = (
            f"POST {place.path} HTTP/1.1\r\nhost: {place.netloc}\r\nauthorization: Bearer {self._session.token}\r\n"
            "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
            f"mcp-protocol-version: {PROTOCOL}\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def call(self, tool: str, arguments: dict[str, Any]) -> None:
        """Make a call and wait for its answer, which must be a success."""
        await self.send(tool, arguments)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = await self._reader.readexactly(int(lengths[0].split(b":")[1]))
        assert json.loads(body)["result"]["isError"] is False, body

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        await self._writer.wait_closed()


def at_once(
    stack: Stack, docker_exec: Callable[[], None], docker_run: Callable[[], None], say: Say
) -> dict[str, float]:
    """Return calls per second, 16 at once (median of blocks in turn), and the duration of each governed call."""
    say(f"{AT_ONCE} at once")
    sessions = [stack.daemon.open_session(NewSession(labels={"opened-by": "bench"})) for _ in range(AT_ONCE)]
    rates: defaultdict[str, list[float]] = defaultdict(list)
    times: list[float] = []
    asyncio.run(_governed(sessions, 3))  # opens their sandboxes and warms everything up
    with ThreadPoolExecutor(AT_ONCE) as threads:

        def peers(work: Callable[[], None], count: int) -> None:
            for done in [threads.submit(work) for _ in range(AT_ONCE * count)]:
                done.result()

        for _ in range(BLOCKS):
            for name, count, work in (
                ("governed_16_per_s", CALLS, lambda: times.extend(asyncio.run(_governed(sessions, CALLS)))),
                ("docker_exec_16_per_s", EXECS, lambda: peers(docker_exec, EXECS)),
                ("docker_run_16_per_s", 1, lambda: peers(docker_run, 1)),
            ):
                began = time.perf_counter()
                work()
                rates[name].append(AT_ONCE * count / (time.perf_counter() - began))
    for session in sessions:
        stack.daemon.close_session(session.session.id)
    found = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    cuts = statistics.quantiles(times, n=20, method="inclusive")
    return found | {"governed_16_p50_ms": round(cuts[9], 1), "governed_16_p95_ms": round(cuts[-1], 1)}


async def _governed(sessions: list[OpenedSession], count: int) -> list[float]:
    """How long each call took, in milliseconds."""
    times: list[float] = []
    callers = [Caller(session) for session in sessions]
    for caller in callers:
        await caller.open()

    async def run(caller: Caller) -> None:
        for _ in range(count):
            began = time.perf_counter()
            await caller.call("workspace_exec", {"argv": ["true"]})
            times.append((time.perf_counter() - began) * 1000)

    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(run(caller))
    for caller in callers:
        await caller.close()
    return times


def memory(policies: Path, registry: Path, say: Say) -> dict[str, float]:
    """Return the megabytes of API and worker, idle and with 200 running calls, in their own installation."""
    say(f"memory, at rest and with {RUNNING} running calls")
    with tempfile.TemporaryDirectory(prefix="codesdk-bench-") as place:
        tools = Path(place) / "tools"
        shutil.copytree(registry, tools)
        (tools / f"{TOOL}.yaml").write_text(_SLEEPER)
        changes = {"registry_dir": tools, "worker_threads": RUNNING, "quota_running_calls": 0}
        settings = load_settings(Path(place) / "data", policies, 0).model_copy(update=changes)
        with Stack(settings, say) as stack:
            wanted = NewSession(labels={"opened-by": "bench"}, parallel_calls=RUNNING // SESSIONS)
            sessions = [stack.daemon.open_session(wanted) for _ in range(SESSIONS)]
            asyncio.run(_governed(sessions, 5))
            time.sleep(REST_S)
            rest = _held(stack)
            running = asyncio.run(_running(stack, sessions))
    named = {f"{name}_rest_mb": value for name, value in rest.items()}
    return named | {f"{name}_{RUNNING}_running_mb": value for name, value in running.items()}


async def _running(stack: Stack, sessions: list[OpenedSession]) -> dict[str, float]:
    callers = [Caller(session) for session in sessions for _ in range(RUNNING // SESSIONS)]
    for number, caller in enumerate(callers):
        await caller.open()
        await caller.send(wire_name(TOOL), {"number": number})  # equal inputs would join one call
    until = time.monotonic() + START_S
    while (count := _count(stack)) < RUNNING:
        assert time.monotonic() < until, f"only {count} calls run"
        await asyncio.sleep(0.2)
    held = await asyncio.to_thread(_held, stack)
    for caller in callers:
        await caller.close()
    return held


def _count(stack: Stack) -> int:
    with closing(sqlite3.connect(stack.settings.data_dir / "codesdk.db")) as database:
        (count,) = database.execute("SELECT count(*) FROM tool_calls WHERE state = 'running_tool'").fetchone()
    return int(count)


def _held(stack: Stack) -> dict[str, float]:
    return {name: _share(runfile.read(stack.settings.data_dir, name)) for name in ("api", "worker")}


def _share(process: dict[str, Any] | None) -> float:
    assert process is not None
    rollup = Path(f"/proc/{process['pid']}/smaps_rollup").read_text()
    (kilobytes,) = (line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))
    return round(int(kilobytes) / 1024, 1)
