"""Measures the stages of a governed call: its own API and worker with marks (`traced/`), one call after the other.

The marks cost about 3 µs each. All processes read one clock, and calls do not overlap, so a call's marks are those
between its beginning and its end.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from codesdk.cli.demo.agent import connect_mcp
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.stack.stack import Stack
from codesdk.sessions import NewSession

TRACED = Path(__file__).resolve().parent / "traced"
CALLS = 150
WARM_UP = 20
WAY = (
    ("client, HTTP", "token"),
    ("token", "admitted"),
    ("MCP, to a thread", "submit"),
    ("policy", "record"),
    ("submit commit", "submitted"),
    ("Redis and RQ", "woken"),
    ("to a thread", "claim"),
    ("claim commit", "claimed"),
    ("to the sandbox", "exec"),
    ("runner exec", "executed"),
    ("result", "end"),
    ("finish commit", "ended"),
    ("hint of the end", "notified"),
    ("answer, client", "back"),
)
"""A stage, and the mark at which it is over."""


def measure(policies: Path, say: Callable[[str], None]) -> dict[str, float]:
    """Return the milliseconds (p50) by stage; `together` is the whole call."""
    with tempfile.TemporaryDirectory(prefix="codesdk-bench-") as place:
        marks = Path(place) / "marks"
        before = {name: os.environ.get(name) for name in ("PYTHONPATH", "CODESDK_BENCH_MARKS")}
        os.environ |= {"PYTHONPATH": str(TRACED), "CODESDK_BENCH_MARKS": str(marks)}
        try:
            with Stack(load_settings(Path(place) / "data", policies, 0), say) as stack:
                session = stack.daemon.open_session(NewSession(labels={"opened-by": "bench"}))
                calls = asyncio.run(_call(session.mcp_url, session.token))
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        passed = [(int(at), name) for at, name in (line.split() for line in marks.read_text().splitlines())]
    return fold(calls, passed)


async def _call(url: str, token: str) -> list[tuple[int, int]]:
    async with connect_mcp(url, token) as client:
        times = []
        for _ in range(WARM_UP + CALLS):
            began = time.time_ns()
            result = await client.call_tool("workspace_exec", {"argv": ["true"]})
            times.append((began, time.time_ns()))
            assert not result.is_error, result
    return times[WARM_UP:]


def fold(calls: list[tuple[int, int]], passed: list[tuple[int, str]]) -> dict[str, float]:
    """Return the median of each stage over the calls that passed every mark, in order."""
    spent: dict[str, list[float]] = {name: [] for name, _ in WAY}
    for began, ended in calls:
        of_call = {"back": ended}
        for at, name in passed:
            if began <= at <= ended:
                of_call.setdefault(name, at)
        ways = [began, *(of_call.get(name, 0) for _, name in WAY)]
        if ways != sorted(ways):
            continue  # a poll was quicker than the wake-up, say
        for (name, _), (start, end) in zip(WAY, pairwise(ways), strict=True):
            spent[name].append((end - start) / 1e6)
    stages = {name: round(statistics.median(values), 3) for name, values in spent.items()}
    return {**stages, "together": round(statistics.median((end - start) / 1e6 for start, end in calls), 3)}
