"""`codesdk mcp`: the stdio bridge. Opens a session of its own if none is given."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from codesdk.cli.api_client import connect
from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.session.create import create_session
from codesdk.cli.stack.signals import Signals
from codesdk.domain.decisions import PermissionMode
from codesdk.errors import ExitCode, Fault
from codesdk.mcphost.stdio_bridge import main, unavailable


class TokenMissing(Fault):
    """A URL was given without a token, or a token without a URL."""

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
    git_depth: int | None = None,
    tell_agent: bool = False,
) -> None:
    """Serve stdin and stdout until they close. `wait_s`: see `mcphost.stdio_bridge.main.run`.

    `tell_agent`: if the session can't be used, serve a tool that says why until stdin closes: many agents go on without a
    server that ends.

    Raises:
        TokenMissing: only one of URL and token was given.
        Fault: nothing answers, or the token is invalid.
    """
    signals = Signals()  # on SIGTERM the session must still be closed
    try:
        if bool(url) != bool(token):
            raise TokenMissing("--url and --token belong together.", advice="Give both, or neither.")
        if url and token:
            _serve(url, token, wait_s)
        else:
            _serve_own(signals, workspace, mode, rules, data_dir, wait_s=wait_s, git_depth=git_depth)
    except Fault as fault:
        if not tell_agent:
            raise
        Printer().warn(str(fault))
        with contextlib.suppress(KeyboardInterrupt):
            unavailable.run(fault)
        raise
    if signals.caught:
        # The thread that reads stdin would keep the process alive until the next line.
        os._exit(ExitCode.OK)


def _serve_own(
    signals: Signals,
    workspace: Path | None,
    mode: PermissionMode,
    rules: Path | None,
    data_dir: Path | None,
    *,
    wait_s: int | None,
    git_depth: int | None,
) -> None:
    printer = Printer()  # prints on stderr only
    with connect(load_settings(data_dir)) as daemon:
        opened = create_session(
            daemon,
            workspace,
            mode=mode,
            opened_by="codesdk mcp",
            progress=printer.progress,
            rules=rules,
            git_depth=git_depth,
        )
        try:
            _serve(f"{daemon.url}/mcp", opened.token, wait_s)  # not the public URL: the daemon is local
        finally:
            signals.ignore_from_now()
            daemon.close_session(opened.session.id)


def _serve(url: str, token: str, wait_s: int | None) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        main.run(url, token, wait_s)
