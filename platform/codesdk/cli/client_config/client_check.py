"""Second half of `codesdk connect --check`: starts the client's own program and reports which tools it sees."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from codesdk.cli.client_config.client_programs import PROGRAMS, client_environment
from codesdk.cli.client_config.clients import SERVER_NAME, ClientKind, Endpoint
from codesdk.cli.client_config.fake_model_api import FakeModelApi, serve_fake_model_api
from codesdk.errors import ExitCode, Fault

LIMIT_S = 60.0
"""Seconds for a client's program to connect; it takes two or three on an idle machine."""
POLL_S = 0.1
"""Seconds between polls of a silent program."""
_MAX_OUTPUT_CHARS = 400
"""Characters of a program's output that an error quotes."""
_PREFIX = f"mcp__{SERVER_NAME}__"


class ClientAbsent(Fault):
    """The client's program is not installed here."""

    code = "CLIENT_ABSENT"
    status = 424
    exit_code = ExitCode.UNAVAILABLE


class ClientSilent(Fault):
    """The client's program was started, but showed no tools within the time limit."""

    code = "CLIENT_SILENT"
    status = 504
    retryable = True
    exit_code = ExitCode.UNAVAILABLE


class ToolsNotSeen(Fault):
    """The client's program ended without showing any of the session's tools."""

    code = "TOOLS_NOT_SEEN"
    status = 502
    exit_code = ExitCode.UNAVAILABLE


def list_client_tools(kind: ClientKind, to: Endpoint) -> list[str] | None:
    """Return the tools that the client's own program sees; None for a client without a program to start.

    Claude Code lists its tools in its first message. The others send them only to their model, so a fake model API
    receives the list. The program is then ended.

    Raises:
        ClientAbsent: it is not on the PATH.
        ClientSilent, ToolsNotSeen: it sees no tools of the session, or can't be started.
    """
    if kind not in PROGRAMS:
        return None
    name, prepare = PROGRAMS[kind]
    program = shutil.which(name)
    if program is None:
        raise ClientAbsent(
            f"The session answers, but there is no `{name}` on this PATH to check with.",
            advice="Install it, or put its folder on the PATH, and check again.",
        )
    with (
        tempfile.TemporaryDirectory(prefix="codesdk-check-", ignore_cleanup_errors=True) as place,
        serve_fake_model_api() as fake_model_api,
    ):
        home = Path(place)
        started = prepare(program, to, home, fake_model_api.url)
        env = client_environment(to, home, os.environ.get("PATH", "")) | started.env
        try:
            tools, output = _run_client(started.line, env, home, fake_model_api, to.token)
        except OSError as error:
            raise ToolsNotSeen(
                f"{program} cannot be started: {error.strerror}.",
                advice="Check that it runs by hand; reinstall it if not.",
            ) from error
    if tools:
        return sorted(tools)
    if output is None:
        raise ClientSilent(
            f"{program} was started with this configuration, but showed no tools within {LIMIT_S:.0f} s.",
            advice="Check that it runs by hand: it may wait for a login or for the network.",
        )
    why = f" Its output: {output}" if output else ""
    raise ToolsNotSeen(
        f"{program} was started with this configuration, but offered its model no tool of {to.url}.{why}",
        advice="Check that it reaches the address and knows these keys. Start it by hand for details.",
    )


def _run_client(
    line: list[str], env: dict[str, str], home: Path, fake_model_api: FakeModelApi, token: str
) -> tuple[set[str], str | None]:
    """Return the tools that the program shows. If it shows none: the end of its output, or None if it still runs.

    The output has the token redacted.
    """
    words = home / "words"
    with words.open("wb") as out:
        try:
            process = subprocess.Popen(
                line,
                cwd=home,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:  # a truncated download, or a binary for another architecture
            raise ToolsNotSeen(
                f"{line[0]} cannot be started: {(error.strerror or str(error)).lower()}.", advice="Reinstall it."
            ) from error
    due = time.monotonic() + LIMIT_S
    try:
        while True:
            ended = process.poll() is not None
            if tools := fake_model_api.tools | _claude_tools(words):
                return tools, ""
            if ended or time.monotonic() > due:
                break
            fake_model_api.tools_received.wait(POLL_S)
        return set(), _output_tail(words, token) if ended else None
    finally:
        _kill(process)
        process.wait()


def _claude_tools(words: Path) -> set[str]:
    """Parse the tools in Claude Code's first message."""
    for line in words.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, AttributeError):
            message = json.loads(line)
            if message.get("subtype") == "init":
                return {name.removeprefix(_PREFIX) for name in message.get("tools", ()) if name.startswith(_PREFIX)}
    return set()


def _output_tail(words: Path, token: str) -> str:
    text = words.read_text(encoding="utf-8", errors="replace").replace(token, "…")  # redact before the cut
    return " ".join(text.split())[-_MAX_OUTPUT_CHARS:]


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
