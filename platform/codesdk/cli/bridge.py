"""`codesdk mcp`: the stdio bridge, with a session of its own where none is given."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from codesdk.cli.daemon import connect
from codesdk.cli.opening import open_with
from codesdk.cli.places import settings_of
from codesdk.cli.stack.signals import Signals
from codesdk.cli.voice import Voice
from codesdk.domain.decisions import PermissionMode
from codesdk.errors import ExitCode, Fault
from codesdk.mcphost import bridge


class TokenMissing(Fault):
    """A URL without a token, or a token without a URL."""

    code = "TOKEN_MISSING"
    status = 400
    exit_code = ExitCode.USAGE


def run(
    *,
    url: str | None,
    token: str | None,
    workspace: Path | None,
    mode: PermissionMode,
    rules: Path | None,
    data_dir: Path | None,
    wait_s: int | None,
) -> None:
    """Serve stdin and stdout until they close. `wait_s`: see `mcphost.bridge.run`.

    Raises:
        TokenMissing: only one of the two was given.
        Fault: nothing answers, or the token is not valid.
    """
    if bool(url) != bool(token):
        raise TokenMissing("--url and --token belong together.", advice="Give both, or neither.")
    signals = Signals()  # a TERM from the agent's host must still close the session
    if url and token:
        _serve(url, token, wait_s)
    else:
        _serve_own(signals, workspace, mode, rules, data_dir, wait_s=wait_s)
    if signals.caught:
        # The thread that waits for the next line of stdin would keep the process until one comes.
        os._exit(ExitCode.OK)


def _serve_own(
    signals: Signals,
    workspace: Path | None,
    mode: PermissionMode,
    rules: Path | None,
    data_dir: Path | None,
    *,
    wait_s: int | None,
) -> None:
    voice = Voice()  # speaks on stderr only
    with connect(settings_of(data_dir)) as daemon:
        opened = open_with(daemon, workspace, mode=mode, opened_by="codesdk mcp", say=voice.say, rules=rules)
        try:
            _serve(f"{daemon.url}/mcp", opened.token, wait_s)  # not by its public name: the daemon is on this machine
        finally:
            signals.only_noted()
            daemon.close_session(opened.session.id)


def _serve(url: str, token: str, wait_s: int | None) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        bridge.run(url, token, wait_s)
