"""`codesdk connect --check`: whether the tools are seen, by the client's own program where that can be asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

import httpx2
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from codesdk.cli.connecting.clients import CLIENTS, SERVER, TOKEN, Endpoint, Kind, as_json
from codesdk.errors import ExitCode, Fault

LIMIT_S = 60.0
"""Seconds that a client's program may take to connect; it takes two or three on an idle machine."""
_PREFIX = f"mcp__{SERVER}__"


class ToolsNotSeen(Fault):
    """The tools of the session were not seen."""

    code = "TOOLS_NOT_SEEN"
    status = 502
    exit_code = ExitCode.UNAVAILABLE


def served(to: Endpoint) -> list[str]:
    """The names of the session's tools, as the official client lists them.

    Raises:
        ToolsNotSeen: the address or the token does not work.
    """

    async def ask() -> list[str]:
        headers = to.headers(to.token)
        async with (
            asyncio.timeout(LIMIT_S),
            httpx2.AsyncClient(headers=headers, timeout=LIMIT_S, trust_env=False) as http,
            McpClient(streamable_http_client(to.url, http_client=http)) as client,
        ):
            return sorted(tool.name for tool in (await client.list_tools()).tools)

    try:
        return asyncio.run(ask())
    except Exception as error:
        raise ToolsNotSeen(
            f"The session does not answer at {to.url}.", advice="Is `codesdk up` running, and the session open?"
        ) from error


def seen_by(kind: Kind, to: Endpoint) -> list[str] | None:
    """The tools that the client's own program sees; None where it is not installed, or cannot be asked without a model.

    Raises:
        ToolsNotSeen: it was asked, and sees none.
    """
    program = shutil.which("claude") if kind is Kind.CLAUDE else None
    return _claude(program, to) if program else None


def _claude(program: str, to: Endpoint) -> list[str]:
    # Its first message lists its tools, before it asks a model for anything: there is none where it is sent.
    with tempfile.TemporaryDirectory(prefix="codesdk-check-") as home:
        config = Path(home) / "mcp.json"
        config.write_text(as_json(CLIENTS[Kind.CLAUDE].piece(to)), encoding="utf-8")
        line = [program, "-p", "x", "--output-format", "stream-json", "--verbose", "--bare", "--tools", ""]
        env = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": home,
            TOKEN: to.token,
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
            "ANTHROPIC_API_KEY": "none",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        with subprocess.Popen(
            [*line, "--strict-mcp-config", "--mcp-config", str(config)],
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            timer = threading.Timer(LIMIT_S, _end, [process])
            timer.start()
            try:
                tools = _listed(process)
            finally:
                timer.cancel()
                _end(process)
    if not tools:
        raise ToolsNotSeen(f"{program} connects to {to.url} and sees no tool.", advice="Start it by hand with --debug.")
    return sorted(name.removeprefix(_PREFIX) for name in tools)


def _listed(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None  # noqa: S101 (it is a pipe)
    for line in process.stdout:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if message.get("subtype") == "init":
            return [name for name in message.get("tools", ()) if name.startswith(_PREFIX)]
    return []


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
