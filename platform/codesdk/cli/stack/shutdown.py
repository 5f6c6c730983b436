"""Closes every session when an installation stops, because without a worker its sandboxes are of no use."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from codesdk.bootstrap import Services
from codesdk.errors import Fault
from codesdk.provision.system.command import ProgressCallback
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.local.driver import sweep_local
from codesdk.sandbox.port import SweepResult
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import SandboxState
from codesdk.sessions import Session
from codesdk.settings import Settings

REMOVAL_TIMEOUT_S = 20.0
"""Seconds for the worker to remove the containers: about a second each, two at a time."""
POLL_S = 0.05


def close_sessions(services: Services, progress: ProgressCallback, worker_runs: Callable[[], bool]) -> None:
    """Close all sessions, and wait for the worker to remove their sandboxes."""
    try:
        still_open = services.sessions.list_all_open()
        closed = [session for session in still_open if services.sessions.close(session.tenant_id, session.id)]
        _wait_for_removal(services, closed, worker_runs)
    except Fault as fault:
        progress(f"Sessions could not be closed: {fault} The next `codesdk up` closes them.")
        return
    if closed:
        progress(f"Closed {len(closed)} session{'s' * (len(closed) != 1)}")


def remove_leftover_sandboxes(settings: Settings, instance: str, progress: ProgressCallback) -> None:
    """Remove sandboxes that the worker left behind. Call this only after the worker has stopped.

    `instance`: the id at the start; the data directory may have been removed since.
    """
    try:
        swept = sweep_local(settings) if settings.is_local else remove_engine_sandboxes(settings, instance)
    except Fault as fault:
        progress(f"Leftover sandboxes could not be removed: {fault} The next `codesdk up` removes what is left.")
        return
    if swept.containers:
        progress(f"Removed sandboxes that the worker left behind: {len(swept.containers)}")


def remove_engine_sandboxes(settings: Settings, instance: str) -> SweepResult:
    """Remove every container, volume and disk of that installation from the engine.

    Raises:
        Fault: the engine doesn't answer, or can't remove one.
    """
    with closing(Engine(settings.docker_host or None)) as engine:
        return DockerSandboxes(instance, engine, workspaces=settings.workspaces_dir()).sweep(())


def _wait_for_removal(services: Services, closed: list[Session], worker_runs: Callable[[], bool]) -> None:
    until = time.monotonic() + REMOVAL_TIMEOUT_S
    while not all(_is_removed(services, session) for session in closed):
        if time.monotonic() > until or not worker_runs():
            return
        time.sleep(POLL_S)


def _is_removed(services: Services, session: Session) -> bool:
    with services.database.read() as connection:
        row = store.of_session(connection, session.id)
    return row is None or row.state is SandboxState.GONE
