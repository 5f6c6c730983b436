"""`codesdk sessions`: open, list, stop, start, close."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from rich.text import Text

from codesdk.cli.api_client import connect
from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.console.printer import Printer
from codesdk.cli.console.table import ResponsiveTable
from codesdk.cli.console.text import sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.session.connection_info import opened_as_json, print_connection_info
from codesdk.cli.session.create import create_session
from codesdk.cli.session.execution_environment import execution_env, warn_if_not_container
from codesdk.domain.decisions import PermissionMode
from codesdk.sandbox.records.store import SandboxState
from codesdk.sessions import Session

POLL_S = 0.1


def run_open(
    *,
    workspace: Path | None,
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
        raise InputWrong("A session starts from a directory or from another session, not from both.")
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
        shown = [session.model_dump(mode="json") for session in found]
        printer.emit({"sessions": shown, "execution_env": execution_env(settings)})
    elif not found:
        printer.out.print("There is no session.")
    else:
        printer.rows(table(found))


def run_close(session: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Close a session."""
    printer = Printer(as_json=as_json)
    with connect(load_settings(data_dir)) as daemon:
        closed = daemon.close_session(session)
    if as_json:
        printer.emit(closed.model_dump(mode="json"))
    else:
        printer.out.print(f"Closed {closed.id}; its log of {closed.last_seq} events stays.")


def run_sandbox_change(
    session: str, turn: Literal["stop", "start"], *, wait_s: float, data_dir: Path | None, as_json: bool
) -> None:
    """Stop or start a session's sandbox and wait until that is done."""
    printer = Printer(as_json=as_json)
    wanted = {"stop": SandboxState.STOPPED, "start": SandboxState.READY}[turn]
    under_way = (SandboxState.WANTED, SandboxState.STOPPING, SandboxState.HALTING, SandboxState.STARTING)
    with connect(load_settings(data_dir)) as daemon:
        found = daemon.sandbox(session, turn)
        deadline = time.monotonic() + wait_s
        while found.state in under_way and time.monotonic() < deadline:
            time.sleep(POLL_S)
            found = daemon.sandbox(session)
    if as_json:
        printer.emit(found.model_dump(mode="json"))
    elif found.state is wanted or (turn, found.state) == ("start", SandboxState.PAUSED):
        said = {"stop": "stopped; its workspace stays, and the next call starts it again", "start": "ready"}
        printer.out.print(f"The sandbox of {session} is {said[turn]}.")
    else:
        printer.out.print(f"The sandbox of {session} is {found.state.value}.")


def table(sessions: list[Session]) -> ResponsiveTable:
    """Return a table with one row per session."""
    shown = ResponsiveTable("session", "state", "mode", "events", "opened (UTC)", "labels", folds=("labels",))
    for session in sessions:
        opened = datetime.fromtimestamp(session.created_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        labels = Text(sanitize(", ".join(f"{name}={value}" for name, value in session.labels.items())))
        mode = session.permission_mode.value
        shown.add_row(session.id, session.state, mode, str(session.last_seq), opened, labels)
    return shown
