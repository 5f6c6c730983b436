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
import time
from pathlib import Path

import httpx2
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from codesdk.cli.connecting.clients import SERVER, Endpoint, Kind
from codesdk.cli.connecting.ear import Ear, listening
from codesdk.cli.connecting.programs import PROGRAMS, environment
from codesdk.errors import ExitCode, Fault

LIMIT_S = 60.0
"""Seconds that a client's program may take to connect; it takes two or three on an idle machine."""
LOOK_S = 0.1
"""Seconds between looks at a program that says nothing."""
_SHOWN = 400
"""Characters of a program's last words."""
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
    """The tools that the client's own program sees; None where it is not installed, or is none that can be asked.

    Claude Code says in its first message what it sees. The others tell only their model, so something that is none stands
    in its place and hears it. The program is ended then.

    Raises:
        ToolsNotSeen: it was asked, and sees none.
    """
    name, prepare = PROGRAMS.get(kind, (None, None))
    program = shutil.which(name) if name else None
    if program is None or prepare is None:
        return None
    with tempfile.TemporaryDirectory(prefix="codesdk-check-", ignore_cleanup_errors=True) as place, listening() as ear:
        home = Path(place)
        started = prepare(program, to, home, ear.url)
        env = environment(to, home, os.environ.get("PATH", "")) | started.env
        tools, said = _watched(started.line, env, home, ear)
        said = said.replace(to.token, "…")
    if not tools:
        why = f" It says: {said}" if said else ""
        raise ToolsNotSeen(
            f"{program} was started with this configuration and shows its model no tool of {to.url}.{why}",
            advice="Is the address one that it can reach, and does it know these keys? Start it by hand to see more.",
        )
    return sorted(tools)


def _watched(line: list[str], env: dict[str, str], home: Path, ear: Ear) -> tuple[set[str], str]:
    """The tools that it shows, and else the last words that it said."""
    words = home / "words"
    with words.open("wb") as out:
        process = subprocess.Popen(
            line,
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    due = time.monotonic() + LIMIT_S
    try:
        while True:
            ended = process.poll() is not None
            if tools := ear.tools | _listed(words):
                return tools, ""
            if ended or time.monotonic() > due:
                break
            ear.heard.wait(LOOK_S)
        return set(), _last_words(words) if ended else f"nothing within {LIMIT_S:.0f} s"
    finally:
        _end(process)
        process.wait()


def _listed(words: Path) -> set[str]:
    """What Claude Code's first message lists."""
    for line in words.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, AttributeError):
            message = json.loads(line)
            if message.get("subtype") == "init":
                return {name.removeprefix(_PREFIX) for name in message.get("tools", ()) if name.startswith(_PREFIX)}
    return set()


def _last_words(words: Path) -> str:
    text = words.read_text(encoding="utf-8", errors="replace").strip()
    return " ".join(text.split())[-_SHOWN:]


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
