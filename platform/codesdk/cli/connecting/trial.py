"""The second half of `codesdk connect --check`: which tools the client's own program sees."""

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


class ClientAbsent(Fault):
    """The client's program is not installed here, so it cannot be asked."""

    code = "CLIENT_ABSENT"
    status = 424
    exit_code = ExitCode.UNAVAILABLE


class ClientSilent(Fault):
    """The client's program was started, and shows nothing within its time."""

    code = "CLIENT_SILENT"
    status = 504
    retryable = True
    exit_code = ExitCode.UNAVAILABLE


class ToolsNotSeen(Fault):
    """The client's program ended, and none of the session's tools was seen."""

    code = "TOOLS_NOT_SEEN"
    status = 502
    exit_code = ExitCode.UNAVAILABLE


def seen_by(kind: Kind, to: Endpoint) -> list[str] | None:
    """The tools that the client's own program sees; None for a client that has no program which can be asked.

    Claude Code says in its first message what it sees. The others tell only their model, so something that is none stands
    in its place and hears it. The program is ended then.

    Raises:
        ClientAbsent: it is not on the PATH.
        ClientSilent, ToolsNotSeen: it was asked, and sees none; or it cannot be started.
    """
    if kind not in PROGRAMS:
        return None
    name, prepare = PROGRAMS[kind]
    program = shutil.which(name)
    if program is None:
        raise ClientAbsent(
            f"The session answers, but there is no `{name}` on this PATH that could be asked what it sees.",
            advice="Install it, or put its folder on the PATH, and check again.",
        )
    with tempfile.TemporaryDirectory(prefix="codesdk-check-", ignore_cleanup_errors=True) as place, listening() as ear:
        home = Path(place)
        started = prepare(program, to, home, ear.url)
        env = environment(to, home, os.environ.get("PATH", "")) | started.env
        try:
            tools, said = _watched(started.line, env, home, ear, to.token)
        except OSError as error:
            raise ToolsNotSeen(
                f"{program} cannot be started: {error.strerror}.", advice="Does it run by hand? Install it anew."
            ) from error
    if tools:
        return sorted(tools)
    if said is None:
        raise ClientSilent(
            f"{program} was started with this configuration, and shows nothing within {LIMIT_S:.0f} s.",
            advice="Does it run by hand? It may wait for a login, or for something in the network.",
        )
    why = f" It says: {said}" if said else ""
    raise ToolsNotSeen(
        f"{program} was started with this configuration and shows its model no tool of {to.url}.{why}",
        advice="Is the address one that it can reach, and does it know these keys? Start it by hand to see more.",
    )


def _watched(line: list[str], env: dict[str, str], home: Path, ear: Ear, token: str) -> tuple[set[str], str | None]:
    """The tools that it shows; else the last words of one that ended, and None of one that goes on without a sign.

    The words are without the token.
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
        except OSError as error:  # a download that was cut off, or a program of another machine
            raise ToolsNotSeen(
                f"{line[0]} cannot be started: {(error.strerror or str(error)).lower()}.", advice="Install it anew."
            ) from error
    due = time.monotonic() + LIMIT_S
    try:
        while True:
            ended = process.poll() is not None
            if tools := ear.tools | _listed(words):
                return tools, ""
            if ended or time.monotonic() > due:
                break
            ear.heard.wait(LOOK_S)
        return set(), _last_words(words, token) if ended else None
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


def _last_words(words: Path, token: str) -> str:
    text = words.read_text(encoding="utf-8", errors="replace").replace(token, "…")  # whole: a cut one is not found
    return " ".join(text.split())[-_SHOWN:]


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
