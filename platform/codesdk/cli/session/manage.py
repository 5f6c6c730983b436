"""`codesdk sessions`: open, list, stop, start, close."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from codesdk.cli.api_client import connect
from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.console.terminal import Printer, ResponsiveTable, format_time
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.session.connection_info import (
    execution_env,
    opened_as_json,
    print_connection_info,
    warn_if_not_container,
)
from codesdk.cli.session.create import create_session
from codesdk.domain.decisions import PermissionMode
from codesdk.sandbox.records.store import SandboxState
from codesdk.sessions import Session

POLL_S = 0.1


def run_open(
    *,
    workspace: Path | None,
    git_depth: int | None,
    mode: PermissionMode,
    profile: str,
    rules: Path | None,
    watch: bool,
    from_session: str | None,
    snapshots: bool | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Open a session and print how to connect.

    Raises:
        InputWrong: both a directory and a session were given to start from.
    """
    printer = Printer(as_json=as_json)
    if workspace is not None and from_session is not None:
        raise InputWrong("--workspace and --from exclude each other.", advice="Give one of them.")
    settings = load_settings(data_dir)
    warn_if_not_container(printer, settings)
    with connect(settings) as daemon:
        by = "codesdk sessions open"
        opened = create_session(
            daemon,
            workspace,
            mode=mode,
            opened_by=by,
            progress=printer.progress,
            profile=profile,
            rules=rules,
            from_session=from_session,
            snapshots=snapshots,
            watch=watch,
            git_depth=git_depth,
        )
    if as_json:
        printer.emit(opened_as_json(opened, execution_env=execution_env(settings)))
    else:
        print_connection_info(printer.out, opened, settings)


def show(*, data_dir: Path | None, as_json: bool) -> None:
    """List sessions."""
    printer = Printer(as_json=as_json)
    settings = load_settings(data_dir)
    warn_if_not_container(printer, settings)
    with connect(settings) as daemon:
        found = daemon.sessions()
    if as_json:
        printer.emit({"sessions": found, "execution_env": execution_env(settings)})
    elif not found:
        printer.out.print("There is no session.")
    else:
        printer.rows(table(found))


def run_close(session: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Close a session."""
    with connect(load_settings(data_dir)) as daemon:
        closed = daemon.close_session(session)
    Printer(as_json=as_json).answer(closed, f"Closed {closed.id}; its log of {closed.last_seq} events stays.")


def run_sandbox_change(
    session: str, turn: Literal["stop", "start"], *, wait_s: float, data_dir: Path | None, as_json: bool
) -> None:
    """Stop or start a session's sandbox and wait until that is done."""
    wanted = {"stop": SandboxState.STOPPED, "start": SandboxState.READY}[turn]
    under_way = (SandboxState.WANTED, SandboxState.STOPPING, SandboxState.HALTING, SandboxState.STARTING)
    with connect(load_settings(data_dir)) as daemon:
        found = daemon.sandbox(session, turn)
        deadline = time.monotonic() + wait_s
        while found.state in under_way and time.monotonic() < deadline:
            time.sleep(POLL_S)
            found = daemon.sandbox(session)
    state = found.state.value
    if found.state is wanted or (turn, found.state) == ("start", SandboxState.PAUSED):
        state = {"stop": "stopped; its workspace stays, and the next call starts it again", "start": "ready"}[turn]
    Printer(as_json=as_json).answer(found, f"The sandbox of {session} is {state}.")


def table(sessions: list[Session]) -> ResponsiveTable:
    """Return a table with one row per session."""
    shown = ResponsiveTable("session", "state", "mode", "events", "opened (UTC)", "labels", folds=("labels",))
    for session in sessions:
        opened = format_time(session.created_at)
        labels = ", ".join(f"{name}={value}" for name, value in session.labels.items())
        mode = session.permission_mode.value
        shown.add_row(session.id, session.state, mode, str(session.last_seq), opened, labels)
    return shown
