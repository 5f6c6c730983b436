"""Second half of `codesdk connect --check`: starts the client's own program with the configuration as it was written.

Reports the session's tools that it sees, and fails if it offers or runs a built-in tool: the program's model is a fake one
that asks for its shell, and for its tools that write, read and fetch.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from codesdk.cli.client_config.built_ins import HARMLESS
from codesdk.cli.client_config.client_files import client_files, copy_for_check
from codesdk.cli.client_config.client_programs import PROGRAMS, CheckPlace, LaunchSpec, Traces, client_environment
from codesdk.cli.client_config.clients import CLIENTS, ClientKind, Endpoint
from codesdk.cli.client_config.fake_model_api import FakeModelApi, serve_fake_model_api
from codesdk.errors import ExitCode, Fault
from codesdk.mcphost.stdio_bridge.unavailable import TOOL as UNAVAILABLE

LIMIT_S = 120.0
"""Seconds for a client's program to connect and to end; it takes three to ten on an idle machine."""
END_S = 5.0
"""Seconds to end after the model's last words."""
POLL_S = 0.1
"""Seconds between polls of the program."""
_MAX_OUTPUT_CHARS = 400
"""Characters of a program's output that an error quotes."""
_CANARY = "Only a built-in tool shows this line to the model."


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


class BuiltInsOn(Fault):
    """The client's program ran a built-in tool on this machine, or offered one to its model."""

    code = "BUILT_INS_ON"
    status = 409
    exit_code = ExitCode.FAILED


def list_client_tools(kind: ClientKind, to: Endpoint, written: Sequence[str] = ()) -> list[str] | None:
    """Return the tools that the client's own program sees; None for a client without a program to start.

    `written`: the text of each of its files; without it, our part alone. The program runs in a home of its own, without the
    user's other MCP servers and hooks, and is then ended.

    Raises:
        ClientAbsent: it is not on the PATH.
        ClientSilent, ToolsNotSeen: it sees no tools of the session, or can't be started.
        BuiltInsOn: it has other tools than the session's.
    """
    if kind not in PROGRAMS:
        return None
    client = PROGRAMS[kind]
    program = shutil.which(client.name)
    if program is None:
        raise ClientAbsent(
            f"The session answers, but there is no `{client.name}` on this PATH to check with.",
            advice="Install it, or put its folder on the PATH, and check again.",
        )
    with (
        tempfile.TemporaryDirectory(prefix="codesdk-check-", ignore_cleanup_errors=True) as place,
        serve_fake_model_api() as fake_model_api,
    ):
        home, project = Path(place), Path(place) / "project"
        project.mkdir()
        others = _put_files(kind, to, home, project, written)
        left = Traces(project, fake_model_api.url)
        Path(left.readable).write_text(_CANARY, encoding="utf-8")
        fake_model_api.uses = client.uses(left)
        started = client.start(program, CheckPlace(project, fake_model_api.url, tuple(others)))
        if started.login is not None:
            _write_file(*started.login)
        env = client_environment(to, home, os.environ.get("PATH", "")) | started.env
        try:
            output = _run_client(LaunchSpec(started.line, env), project, home / "output", fake_model_api, to.token)
        except OSError as error:
            raise ToolsNotSeen(
                f"{program} cannot be started: {error.strerror}.",
                advice="Check that it runs by hand; reinstall it if not.",
            ) from error
        fake_model_api.record(_listed_tools(home / "output"))
        tools = fake_model_api.tools
        _reject_built_ins(CLIENTS[kind].title, fake_model_api, left)
    if tools - {UNAVAILABLE}:
        return sorted(tools)
    if output is None and not tools:
        raise ClientSilent(
            f"{program} was started with this configuration, but showed no tools within {LIMIT_S:.0f} s.",
            advice="Check that it runs by hand: it may wait for a login or for the network.",
        )
    why = f" Its output: {output}" if output else ""
    raise ToolsNotSeen(
        f"{program} was started with this configuration, but offered its model no tool of {to.url}.{why}",
        advice="Check that it reaches the address and knows these keys. Start it by hand for details.",
    )


def _put_files(kind: ClientKind, to: Endpoint, home: Path, project: Path, written: Sequence[str]) -> list[str]:
    """Write the client's files into the check's home. Returns the names of MCP servers that must not be started."""
    others: list[str] = []
    client = CLIENTS[kind]
    for number, file in enumerate(client_files(client, client.file(home, project), to)):
        copied = copy_for_check(written[number] if written else file.text, toml=file.toml)
        others += copied.others
        _write_file(file.place, copied.text)
    return others


def _write_file(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch(mode=0o600)
    place.write_text(text, encoding="utf-8")


def _reject_built_ins(title: str, fake_model_api: FakeModelApi, left: Traces) -> None:
    ran = [name for name in ("shell", "written") if (left.place / name).exists()]
    ran += ["read"] if any(_CANARY in text for text in fake_model_api.texts) else []
    ran += ["fetched"] if fake_model_api.fetched else []
    offered = sorted(fake_model_api.others - HARMLESS)
    if not ran and not offered:
        return
    facts = [f"ran its own tools on this machine (traces: {', '.join(ran)})"] if ran else []
    facts += [f"offered its model {', '.join(offered)}"] if offered else []
    raise BuiltInsOn(
        f"{title} {' and '.join(facts)}: no policy applies to these.",
        advice="Take its own settings that allow them out of its file, or switch these tools off in it by name.",
        details={"ran": ran, "offered": offered},
    )


def _run_client(spec: LaunchSpec, project: Path, words: Path, fake_model_api: FakeModelApi, token: str) -> str | None:
    """Run the program until it ends, says its last words, or the time is over.

    Returns the end of its output, with the token redacted; None if it still ran.
    """
    with words.open("wb") as out:
        try:
            process = subprocess.Popen(
                spec.line,
                cwd=project,
                env=spec.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:  # a truncated download, or a binary for another architecture
            raise ToolsNotSeen(
                f"{spec.line[0]} cannot be started: {(error.strerror or str(error)).lower()}.", advice="Reinstall it."
            ) from error
    due = time.monotonic() + LIMIT_S
    try:
        while process.poll() is None and time.monotonic() < due:
            if fake_model_api.finished.wait(POLL_S):
                due = min(due, time.monotonic() + END_S)
                time.sleep(POLL_S)
        return None if process.poll() is None else _output_tail(words, token)
    finally:
        _kill(process)
        process.wait()


def _listed_tools(words: Path) -> list[str]:
    """Parse the tools in Claude Code's first message: it may offer them to its model only on demand."""
    for line in words.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, AttributeError):
            message = json.loads(line)
            if message.get("subtype") == "init":
                return [str(name) for name in message.get("tools", ())]
    return []


def _output_tail(words: Path, token: str) -> str:
    text = words.read_text(encoding="utf-8", errors="replace").replace(token, "…")  # redact before the cut
    return " ".join(text.split())[-_MAX_OUTPUT_CHARS:]


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
