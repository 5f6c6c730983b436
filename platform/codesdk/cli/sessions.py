"""`codesdk sessions`: open, list, close."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from rich.text import Text

from codesdk.cli.daemon import connect
from codesdk.cli.environment import execution_env, tell
from codesdk.cli.given import InputWrong
from codesdk.cli.listing import Listing
from codesdk.cli.opening import open_with
from codesdk.cli.places import settings_of
from codesdk.cli.plain import plain
from codesdk.cli.voice import Voice
from codesdk.cli.welcome import opened_as_json, welcome
from codesdk.domain.decisions import PermissionMode
from codesdk.sandbox.store import SandboxState
from codesdk.sessions import Session

POLL_S = 0.1


def open_one(
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
    """Open one and say how to connect.

    Raises:
        InputWrong: it cannot start from a directory and from a session.
    """
    voice = Voice(as_json=as_json)
    if workspace is not None and from_session is not None:
        raise InputWrong("A session starts from a directory or from another session, not from both.")
    settings = settings_of(data_dir)
    tell(voice, settings)
    with connect(settings) as daemon:
        by = "codesdk sessions open"
        opened = open_with(
            daemon,
            workspace,
            mode=mode,
            opened_by=by,
            say=voice.say,
            profile=profile,
            rules=rules,
            from_session=from_session,
            snapshots=snapshots,
            watch=watch,
        )
    if as_json:
        voice.give(opened_as_json(opened, execution_env=execution_env(settings)))
    else:
        welcome(voice.out, opened, settings)


def show(*, data_dir: Path | None, as_json: bool) -> None:
    """List them."""
    voice = Voice(as_json=as_json)
    settings = settings_of(data_dir)
    tell(voice, settings)
    with connect(settings) as daemon:
        found = daemon.sessions()
    if as_json:
        shown = [session.model_dump(mode="json") for session in found]
        voice.give({"sessions": shown, "execution_env": execution_env(settings)})
    elif not found:
        voice.out.print("There is no session.")
    else:
        voice.rows(table(found))


def close_one(session: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Close it."""
    voice = Voice(as_json=as_json)
    with connect(settings_of(data_dir)) as daemon:
        closed = daemon.close_session(session)
    if as_json:
        voice.give(closed.model_dump(mode="json"))
    else:
        voice.out.print(f"Closed {closed.id}; its log of {closed.last_seq} events stays.")


def turn_one(
    session: str, turn: Literal["stop", "start"], *, wait_s: float, data_dir: Path | None, as_json: bool
) -> None:
    """Stop its sandbox, or start it, and wait until it is so."""
    voice = Voice(as_json=as_json)
    wanted = {"stop": SandboxState.STOPPED, "start": SandboxState.READY}[turn]
    under_way = (SandboxState.WANTED, SandboxState.STOPPING, SandboxState.HALTING, SandboxState.STARTING)
    with connect(settings_of(data_dir)) as daemon:
        found = daemon.sandbox(session, turn)
        deadline = time.monotonic() + wait_s
        while found.state in under_way and time.monotonic() < deadline:
            time.sleep(POLL_S)
            found = daemon.sandbox(session)
    if as_json:
        voice.give(found.model_dump(mode="json"))
    elif found.state is wanted or (turn, found.state) == ("start", SandboxState.PAUSED):
        said = {"stop": "stopped; its workspace stays, and the next call starts it again", "start": "ready"}
        voice.out.print(f"The sandbox of {session} is {said[turn]}.")
    else:
        voice.out.print(f"The sandbox of {session} is {found.state.value}.")


def table(sessions: list[Session]) -> Listing:
    """One row a session."""
    shown = Listing("session", "state", "mode", "events", "opened (UTC)", "labels", folds=("labels",))
    for session in sessions:
        opened = datetime.fromtimestamp(session.created_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        labels = Text(plain(", ".join(f"{name}={value}" for name, value in session.labels.items())))
        mode = session.permission_mode.value
        shown.add_row(session.id, session.state, mode, str(session.last_seq), opened, labels)
    return shown
